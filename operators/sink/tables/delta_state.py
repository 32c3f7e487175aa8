"""A version of a Delta table, and the transactions that it takes; the driver's alone, for it needs deltalake."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from dagflow.api.transactions import DecidedReplay, DecidedWindow, ReplayableState
from dagflow.errors import DagflowError, StorageError
from dagflow.storage.location import join, redacted
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table
from operators.sink.tables.delta_log import CONFIGURATION, DeltaLog, columns_of, refusals
from operators.sink.tables.delta_replays import missing_in, removals, replays_of
from operators.sink.tables.delta_statistics import statistics_text
from operators.sink.tables.delta_upserts import upsert
from operators.sink.tables.merged_columns import facts_of_file, merged_columns
from operators.sink.tables.upserted_rows import newest_rows, remove

logger = logging.getLogger(__name__)

_CLEANUP_VERSIONS = 100
"""Transactions between two searches of the log for expired entries: deltalake would search in each transaction, in
which 2,000 entries took 20 ms.
"""

_HISTORY = 200
"""Number of versions in which the decision of a window is looked for: it is asked for right after a crash."""


class DeltaState(ReplayableState):
    """A version of a table, or none yet."""

    def __init__(self, log: DeltaLog, writer: str, handle: DeltaTable | None) -> None:
        self._log = log
        self._table = log.table
        self._writer = writer
        self._handle = handle
        # Read now: the target updates the handle when it reads the log again.
        self._marker = 0 if handle is None else handle.transaction_version(writer) or 0
        self._version = -1 if handle is None else handle.version()

    @property
    def marker(self) -> int:
        """The version of the writer's transactions."""
        return self._marker

    @property
    def version(self) -> str:
        """The version of the table."""
        return "" if self._handle is None else f"version {self._version}"

    def decision(self) -> str | None:
        """The commit info of the newest window; None if it is no longer among the newest versions."""
        if self._handle is None:
            return None
        # Mostly it is the newest version, and nothing else is read.
        for versions in (1, _HISTORY):
            with refusals(self._table):
                entries = self._handle.history(versions)
            for entry in entries:
                found: str | None = entry.get("dagflow.decision")
                if found is not None and entry.get("dagflow.writer") == self._writer:
                    return found
        return None

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add the files in one version; the first one creates the table."""
        table, files = self._table, [file for window in windows for file in window.files]
        last, keys = windows[-1], facts_of_file(windows[-1].files[0]).keys
        self._require_unmoved()
        properties = CommitProperties(
            app_transactions=[Transaction(self._writer, last.window_id)],
            custom_metadata={
                "dagflow.writer": self._writer,
                "dagflow.window": str(last.window_id),
                "dagflow.decision": last.decision,
            },
            # Rows of other writers are read again before they are replaced.
            max_commit_retries=0 if keys else None,
        )
        known = pa.schema([]) if self._handle is None else columns_of(self._handle)
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(table, files, known, may_grow=True)
        actions = [_add_action(table, file, columns) for file in files]
        partition_by = list(facts_of_file(files[0]).partition)
        if self._handle is None and keys:
            with refusals(table):
                self._handle = self._log.create(columns, partition_by)
            known = columns
        if self._handle is None:
            with refusals(table):
                create_table_with_add_actions(
                    table.location,
                    Schema.from_arrow(columns),
                    actions,
                    mode="error",
                    partition_by=partition_by,
                    configuration=CONFIGURATION,
                    storage_options=self._log.options(),
                    commit_properties=properties,
                )
            return
        partition_by = self._require_partitioning(self._handle, files)
        handle = self._grown(self._handle, columns, known)
        if keys:
            with refusals(table):
                rows = newest_rows(self._log.storage, files, keys, columns_of(handle))
                upsert(handle, rows, keys, properties)
            remove(self._log.storage, files)
            return
        with refusals(table):
            _append(handle, [*actions], partition_by, properties)

    def _require_unmoved(self) -> None:
        if self._handle is not None and self._handle.version() != self._version:
            raise StorageError(f"it has gone on from {self.version}", url=self._table.name)

    def _require_partitioning(self, handle: DeltaTable, files: Sequence[PendingFile]) -> list[str]:
        """The columns that the table is partitioned by.

        Raises:
            DagflowError: Some files were decided for another partitioning.
        """
        partition_by = list(handle.metadata().partition_columns)
        if other := [file for file in files if list(facts_of_file(file).partition) != partition_by]:
            decided = ", ".join(facts_of_file(other[0]).partition)
            raise DagflowError(
                f"{self._table.name} is partitioned by {', '.join(partition_by) or 'nothing'}, and "
                f"{redacted(other[0].final_url)} was decided for {decided or 'nothing'}"
            )
        return partition_by

    @property
    def replays(self) -> int:
        """The version of the writer's transactions that replace files; where there are none, all of the log is read."""
        self._require_unmoved()
        return 0 if self._handle is None else self._handle.transaction_version(replays_of(self._writer)) or 0

    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        """The files that the version lacks, or that have another length or deleted rows there."""
        if self._handle is None:
            return list(files)
        with refusals(self._table):
            return missing_in(self._table, self._handle, files)

    def replace(self, replay: DecidedReplay) -> None:
        """Replace the files in one version."""
        table, files = self._table, list(replay.added)
        self._require_unmoved()
        known = pa.schema([]) if self._handle is None else columns_of(self._handle)
        columns = merged_columns(table, files, known, may_grow=True)
        with refusals(table):
            if self._handle is None:
                self._handle = self._log.create(columns, list(facts_of_file(files[0]).partition))
                known = columns
            partition_by = self._require_partitioning(self._handle, files)
            handle = self._grown(self._handle, columns, known)
            had = handle.transaction_version(replays_of(self._writer)) or 0
            if had >= replay.number or missing_in(table, handle, replay.removed):
                raise StorageError("another program has changed it meanwhile", url=table.name)
            actions: list[AddAction | RemoveAction] = [*removals(table, replay.removed)]
            actions += [_add_action(table, file, columns) for file in files]
            properties = CommitProperties(
                app_transactions=[Transaction(replays_of(self._writer), replay.number)],
                custom_metadata={"dagflow.writer": self._writer, "dagflow.replay": str(replay.number)},
                max_commit_retries=0,  # another program may have changed the files that are removed
            )
            _append(handle, actions, partition_by, properties)

    def _grown(self, handle: DeltaTable, columns: pa.Schema, known: pa.Schema) -> DeltaTable:
        """Add new columns, and new members of columns, to the table, and open it anew.

        Raises:
            StorageError: The columns could not be added, or the marker has changed meanwhile.
        """
        there = {field.name: field.type for field in known}
        new = [field for field in columns if there.get(field.name) != field.type]
        if not new:
            return handle
        with refusals(self._table):
            # Members that a column has already are left as they are.
            fields = Schema.from_arrow(pa.schema(new)).fields
            DeltaTable(self._table.location, storage_options=self._log.options()).alter.add_columns(fields)
        logger.info("columns were added table=%s columns=%s", self._table.name, [field.name for field in fields])
        found = self._log.opened()
        if found is None or (found.transaction_version(self._writer) or 0) != self.marker:
            raise StorageError("another driver has added a window meanwhile", url=self._table.name)
        grown = columns_of(found)
        if any(grown.field(field.name).type != field.type for field in columns):
            raise StorageError("another program has added a column of another type", url=self._table.name)
        return found


def _append(
    handle: DeltaTable,
    actions: list[AddAction | RemoveAction],
    partition_by: list[str],
    properties: CommitProperties,
) -> None:
    """Write one version, a checkpoint if that is due, and seldom clean the log of old entries."""
    is_due = (handle.version() + 1) % _CLEANUP_VERSIONS == 0
    # With the table's own schema: deltalake silently drops columns that the schema lacks.
    handle.create_write_transaction(
        actions,
        "append",
        handle.schema(),
        partition_by=partition_by,
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=None if is_due else False),
    )


def _add_action(table: Table, file: PendingFile, columns: pa.Schema) -> AddAction:
    """The log's add action for a file of a table with these columns.

    Raises:
        DagflowError: The file is outside of the table.
    """
    root, facts = join(table.location, ""), facts_of_file(file)
    if not file.final_url.startswith(root):
        raise DagflowError(
            f"{redacted(file.final_url)} was decided for another table than {table.name}",
            hint="let the app name the table that it named before, until the window is published",
        )
    path = file.final_url.removeprefix(root)  # deltalake escapes the escapes of names
    return AddAction(
        path, file.size_bytes, facts.partition, time.time_ns() // 1_000_000, True, statistics_text(file, facts, columns)
    )
