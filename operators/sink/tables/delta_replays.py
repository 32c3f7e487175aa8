"""Replaces files of a Delta table; only the driver imports it, for it needs deltalake."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction

from dagflow.errors import ANOTHER_TABLE, DagflowError
from dagflow.storage.location import join, name_of
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table


def replays_of(writer: str) -> str:
    """The application under which a table keeps the newest replay of a writer."""
    return f"{writer}/replays"


def missing_in(table: Table, handle: DeltaTable, files: Sequence[PendingFile]) -> list[PendingFile]:
    """The files among some that a version of a table does not have as they were written.

    Raises:
        DeltaError: The table cannot be read.
        DagflowError: No files of the table may be replaced.
    """
    if files and handle.metadata().configuration.get("delta.appendOnly") == "true":
        raise DagflowError(
            f"{table.name} has delta.appendOnly: no files of it may be replaced",
            hint=ANOTHER_TABLE,
        )
    actions = pa.table(handle.get_add_actions())
    sizes = dict(zip(map(name_of, actions["path"].to_pylist()), actions["size_bytes"].to_pylist(), strict=True))
    for path in _with_deleted_rows(handle):
        sizes.pop(name_of(path), None)
    # Their names are unique, and the log escapes the directories.
    return [file for file in files if sizes.get(name_of(file.final_url)) != file.size_bytes]


def _with_deleted_rows(handle: DeltaTable) -> list[str]:
    """The files with rows that another program has deleted without rewriting the files."""
    if "deletionVectors" not in (handle.protocol().writer_features or ()):
        return []
    paths: list[str] = pa.table(handle.deletion_vectors())["filepath"].to_pylist()
    return paths


def removals(table: Table, files: Iterable[PendingFile]) -> list[RemoveAction]:
    """The log's remove actions for files; the files stay until a vacuum."""
    now_ms, root = time.time_ns() // 1_000_000, join(table.location, "")
    return [
        RemoveAction(
            file.final_url.removeprefix(root),
            True,
            now_ms,
            file.size_bytes,
            {} if file.facts is None else file.facts.partition,
        )
        for file in files
    ]
