"""Tables in an order that depends on nothing but their rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all tables; columns that some lack are null there.

    Raises:
        ValueError: A column has types that do not go together.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"the batches of this window do not go together: {error}") from error


def ordered(table: pa.Table, first: Sequence[tuple[str, str]]) -> pa.Table:
    """The rows by the given columns, then by all others; nulls come last.

    Rows that are left equal differ in nothing that can be sorted, so that the order is the same whatever order
    they came in.

    Args:
        table: The rows.
        first: Columns with "ascending" or "descending".
    """
    named = {name for name, _ in first}
    rest = [(field.name, "ascending") for field in table.schema if field.name not in named and _is_sortable(field.type)]
    return table.take(pc.sort_indices(table, [*first, *rest]))


def _is_sortable(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def require_columns(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> None:
    """Refuse records that lack a column.

    Raises:
        LookupError: One is missing, with the columns that there are.
    """
    missing = [name for name in names if name not in table.schema.names]
    if missing:
        has = ", ".join(table.schema.names)
        raise LookupError(f"the records have no column '{missing[0]}'; they have {has}")
