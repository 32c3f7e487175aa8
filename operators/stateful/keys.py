"""The keys of records: the values of a column."""

from __future__ import annotations

import pyarrow as pa

from dagflow.api.records import RecordBatch


def column_of(batch: RecordBatch, name: str) -> pa.Array:
    """The column that holds the keys; `record` is the whole of a raw record.

    Raises:
        LookupError: There is no such column.
    """
    columns = batch.to_arrow()
    if name not in columns.schema.names:
        raise LookupError(f"there is no column '{name}'; the records have {', '.join(columns.schema.names)}")
    return columns.column(name)
