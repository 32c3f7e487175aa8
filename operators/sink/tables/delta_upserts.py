"""Upserts into a Delta table, by deltalake's merge; only the driver imports it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties

from operators.sink.tables.nested_types import nulls_of


def upsert(handle: DeltaTable, rows: pa.Table, keys: Sequence[str], properties: CommitProperties) -> None:
    """Replace the rows that have the keys of the given ones, and add the others, in one version of the table.

    Args:
        handle: The table as it was read; the version fails if the table has changed since.
        rows: The rows, each key once, with the columns of the table.
        keys: The columns that are compared; a null equals a null.
        properties: Properties of the version.

    Raises:
        DeltaError: The version was not written, or its outcome is not known.
    """
    # An update would write the new row once for each row that has its key, and a table of others may have several. So
    # one copy of the row deletes all of these, and the other copy, which matches nothing, is inserted.
    is_new = max(rows.column_names, key=len) + "_"
    keys_alone = [
        rows[name] if name in keys else nulls_of(len(rows), rows.field(name).type) for name in rows.column_names
    ]
    copies = [
        rows.append_column(is_new, pa.repeat(True, len(rows))),
        pa.table(keys_alone, schema=rows.schema).append_column(is_new, pa.repeat(False, len(rows))),
    ]
    same = [f"(there.{_quoted(key)} IS NOT DISTINCT FROM given.{_quoted(key)})" for key in keys]
    merge = handle.merge(
        pa.concat_tables(copies),
        " AND ".join([*same, f"NOT given.{_quoted(is_new)}"]),
        source_alias="given",
        target_alias="there",
        commit_properties=properties,
        writer_properties=WriterProperties(compression="ZSTD"),
    )
    values = {_quoted(name): f"given.{_quoted(name)}" for name in rows.column_names}
    merge.when_matched_delete().when_not_matched_insert(values, f"given.{_quoted(is_new)}").execute()


def _quoted(name: str) -> str:
    """A name as expressions of deltalake take it."""
    return '"' + name.replace('"', '""') + '"'
