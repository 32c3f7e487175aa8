"""Checks for the columns that an operator needs in the records that it takes in."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dagflow.api.records import RecordBatch


def require_columns(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> None:
    """Refuse records that lack a column.

    Raises:
        LookupError: A column is missing; the message lists the columns of the records.
    """
    require_names(rows.schema, names)


def require_names(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse columns if a name is missing among them.

    Raises:
        LookupError: A name is missing; the message lists the columns.
    """
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise LookupError(f"the records have no column '{missing[0]}'; they have {', '.join(schema.names)}")


def column_of(batch: RecordBatch, name: str) -> pa.Array:
    """A column of records; `record` is the whole of a raw record.

    Raises:
        LookupError: The records have no such column.
    """
    rows = batch.to_arrow()
    if not len(batch):
        # A block without records is announced by an empty raw batch, whatever the columns of its format are.
        return pa.nulls(0)
    require_columns(rows, [name])
    return rows.column(name)
