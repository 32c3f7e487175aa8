"""Puts the rows of tables into an order that depends on nothing but the rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows.

    Raises:
        ValueError: A column has types that do not go together.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"the batches do not go together: {error}") from error


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
