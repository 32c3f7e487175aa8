"""Puts rows of tables together, and into an order that depends on nothing but the rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dagflow.errors import START_OVER
from operators.expressions.sql_types import common_type, normal_type


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows.

    Raises:
        ValueError: A column has types that do not go together.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # Arrow does not convert whole numbers to a decimal of more digits than the decimals that are there
    try:
        return pa.concat_tables(_with_common_decimals(tables), promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the batches do not go together: {error}; give the column one type, as by a cast to text, and {START_OVER}"
        ) from error


def _with_common_decimals(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with one decimal type for each column that has whole numbers in some and decimals in others.

    Raises:
        pa.ArrowInvalid: A value has more digits than a decimal.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    common = {name: _common_decimal(found) for name, found in types.items()}
    return [
        table.cast(pa.schema([field.with_type(common[field.name] or field.type) for field in table.schema]))
        for table in tables
    ]


def _common_decimal(types: Collection[pa.DataType]) -> pa.DataType | None:
    """The decimal type for whole numbers and decimals; None if not both occur, or another type does."""
    numbers = [kind for kind in types if not pa.types.is_null(kind)]
    if not all(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) for kind in numbers):
        return None
    if len({pa.types.is_integer(kind) for kind in numbers}) != 2:
        return None
    return functools.reduce(common_type, map(normal_type, numbers))


def ordered(table: pa.Table, first: Sequence[tuple[str, str]]) -> pa.Table:
    """Sort rows by the given columns, then by all others; nulls come last.

    Rows that are still equal then differ in nothing that can be sorted, so the result does not depend on the order
    in which the rows came.

    Args:
        table: The rows.
        first: Columns with "ascending" or "descending".
    """
    named = {name for name, _ in first}
    rest = [(field.name, "ascending") for field in table.schema if field.name not in named and _is_sortable(field.type)]
    return table.take(pc.sort_indices(table, [*first, *rest]))


def _is_sortable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def with_equal_keys(keys: pa.Table, names: Sequence[str]) -> pa.Table:
    """Give equal values of columns equal bits, by which they are grouped: one zero and one NaN."""
    for index, field in enumerate(keys.schema):
        if field.name in names and (pa.types.is_float32(field.type) or pa.types.is_float64(field.type)):
            column = keys.column(index)
            # Adding zero makes a negative zero a positive one.
            same = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, field.type), pc.add(column, 0.0))
            keys = keys.set_column(index, field, same.cast(field.type))
    return keys
