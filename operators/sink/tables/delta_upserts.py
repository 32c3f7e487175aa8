"""Upserts into a Delta table: rows that take the place of those with the same keys; only the driver imports it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, WriterProperties

from dagflow.storage.pending import PendingFile


def upsert(handle: DeltaTable, rows: pa.Table, keys: Sequence[str], properties: CommitProperties) -> None:
    """Replace the rows that have the keys of the given ones, and add the others, in one version of the table.

    Args:
        handle: The table as it was read; the version fails where it has changed since.
        rows: The rows, each key once, with the columns of the table.
        keys: The columns that are compared; a null equals a null.
        properties: What the version says of itself.

    Raises:
        DeltaError: The version was not written, or its outcome is not known.
    """
    quoted = ['"' + key.replace('"', '""') + '"' for key in keys]
    matches = " AND ".join(f"(there.{key} IS NOT DISTINCT FROM given.{key})" for key in quoted)
    merge = handle.merge(
        rows,
        matches,
        source_alias="given",
        target_alias="there",
        commit_properties=properties,
        writer_properties=WriterProperties(compression="ZSTD"),
    )
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def newest_rows(
    files: Sequence[PendingFile], keys: Sequence[str], columns: pa.Schema, partition_by: Sequence[str]
) -> pa.Table:
    """The last row of each key.

    Args:
        files: Files with rows, in order.
        keys: The columns that tell rows apart.
        columns: The columns of the table; what a row lacks is null.
        partition_by: What the table is partitioned by: in such columns an empty text is a null.
    """
    rows = pa.concat_tables([_as_columns(pq.read_table(file.final_url, partitioning=None), columns) for file in files])
    for name in partition_by:
        column = rows[name]
        if pa.types.is_string(column.type):
            position = rows.schema.get_field_index(name)
            rows = rows.set_column(position, name, pc.if_else(pc.equal(column, ""), None, column))
    numbered = rows.select(list(keys)).append_column("", pa.array(np.arange(len(rows))))
    last = numbered.group_by(list(keys)).aggregate([("", "max")])["_max"]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last.to_numpy())))


def _as_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows with all columns of a table, and in their order."""
    found = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in columns
    ]
    return pa.table(found, schema=pa.schema([field.with_nullable(True) for field in columns]))


def remove(files: Sequence[PendingFile]) -> None:
    """Remove files whose rows are in the table; what is left of them does no harm, and a vacuum removes it."""
    for file in files:
        with contextlib.suppress(OSError):
            os.unlink(file.final_url)
