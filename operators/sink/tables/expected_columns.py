"""Checks the columns that records will have against a table."""

from __future__ import annotations

import pyarrow as pa

from dagflow.errors import DagflowError
from operators.required_columns import require_columns
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.partition_fields import IDENTITY
from operators.sink.tables.table_columns import TableColumns
from operators.sink.tables.table_files import stored_columns
from operators.sink.tables.table_names import require_names
from operators.sink.tables.table_partitions import require_partition_type


def require_takes(table: Table, shape: TableShape, expected: pa.Schema) -> None:
    """Refuse columns with which no record could be written to a table.

    Args:
        table: The table.
        shape: The shape of the table.
        expected: The columns that all records will have, those that the writer adds included.

    Raises:
        LookupError: The table does not exist yet, and a column that it would be partitioned by is missing.
        ValueError: The table cannot have such columns, its rows could not be replaced.
    """
    given = [field for field in expected if not pa.types.is_null(field.type)]
    if (shape.columns is None or table.may_grow) and table.on_new_column not in ("rescue", "ignore"):
        there = () if shape.columns is None else shape.columns.names
        try:
            require_names(table.names(shape), table.name, [each for each in given if each.name not in there], {})
        except DagflowError as error:
            raise ValueError(str(error)) from error
    if shape.columns is not None:
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
