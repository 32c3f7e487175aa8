"""Makes columns of the members of JSON objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from dagflow.api.records import RecordBatch
from operators.reader.columns.literals import values_of, why_not
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import shortened, shown, typed, without_words
from operators.reader.formats.base import Parsed, Rejects
from operators.reader.scanning.column_parsing import parse_columns
from operators.reader.scanning.framing import borders_of, joined


class _Number(str):
    """A number as it is written."""


@dataclass(frozen=True, slots=True)
class JsonMembers:
    """What is needed to make columns of JSON objects.

    Attributes:
        types: The type of each column.
        null_values: Strings that stand for no value.
    """

    types: Mapping[str, ColumnType]
    null_values: tuple[str, ...]

    def parse(self, batch: RecordBatch, rejects: Rejects) -> Parsed:
        """The objects with their columns.

        Args:
            batch: One JSON object each.
            rejects: Takes in those with a member that is not of its column's type, or is there twice.
        """
        parsed = parse_columns(batch, self._read, rejects, self._read_one)
        if self.null_values and parsed.columns is not None:
            columns = [
                without_words(column, self.null_values) if pa.types.is_string(column.type) else column
                for column in parsed.columns.columns
            ]
            parsed = Parsed(parsed.raw, pa.RecordBatch.from_arrays(columns, parsed.columns.schema.names))
        return typed(parsed, self.types, (), rejects)

    def _read_as(self, kind: ColumnType) -> pa.DataType:
        """The type by which Arrow reads a column: what JSON has no values for stands in strings."""
        return pa.string() if kind.is_written_as_text else kind.arrow

    def _read(self, batch: RecordBatch) -> pa.Table:
        """Read objects with Arrow, which refuses all of them, or some that are right, for one that is wrong.

        Raises:
            pyarrow.ArrowInvalid: It does.
        """
        schema = pa.schema([(name, _with_room(self._read_as(kind))) for name, kind in self.types.items()])
        options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch), options)
        if table.num_rows != len(batch):
            raise pa.ArrowInvalid("Not one JSON object")
        for column in table.columns:
            if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
                raise pa.ArrowInvalid("A number is too large")
        table = table.select(list(self.types))
        wanted = pa.schema([(name, self._read_as(kind)) for name, kind in self.types.items()])
        return table if table.schema == wanted else table.cast(wanted)

    def _read_one(self, batch: RecordBatch) -> pa.Table | str:
        """Read an object that Arrow refuses: as a table of one row, or why there is none."""
        record = batch.record[0].as_py()
        members: dict[str, Any] = {}
        for name, value in _members_of(record):
            if name in self.types and name in members:
                return f"member '{name}' is there twice, in: {shortened(record)}"
            members[name] = value
        arrays = {}
        for name, kind in self.types.items():
            found = self._value(members.get(name), kind)
            if isinstance(found, str):
                return f"column '{name}' ({kind.name}): {found}, in: {shortened(record)}"
            arrays[name] = found
        return pa.table(arrays)

    def _value(self, value: Any, kind: ColumnType) -> Any:
        """A value as an array of the type that Arrow reads, or why it is none."""
        read_as = self._read_as(kind)
        is_text = isinstance(value, str) and not isinstance(value, _Number)
        if value is None or (is_text and value in self.null_values):
            return pa.nulls(1, read_as)
        if pa.types.is_string(read_as):
            return pa.array([value]) if is_text else f"{_shown(value)} is no string"
        if pa.types.is_boolean(read_as):
            return pa.array([value]) if isinstance(value, bool) else f"{_shown(value)} is neither true nor false"
        if not (isinstance(value, _Number) or (is_text and pa.types.is_decimal(read_as))):
            return f"{_shown(value)} is no number"
        values = values_of(pa.array([str(value)]), kind)
        return values if values[0].is_valid else f"{_shown(value)} {why_not(str(value), kind)}"


def _with_room(kind: pa.DataType) -> pa.DataType:
    """The type with all digits that there can be: Arrow does not see that a number has too many before the point."""
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def read_options(batch: RecordBatch) -> arrow_json.ReadOptions:
    """Options by which Arrow reads all of a batch at once."""
    borders = borders_of(batch.framed())
    return arrow_json.ReadOptions(use_threads=False, block_size=int(borders[-1] - borders[0]) + 1)


def _members_of(record: bytes) -> list[tuple[str, Any]]:
    """The members of an object, also those that are there twice."""
    found: list[tuple[str, Any]] = json.loads(
        record, parse_int=_Number, parse_float=_Number, object_pairs_hook=lambda pairs: pairs
    )
    return found


def _shown(value: Any) -> str:
    """A value of JSON as messages show it."""
    if isinstance(value, _Number):
        return shortened(value.encode())
    if isinstance(value, str):
        return shown(value)
    return "an array or object" if isinstance(value, list) else json.dumps(value)
