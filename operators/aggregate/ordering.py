"""Puts rows of tables together, and into an order that depends on nothing but the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dagflow.errors import START_OVER


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows.

    Raises:
        ValueError: A column has types that do not go together.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the batches do not go together: {error}; give the column one type, as by a cast to text, and {START_OVER}"
        ) from error


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
            # A negative zero becomes a positive one when something is added.
            same = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, field.type), pc.add(column, 0.0))
            keys = keys.set_column(index, field, same.cast(field.type))
    return keys
