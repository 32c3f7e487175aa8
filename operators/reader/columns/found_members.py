"""Columns of JSON objects without a declared schema: all members, each with the type that most of its values have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from dagflow.storage.location import as_text
from operators.found_values import FOUND, MAX_DEPTH, Census, fitted, is_deep, is_deep_type, number_of, type_of_most
from operators.reader.columns.exact_casts import require_sound
from operators.reader.columns.json_members import as_written, read_options
from operators.reader.columns.typing import in_records, without_refused, without_words
from operators.reader.columns.written_values import (
    Number,
    Object,
    all_members,
    members_of,
    name_twice,
    without_collection,
)
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.framing import joined
from operators.rescued_values import RESCUED, rescued_text

_EXACT = 1 << 53
"""Whole numbers below this have a double of their own, which no other number is rounded to."""


class FoundMembers:
    """Makes columns of all members of objects; values of another type than most are rescued.

    Columns are in the order of the first records that have values in them. Members of objects are in the order of
    their names. A part of a value that gives no type to anything, such as an empty array, is rescued by itself where
    no other value gives it a type.

    Guarantee: the columns of a batch depend on its own objects alone. Each value is in its column, or in `_rescued`,
    or has a part in both.
    """

    def __init__(self, null_values: tuple[str, ...]) -> None:
        self._words = frozenset(null_values)

    def parse(self, batch: RecordBatch, rejects: ByteAccounting) -> Parsed:
        """The objects with their columns.

        Rejects take in objects with a duplicate member, also within other members, and those that are nested too
        deeply.
        """
        columns = self._of_one_type(batch)
        parsed = self._of_many_types(batch, rejects) if columns is None else Parsed(batch, columns)
        return Parsed(parsed.raw, _marked(parsed.columns)) if parsed.columns is not None else parsed

    def _of_one_type(self, batch: RecordBatch) -> pa.RecordBatch | None:
        """The columns where all values of each member are of one type, as Arrow finds; None otherwise."""
        try:
            table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch))
            if any(map(is_deep_type, table.schema.types)):
                return None
            schema = pa.schema([(field.name, as_written(field.type)) for field in table.schema])
            if schema != table.schema:
                options = arrow_json.ParseOptions(explicit_schema=schema)
                table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch), options)
            # Arrow loses nulls before the first value whose type it infers.
            require_sound(table.columns)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(batch) or not table.num_columns or any(map(_has_no_file_type, schema.types)):
            return None
        if RESCUED in schema.names:  # such a member is no column, see _types_of()
            return None
        arrays = [column.combine_chunks() for column in table.columns]
        # Above, a whole number beside fractions may have been rounded.
        if any(map(_may_be_rounded, arrays)):
            return None
        ordered = [_in_order(without_words(array, self._words)) for array in arrays]
        found = dict(zip(table.schema.names, ordered, strict=True))
        firsts = {name: pc.index(column.is_valid(), value=True).as_py() for name, column in found.items()}
        names = _in_order_of_records(batch, firsts)
        return pa.RecordBatch.from_arrays([found[name] for name in names], names)

    @without_collection()
    def _of_many_types(self, batch: RecordBatch, rejects: ByteAccounting) -> Parsed:
        reasons: dict[int, str] = {}
        objects: list[Object] = []
        for index, members in enumerate(all_members(batch.to_pylist())):
            if (reason := _why_not(members)) is not None:
                reasons[index] = reason
            else:
                objects.append(members)
        raw = without_refused(batch, in_records(reasons, batch), rejects)
        if not objects:
            return Parsed(raw)
        rows = [{name: self._value(value) for name, value in members} for members in objects]
        types = _types_of(rows)
        firsts = dict.fromkeys(types, -1)
        values: dict[str, list[Any]] = {name: [None] * len(objects) for name in types}
        rescued: dict[int, dict[str, Any]] = {}
        for row, named in enumerate(rows):
            for name, value in named.items():
                if value is not None and firsts.get(name) == -1:
                    firsts[name] = row
                try:
                    fit, rest = fitted(value, types.get(name))
                except ValueError:
                    fit, rest = None, value
                if fit is not None:
                    values[name][row] = fit
                if rest is not None:
                    rescued.setdefault(row, {})[name] = rest
        names = _in_order_of_records(raw, firsts)
        arrays = {name: pa.array(values[name], types[name] or pa.null()) for name in names}
        if rescued or not arrays:
            offsets, blocks = raw.offsets().tolist(), raw.blocks_of_records()
            texts: list[str | None] = [None] * len(objects)
            for row, rest in rescued.items():
                file = None if blocks[row] is None else as_text(blocks[row].url)
                texts[row] = rescued_text(rest, file, offsets[row])
            arrays[RESCUED] = pa.array(texts, pa.string())
        return Parsed(raw, pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))

    def _value(self, value: Any) -> Any:
        is_text = isinstance(value, str) and not isinstance(value, Number)
        return None if is_text and value in self._words else _plain_value(value)


def _why_not(members: Object) -> str | None:
    """Why an object is refused; None where it is taken."""
    if any([is_deep(value) for _, value in members if isinstance(value, list)]):
        return f"arrays and objects are nested more than {MAX_DEPTH} levels deep"
    twice = name_twice(members)
    return None if twice is None else f"member '{twice}' is there twice"


def _types_of(rows: list[dict[str, Any]]) -> dict[str, pa.DataType | None]:
    """The type of each member: that of most of its values.

    A member with the name of the column of rescued values has none.
    """
    counted: dict[str, Census] = {}
    for members in rows:
        for name, value in members.items():
            if name != RESCUED:
                counted.setdefault(name, Census()).add(value)
    return {name: type_of_most(census) for name, census in counted.items()}


def _marked(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Columns that show a table that their types were found."""
    return columns.cast(pa.schema([field.with_metadata(FOUND) for field in columns.schema]))


def _in_order_of_records(batch: RecordBatch, firsts: dict[str, int]) -> list[str]:
    """The names of columns in an order that cuts do not change."""
    names: list[str] = []
    for row in sorted({*firsts.values()} - {-1}):
        beginning = [name for name, first in firsts.items() if first == row]
        if len(beginning) > 1:
            written = [name for name, _ in members_of(batch.take(np.array([row])).to_pylist()[0])]
            beginning.sort(key=written.index)
        names += beginning
    return [*names, *(name for name, first in firsts.items() if first == -1)]


def _in_order(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_list(kind) and pa.types.is_nested(kind.value_type):
        items = _in_order(column.values)
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(column.offsets, items, mask=mask)
    if not pa.types.is_struct(kind):
        return column
    names = sorted(field.name for field in kind)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays([_in_order(column.field(name)) for name in names], names, mask=mask)


def _has_no_file_type(kind: pa.DataType) -> bool:
    """Whether arrays or objects hold only nulls, which Arrow cannot make a column of, or have no members."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    if pa.types.is_struct(kind) and not inner:
        return True
    return any(pa.types.is_null(part) or _has_no_file_type(part) for part in inner)


def _may_be_rounded(array: pa.Array) -> bool:
    """Whether a number is so large that it may have been a whole one with other digits, also within others."""
    if pa.types.is_list(array.type):
        return _may_be_rounded(array.flatten())
    if pa.types.is_struct(array.type):
        return any(map(_may_be_rounded, array.flatten()))
    return pa.types.is_floating(array.type) and bool((pc.max(pc.abs(array)).as_py() or 0) >= _EXACT)


def _plain_value(value: Any) -> Any:
    """A value as Python has it; a number that no type holds is marked as such."""
    if isinstance(value, Object):
        return {name: _plain_value(member) for name, member in value}
    if isinstance(value, list):
        return [_plain_value(item) for item in value]
    return number_of(value) if isinstance(value, Number) else value
