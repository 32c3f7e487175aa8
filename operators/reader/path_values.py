"""Columns with values from the path of a file, as in `dt=2026-01-01/country=DE/part-0.csv`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from dagflow.storage.location import column_of, redacted
from operators.reader.columns.literals import values_of, why_not
from operators.reader.columns.types import ColumnType, ColumnTypes, refuse_optional
from operators.reader.columns.typing import shown

PathSetting = Annotated[
    Literal["hive"] | ColumnTypes | None,
    Field(
        description="columns from directories of the path, such as dt=2026-01-01: hive takes all of them, with the "
        "types that fit the first files; or the columns to take with their types, such as {dt: date, country: string}"
    ),
]


REMEDY = "; or give the column another type under partition_values, or leave it out there"
"""What else to do about a file whose path does not give the columns that it should."""


class PathValues:
    """Adds the values in a file's path to its records."""

    def __init__(self, setting: PathSetting = None) -> None:
        self.is_inferred = setting == "hive"
        refuse_optional({} if setting == "hive" else setting or {})
        self.types: Mapping[str, ColumnType] | None = None if setting == "hive" else setting or {}
        self._of: tuple[str, dict[str, Any] | str] | None = None

    def decide(self, types: Mapping[str, str] | None) -> None:
        if self.is_inferred and types is not None:
            self.types = {name: ColumnType.of(kind) for name, kind in types.items()}
            self._of = None

    def problem_of(self, url: str) -> str:
        """Why a file's path does not give the columns, as a clause; "" if it does."""
        values = self._values_of(url)
        return values if isinstance(values, str) else ""

    def added_to(self, batch: RecordBatch, url: str) -> RecordBatch:
        """Records with the columns of their file's path behind their own columns."""
        values = self._values_of(url)
        if isinstance(values, str) or not values or not len(batch):
            return batch
        rows = batch.to_arrow()
        if both := sorted(set(values) & set(rows.schema.names)):
            raise RecordError(
                f"column '{both[0]}' is in the records, and in the path of their file",
                url=url,
                offset=int(batch.offsets()[0]),
                length=0,
                hint="name under partition_values the columns that are to be taken of the path, without this one",
            )
        arrays = [*rows.columns, *(pa.repeat(value, len(batch)) for value in values.values())]
        return batch.with_columns(pa.RecordBatch.from_arrays(arrays, [*rows.schema.names, *values]))

    def _values_of(self, url: str) -> dict[str, Any] | str:
        if self._of is None or self._of[0] != url:
            self._of = url, self._read(url)
        return self._of[1]

    def _read(self, url: str) -> dict[str, Any] | str:
        if self.types is not None and not self.types:
            return {}
        if self.types is None:
            # In an app the first files that have values have decided the types.
            self.decide(inferred_types([url]))
        texts = texts_in(url)
        if texts is None:
            return "a directory in its path gives a value to a name that has one already"
        if self.types is None:
            return "no directory in its path is called as in dt=2026-01-01, and partition_values is hive"
        values: dict[str, Any] = {}
        for name, kind in self.types.items():
            if name not in texts:
                return f"no directory in its path gives a value to column '{name}', as {name}=…"
            text = texts[name]
            values[name] = value = values_of(pa.array([text], pa.string()), kind)[0]
            if text is not None and not value.is_valid:
                return f"column '{name}' ({kind.name}): {shown(text)} {why_not(text, kind)}, in its path"
        if self.is_inferred and (others := sorted(texts.keys() - values.keys())):
            return f"a directory in its path names column '{others[0]}', which the first files lacked"
        return values


def texts_in(url: str) -> dict[str, str | None] | None:
    """The values of a path by name, None for null; None where a name has two."""
    found: dict[str, str | None] = {}
    for directory in redacted(url).split("/")[:-1]:
        if (pair := column_of(directory)) is not None:
            if pair[0] in found:
                return None
            found[pair[0]] = pair[1]
    return found


def inferred_types(urls: Iterable[str]) -> dict[str, str] | None:
    """The types of all values in the paths of the first files; None where there is no value.

    The first file that has values decides their names. A type fits all values of its name: date, int64 where no
    number begins with a zero that would be lost, or else string.
    """
    values: dict[str, set[str]] = {}
    for url in urls:
        texts = texts_in(url)
        if texts and not values:
            values = {name: set() for name in texts}
        for name in values.keys() & (texts or {}).keys():
            if texts and (text := texts[name]) is not None:
                values[name].add(text)
    return {name: _type_of(sorted(texts)) for name, texts in values.items()} or None


def _type_of(texts: list[str]) -> str:
    column = pa.array(texts, pa.string())
    for name in ("date32", "int64") if texts else ():
        is_plain = name != "int64" or all(text == "0" or not text.lstrip("-+").startswith("0") for text in texts)
        if is_plain and not values_of(column, ColumnType.of(name)).null_count:
            return name
    return "string"
