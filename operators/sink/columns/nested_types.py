"""Types of columns, also nested ones whose members may be required; columns of such types, and wider types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.partitioning import BYTES, DATES, TEXT, TIMES, family_of_type
from dagflow.late import compute as pc

ColumnTypes = Callable[[pa.DataType], pa.DataType]
"""Gives the type that a kind of table has for one of Arrow's; raises ValueError if it has none."""


def table_type(kind: pa.DataType, leaf: ColumnTypes) -> pa.DataType:
    """The type of a new table's column, also within lists, structs and maps: any member may be null."""
    return _rebuilt(kind, leaf, lambda part: True)


def exact_type(kind: pa.DataType, leaf: ColumnTypes) -> pa.DataType:
    """As table_type, but members that are required in the given type stay required."""
    return _rebuilt(kind, leaf, lambda part: bool(part.nullable))


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type in which any member may be null."""
    return table_type(kind, lambda leaf: leaf)


WiderType = Callable[[pa.DataType, pa.DataType], pa.DataType | None]
"""Gives the type that takes all values of two types, neither of which has parts; None where there is none."""


def joined_type(
    kind: pa.DataType, other: pa.DataType, wider: WiderType, *, takes_members: bool = True
) -> pa.DataType | None:
    """The type that takes all values of two types, or None; where either allows nulls, the joined one does.

    With takes_members structs of the first type get the members that they lack, after their own.
    """
    own, others = parts_of(kind), {part.name: part for part in parts_of(other)}
    if not (own or others) or kind.id != other.id:
        return kind if kind == other else wider(kind, other)
    parts = []
    for part in own:
        another = others.pop(part.name, None)
        joined = (
            part.type if another is None else joined_type(part.type, another.type, wider, takes_members=takes_members)
        )
        if joined is None:
            return None
        parts.append(pa.field(part.name, joined, part.nullable or another is None or another.nullable))
    if others and not takes_members:
        return None
    return of_parts(kind, [*parts, *(part.with_nullable(True) for part in others.values())])


def _rebuilt(kind: pa.DataType, leaf: ColumnTypes, is_nullable: Callable[[pa.Field], bool]) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _rebuilt(kind.value_type, leaf, is_nullable)
    if not (pa.types.is_struct(kind) or parts_of(kind)):
        return leaf(kind)
    parts = [pa.field(part.name, _rebuilt(part.type, leaf, is_nullable), is_nullable(part)) for part in parts_of(kind)]
    return of_parts(kind, parts)


def parts_of(kind: pa.DataType) -> list[pa.Field]:
    """The members of a struct, the items of a list, or keys and values of a map; the latter have one name in all."""
    if not kind.num_fields:
        return []
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return [kind.value_field.with_name("item")]
    if types.is_map(kind):
        return [kind.key_field.with_name("key"), kind.item_field.with_name("value")]
    return list(kind) if types.is_struct(kind) else []


def of_parts(kind: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    """A nested type of the kind of another one with other parts, see parts_of(); lists become those of Parquet."""
    if pa.types.is_map(kind):
        return pa.map_(parts[0].with_nullable(False), parts[1])
    return pa.struct(parts) if pa.types.is_struct(kind) else pa.list_(parts[0])


def with_required(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """A column of `nullable_type(kind)` in a type with required members; the name is that in messages.

    A cast would refuse the column if a struct is null: its members are then null as well, which is allowed.
    """
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        parts = [_member(column, part, field, name) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    parts = parts_of(kind)
    if pa.types.is_map(kind):
        # Lists have functions that respect slices, and leave out values behind a null.
        column = column.cast(pa.list_(pa.struct(parts_of(column.type))))
    lengths = column.value_lengths().fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = column.flatten()
    if pa.types.is_map(kind):
        keys, items = with_required(values, pa.struct(parts), name).flatten()
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=column.is_null())
    if values.null_count and not parts[0].nullable:
        raise _null_error(f"{name}.item", values.null_count)
    values = with_required(values, parts[0].type, f"{name}.item")
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=column.is_null())


def _member(column: pa.Array, part: pa.Array, field: pa.Field, name: str) -> pa.Array:
    path = f"{name}.{field.name}"
    if not field.nullable and part.null_count > column.null_count:
        raise _null_error(path, part.null_count - column.null_count)
    part = with_required(part, field.type, path)
    if field.nullable or not part.null_count:
        return part
    # Parquet has no null for a required member, so below a null there is some value, which no reader shows.
    some = pa.array([None], pa.struct([field])).field(0)
    rows = pc.if_else(part.is_valid(), pa.array(np.arange(len(part))), len(part))
    return pa.concat_arrays([part, some]).take(rows)


def forbidden_nulls(
    column: pa.Array, field: pa.Field, path: str, rows: npt.NDArray[np.int64] | None = None
) -> dict[int, str]:
    """The rows with a null that a field does not allow, each with the path of the first such part.

    The values are in `nullable_type(field.type)`; they may be of given rows, or one of each row.
    """
    if field.nullable and column.type == field.type:
        return {}
    rows = np.arange(len(column)) if rows is None else rows
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    found = {} if field.nullable else dict.fromkeys(rows[~is_valid].tolist(), path)
    if column.type == field.type or not is_valid.any():
        return found
    rows, column, parts = rows[is_valid], column.drop_null(), parts_of(field.type)
    if not pa.types.is_struct(field.type):
        if pa.types.is_map(field.type):
            column = column.cast(pa.list_(pa.struct(parts_of(column.type))))
        rows = np.repeat(rows, column.value_lengths().to_numpy())
        values = [column.flatten()] if len(parts) == 1 else column.flatten().flatten()
    else:
        values = column.flatten()
    for value, part in zip(values, parts, strict=True):
        found = forbidden_nulls(value, part, f"{path}.{part.name}", rows) | found
    return found


def _null_error(path: str, count: int) -> ValueError:
    return ValueError(f"no null is allowed in '{path}', and {count} of its values are null")


def nulls_of(count: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls, in a type that may have required members."""
    return with_required(pa.nulls(count, nullable_type(kind)), kind, "")


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def with_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the types of a schema, which may have required members."""
    columns = []
    for field in schema:
        chunks = rows[field.name].cast(nullable_type(field.type)).chunks
        columns.append(pa.chunked_array([with_required(each, field.type, field.name) for each in chunks], field.type))
    return pa.table(columns, schema=schema)


def with_columns(rows: Rows, schema: pa.Schema) -> Rows:
    """Rows with the columns of a schema, as wide as it has them, and nulls in those that they lack."""
    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns = [
        given[field.name].cast(field.type) if field.name in given else nulls_of(rows.num_rows, field.type)
        for field in schema
    ]
    return type(rows).from_arrays(columns, schema=schema)


_WHOLE = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64(), 128: pa.decimal128(20, 0)}
"""Types of whole numbers by their bits; the last one has those of uint64."""

_EXACT_IN_DOUBLE = 32
"""Bits of whole numbers that a double holds without loss."""

_MOST_DIGITS = 38


def common_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that takes all values of two types, or None if there is none."""
    types = pa.types
    if kind == other:
        return kind
    if types.is_decimal(kind) and types.is_decimal(other):
        return _common_decimal(kind, other)
    if types.is_date(kind) and types.is_timestamp(other):
        return other if other.tz is None else None
    if types.is_date(other) and types.is_timestamp(kind):
        return common_type(other, kind)
    if types.is_signed_integer(kind) and types.is_signed_integer(other):
        return max(kind, other, key=lambda each: each.bit_width)
    if types.is_floating(kind) and types.is_floating(other):
        return max(kind, other, key=lambda each: each.bit_width)
    for whole, number in ((kind, other), (other, kind)):
        if types.is_signed_integer(whole) and whole.bit_width <= _EXACT_IN_DOUBLE and types.is_float64(number):
            return number
    return None


def common_type_of_readers(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """As common_type, where files of both types are read together: by DuckDB, polars, pyarrow and Spark.

    Not all of them read dates as timestamps, and decimals with other digits behind the point.
    """
    if pa.types.is_date(kind) or pa.types.is_date(other):
        return kind if kind == other else None
    if pa.types.is_decimal(kind) and pa.types.is_decimal(other) and kind.scale != other.scale:
        return None
    return common_type(kind, other)


def _common_decimal(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(kind.scale, other.scale)
    digits = scale + max(kind.precision - kind.scale, other.precision - other.scale)
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None


def stored_type(kind: pa.DataType, least_bits: int, time: pa.DataType) -> pa.DataType | None:
    """The type in which values are stored that are not nested; None where tables have no such type."""
    types = pa.types
    if types.is_integer(kind):
        return _WHOLE[max(kind.bit_width * (1 if types.is_signed_integer(kind) else 2), least_bits)]
    if types.is_boolean(kind) or types.is_floating(kind):
        return pa.float32() if types.is_float16(kind) else kind
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_decimal(kind):
        has_form = kind.precision <= _MOST_DIGITS and 0 <= kind.scale <= kind.precision
        return pa.decimal128(kind.precision, kind.scale) if has_form else None
    return {TEXT: pa.string(), BYTES: pa.binary(), DATES: pa.date32(), TIMES: time}.get(family_of_type(kind) or "")
