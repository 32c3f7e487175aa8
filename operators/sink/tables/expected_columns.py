"""Checks the columns that records will have against a table."""

from __future__ import annotations

import pyarrow as pa

from dagflow.errors import DagflowError
from operators.required_columns import require_columns
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.fitted_columns import goes_into
from operators.sink.tables.nested_types import nullable_type, table_type
from operators.sink.tables.partition_fields import IDENTITY
from operators.sink.tables.table_columns import TableColumns
from operators.sink.tables.table_files import stored_columns
from operators.sink.tables.table_names import require_names
from operators.sink.tables.table_partitions import require_partition_type


def require_types(table: Table, shape: TableShape, expected: pa.Schema) -> None:
    """Refuse columns of which an existing table could take no value.

    Args:
        table: The table.
        shape: The shape of the table.
        expected: The columns whose types are known.

    Raises:
        ValueError: A column has another type there; the message names all such columns.
    """
    there = {} if shape.columns is None else {field.name: nullable_type(field.type) for field in shape.columns}
    others = [
        f"'{field.name}' is {there[field.name]} there, and {field.type} in the records"
        for field in expected
        if field.name in there and not _may_fit(table, field.type, there[field.name])
    ]
    if others:
        raise ValueError(
            f"{table.name} could take no value of some columns: {'; '.join(others)}. give them the types of the table, "
            "with columns of the reader or a cast in a Select, or other names"
        )


def _may_fit(table: Table, kind: pa.DataType, there: pa.DataType) -> bool:
    """Whether a value of a type may fit into a column of another one, or widen it."""
    if pa.types.is_null(kind) or (pa.types.is_nested(kind) and pa.types.is_nested(there)):
        return True
    try:
        kind = table_type(kind, table.column_type)
    except ValueError:
        return True  # no table of the kind has such a column, which is reported when it arrives
    return goes_into(kind, there) or table.wider_type(there, kind) is not None


def require_takes(table: Table, shape: TableShape, expected: pa.Schema) -> None:
    """Refuse columns with which no record could be written to a table.

    Args:
        table: The table.
        shape: The shape of the table.
        expected: The columns that all records will have, those that the writer adds included.

    Raises:
        LookupError: The table does not exist yet, and a column that it would be partitioned by is missing.
        ValueError: The table cannot have such columns, its rows could not be replaced, or it requires another column.
    """
    given = [field for field in expected if not pa.types.is_null(field.type)]
    if (shape.columns is None or table.may_grow) and table.on_new_column not in ("rescue", "ignore"):
        there = () if shape.columns is None else shape.columns.names
        try:
            require_names(table.names(shape), table.name, [each for each in given if each.name not in there], {})
        except DagflowError as error:
            raise ValueError(str(error)) from error
    if shape.columns is not None:
        if missing := [each.name for each in shape.columns if not each.nullable and each.name not in expected.names]:
            raise ValueError(
                f"{table.name} allows no null in column '{missing[0]}', which no record has; "
                "give it a value in a Select, or let the column allow nulls"
            )
        return
    fields = shape.partition_by
    # No rows, so that only the columns are checked.
    columns = TableColumns(
        table.name, table.column_type, None, on_new_column=table.on_new_column, names=table.names(shape)
    )
    rows, _ = columns.fit(pa.RecordBatch.from_pylist([], schema=expected))
    require_columns(rows, [field.column for field in fields])
    table.require_replaceable(rows.schema, fields)
    for field in fields:
        field.values(rows.column(field.column))
        if field.transform == IDENTITY:
            require_partition_type(rows.schema.field(field.column))
    if not (table.stores_partition_columns or table.upsert_by):
        stored_columns(rows.schema, [field.column for field in fields])
