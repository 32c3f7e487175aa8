"""Columns of JSON objects without a declared schema: all members, each with the type that most of its values have."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from dagflow.api.records import RecordBatch
from dagflow.storage.location import redacted
from operators.reader.columns.inference import NUMBERS, Shape, merged_shapes, shape_of, types_of
from operators.reader.columns.json_members import as_written, is_sound, read_options
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import shortened, without_words
from operators.reader.columns.written_values import Number, Object, members_of, name_twice, value_as
from operators.reader.formats.base import Parsed, Rejects
from operators.reader.scanning.column_parsing import reject
from operators.reader.scanning.framing import joined
from operators.rescued_values import RESCUED, rescued_text

_MOST_DIGITS = 600
"""Python may refuse to read an int of more digits."""

_NOTHING = ColumnType("null", pa.null())
"""The type of a member without any value: it conflicts with no type in another batch."""

_EXACT = 1 << 53
"""Whole numbers below this have a double of their own, which no other number is rounded to."""


class FoundMembers:
    """Makes columns of all members of objects; values of another type than most are rescued.

    Guarantee: the columns of a batch depend on its own objects alone. Each value is in its column, or in `_rescued`.

    Args:
        null_values: Strings that stand for no value.
    """

    def __init__(self, null_values: tuple[str, ...]) -> None:
        self._null_values = null_values
        self._words = frozenset(null_values)

    def parse(self, batch: RecordBatch, rejects: Rejects) -> Parsed:
        """The objects with their columns.

        Args:
            batch: Records of one JSON object each.
            rejects: Takes in objects with a duplicate member, also within other members.
        """
        columns = self._of_one_type(batch)
        return self._of_many_types(batch, rejects) if columns is None else Parsed(batch, columns)

    def _of_one_type(self, batch: RecordBatch) -> pa.RecordBatch | None:
        """The columns where all values of each member are of one type, as Arrow finds; None otherwise."""
        try:
            table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch))
            schema = pa.schema([(field.name, as_written(field.type)) for field in table.schema])
            if schema != table.schema:
                options = arrow_json.ParseOptions(explicit_schema=schema)
                table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch), options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(batch) or not table.num_columns or any(map(_has_no_file_type, schema.types)):
            return None
        if RESCUED in schema.names:  # such a member is no column, see _types_of()
            return None
        if not is_sound(table):
            return None
        arrays = [column.combine_chunks() for column in table.columns]
        # Above, a whole number beside fractions may have been rounded.
        if any(map(_may_be_rounded, arrays)):
            return None
        arrays = [without_words(each, self._null_values) if pa.types.is_string(each.type) else each for each in arrays]
        return pa.RecordBatch.from_arrays(arrays, table.schema.names)

    def _of_many_types(self, batch: RecordBatch, rejects: Rejects) -> Parsed:
        """The columns with the types that most values have, and a column of the other values."""
        kept: list[int] = []
        objects: list[Object] = []
        for index, record in enumerate(batch.to_pylist()):
            members = members_of(record)
            twice = name_twice(members)
            if twice is not None:
                reject(batch, index, f"member '{twice}' is there twice, in: {shortened(record)}", rejects)
            else:
                kept.append(index)
                objects.append(members)
        raw = batch if len(kept) == len(batch) else batch.take(pa.array(kept, pa.int64()).to_numpy())
        if not kept:
            return Parsed(raw)
        types = self._types_of(objects)
        values: dict[str, list[Any]] = {name: [None] * len(kept) for name in types}
        rescued: dict[int, dict[str, Any]] = {}
        for row, members in enumerate(objects):
            for name, value in members:
                if isinstance(value, str) and not isinstance(value, Number) and value in self._words:
                    continue
                try:
                    found = value_as(value, types.get(name, _NOTHING), is_exact=True)
                except ValueError:
                    rescued.setdefault(row, {})[name] = _plain_value(value)
                    continue
                if found is not None:
                    values[name][row] = found
        arrays = [pa.array(own, types[name].arrow) for name, own in values.items()]
        names = list(values)
        if rescued or not names:
            offsets = raw.offsets().tolist()
            texts: list[str | None] = [None] * len(kept)
            for row, own in rescued.items():
                block = raw.block_of(row)
                file = None if block is None else redacted(block.url)
                texts[row] = rescued_text(own, file, offsets[row])
            arrays.append(pa.array(texts, pa.string()))
            names.append(RESCUED)
        return Parsed(raw, pa.RecordBatch.from_arrays(arrays, names))

    def _types_of(self, objects: list[Object]) -> dict[str, ColumnType]:
        """The type of each member: that of most of its values, or the first of those that are equally frequent.

        A member with the name of the column of rescued values has none.
        """
        shapes: dict[str, dict[str, tuple[int, Shape]]] = {}
        for members in objects:
            for name, value in ((name, value) for name, value in members if name != RESCUED):
                own = shapes.setdefault(name, {})
                if (shape := shape_of(value, self._words)) is not None:
                    count, before = own.get(_kind(shape), (0, None))
                    own[_kind(shape)] = count + 1, merged_shapes(before, shape)
        most: dict[str, Shape] = {}
        for name, own in shapes.items():
            counted = [(count, _with_members(shape)) for count, shape in _joined_numbers(own)]
            found = [each for each in counted if each[1] is not None]
            most[name] = max(found, key=lambda each: each[0], default=(0, None))[1]
        known = types_of({name: shape for name, shape in most.items() if shape is not None})
        return {name: known.get(name, _NOTHING) for name in most}


def _has_no_file_type(kind: pa.DataType) -> bool:
    """Whether arrays or objects hold only nulls, which Arrow cannot make a column of, or have no members."""
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    if pa.types.is_struct(kind) and not inner:
        return True
    return any(pa.types.is_null(each) or _has_no_file_type(each) for each in inner)


def _may_be_rounded(array: pa.Array) -> bool:
    """Whether a number is so large that it may have been a whole one with other digits, also within others."""
    if pa.types.is_list(array.type):
        return _may_be_rounded(array.flatten())
    if pa.types.is_struct(array.type):
        return any(map(_may_be_rounded, array.flatten()))
    return pa.types.is_floating(array.type) and bool((pc.max(pc.abs(array)).as_py() or 0) >= _EXACT)


def _with_members(shape: Shape) -> Shape:
    """A shape without the objects in it that have no members, which neither tables nor Parquet have; None for nothing.

    They get no other type instead, which would conflict with that of objects with members in another batch.
    """
    if not isinstance(shape, dict):
        return shape
    if "list" in shape:
        element = _with_members(shape["list"])
        return {"list": element} if element is not None or shape["list"] is None else None
    members = {name: (_with_members(each), each) for name, each in shape["struct"].items()}
    kept = {name: own for name, (own, before) in members.items() if own is not None or before is None}
    return {"struct": kept} if kept else None


def _kind(shape: Shape) -> str:
    """A key that is equal for shapes that are merged into one."""
    return next(iter(shape)) if isinstance(shape, dict) else str(shape)


def _joined_numbers(own: dict[str, tuple[int, Shape]]) -> Iterable[tuple[int, Shape]]:
    """How many values have each shape, where all numbers have one.

    That shape is the one of most whole numbers, so that a few large ones do not change the type of all others; or
    double where some have fractions.

    Args:
        own: Counts by kind, where each shape of numbers is a kind.
    """
    counts = {kind: count for kind, (count, _) in own.items() if kind in NUMBERS}
    if not counts:
        return own.values()
    shape = "double" if "double" in counts else max(counts, key=counts.__getitem__)
    number = sum(counts.values()), shape
    return dict(("number", number) if kind in counts else (kind, each) for kind, each in own.items()).values()


def _plain_value(value: Any) -> Any:
    """A value as in JSON; a number that Python cannot hold becomes text."""
    if isinstance(value, Object):
        return {name: _plain_value(each) for name, each in value}
    if isinstance(value, list):
        return [_plain_value(each) for each in value]
    if isinstance(value, Number):
        if value.lstrip("-").isdigit():
            return int(value) if len(value) <= _MOST_DIGITS else str(value)
        return float(value) if math.isfinite(float(value)) else str(value)
    return value
