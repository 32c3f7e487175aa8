"""Upserts into a Delta table, by deltalake's merge; only the driver imports it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties


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
