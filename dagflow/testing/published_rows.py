"""Reads published files back, as rows that a test can compare."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.api.columns.json_values import readable_rows
from dagflow.storage.partition_names import column_of

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PARQUET = b"PAR1"
_CSV = ".csv"


def decompressed(path: str, data: bytes) -> bytes:
    """The content of a file, decompressed if its name shows a compression."""
    codec = _CODECS.get(Path(path).suffix)
    if codec is None or not data:
        return data
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        content: bytes = stream.read()
    return content


def is_parquet(data: bytes) -> bool:
    return data.startswith(_PARQUET)


def rows_of(files: Mapping[str, bytes], place: str) -> list[dict[str, Any]]:
    """The rows of files.

    Args:
        place: The file, or the directory that contains all of them.

    Raises:
        ValueError: A file has no columns.
    """
    return [row for path in sorted(files) for row in _rows_of_file(path, files[path], place)]


def _rows_of_file(path: str, data: bytes, place: str) -> Iterator[dict[str, Any]]:
    data = decompressed(path, data)
    if is_parquet(data):
        values = _partition_values(path, place)
        yield from ({**row, **values} for row in readable_rows(pq.ParquetFile(pa.BufferReader(data)).read()))
        return
    text = data.decode(errors="backslashreplace")
    if _CSV in Path(path).suffixes[-2:]:
        yield from csv.DictReader(io.StringIO(text))
        return
    for line in text.split("\n"):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path} has no columns: it is neither Parquet, CSV nor lines of JSON; compare its text")
        yield row


def _partition_values(path: str, place: str) -> dict[str, str | None]:
    """The columns given by directories such as day=2026-01-01."""
    return dict(filter(None, map(column_of, path.removeprefix(place).split("/")[:-1])))


METADATA = "_dagflow_"
"""Prefix of columns that say where a record is from; such a column is compared only where a row states it."""


def stated(value: Any) -> Any:
    """A value in the form in which YAML can state it: decimals, times and bytes are text."""
    if isinstance(value, Mapping):
        return {str(name): stated(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [stated(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | timedelta) else value


def comparable(rows: Iterable[Mapping[str, Any]], like: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Published rows in the form of a case: without nulls, and without metadata columns that it does not name.

    Args:
        like: The rows that the case states.
    """
    named = {name for row in like for name in row}
    return [
        {name: stated(value) for name, value in row.items() if name in named or not name.startswith(METADATA)}
        for row in rows
    ]


def sorted_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each row, in an order that is the same for the same rows; a null equals a missing value."""
    return sorted(
        json.dumps(
            {name: value for name, value in row.items() if value is not None}, ensure_ascii=False, sort_keys=True
        )
        for row in rows
    )


def with_types_of(expected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stated rows whose numbers are written like the values of a column: 5 is 5.00 in a column of decimals.

    Args:
        expected: The rows that a case states.
    """
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(type(value))
    scales = {
        name: max(-int(row[name].as_tuple().exponent) for row in rows if isinstance(row.get(name), Decimal))
        for name, types in kinds.items()
        if Decimal in types
    }
    return [
        {name: _like(value, kinds.get(name, set()), scales.get(name)) for name, value in r.items()} for r in expected
    ]


def _like(value: Any, kinds: set[type], scale: int | None) -> Any:
    if type(value) in (int, float) and scale is not None:
        number = Decimal(str(value))
        text = f"{number:.{scale}f}"
        return text if number == Decimal(text) else str(value)
    return float(value) if type(value) is int and float in kinds else value
