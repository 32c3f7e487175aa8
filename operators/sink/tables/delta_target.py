"""The log of a Delta table as a transactional target; only the driver imports it, for it needs deltalake."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction, WriterProperties
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from dagflow.api.transactions import DecidedReplay, DecidedWindow, Target, TargetState
from dagflow.errors import ANOTHER_TABLE, DagflowError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import join, name_of
from dagflow.storage.pending import FileFacts, PendingFile
from operators.sink.columns.nested_types import with_columns
from operators.sink.columns.table_columns import schema_of_text
from operators.sink.tables.base import Table, TableReader
from operators.sink.tables.delta_log import (
    CONFIGURATION,
    DeltaLog,
    LoggedFile,
    columns_of,
    history_of,
    refusals,
    require_writable,
    rows_of,
    unmerging,
)
from operators.sink.tables.merges import Merge, MergedState, not_merged
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_files import TableShape, has_bounds, newest_rows, remove
from operators.sink.tables.table_target import TableTarget, facts_of_file, merged_columns, require_decided_for


class DeltaTarget(TableTarget, Target):
    """Takes windows as versions of a table: the marker is the version of the writer's `txn`.

    It reads the entries of the log since its last look. deltalake still lists the log's names in each transaction,
    so that its time grows with the versions that the table keeps.
    """

    def __init__(self, table: Table, storage: StorageContext) -> None:
        super().__init__(table)
        self._log = DeltaLog(table, storage)
        self._columns: pa.Schema | None = None
        self._handle: DeltaTable | None = None
        self._entry: FileStat | None = None

    def shape(self) -> TableShape:
        handle = self._log.opened()
        if handle is None:
            if others := self._log.other_files():
                raise DagflowError(
                    f"{self.name}: the directory holds {len(others)} files, such as {min(others)}, and no Delta table",
                    hint="let table name an empty directory, or a table",
                )
            return TableShape(self.table.location, None, self.table.partition_by)
        partition_by = tuple(PartitionField(name) for name in handle.metadata().partition_columns)
        return TableShape(self.table.location, columns_of(handle), partition_by)

    def reader(self) -> TableReader:
        if (handle := self._log.newest()) is None:
            raise DagflowError(f"{self.name} is not there", hint="check the path: something must have written to it")

        def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            with refusals(self.table):
                yield from rows_of(handle, names)

        return TableReader(f"version {handle.version()} of {handle.metadata().id}", columns_of(handle), batches)

    def open(self, writer: str) -> TargetState:
        handle = self._handle = self._newest()
        self._entry = None if handle is None else self._log.entry(handle.version())
        self._columns = None if handle is None else columns_of(handle)
        return DeltaState(self._log, writer, handle)

    def finish(self, files: Sequence[PendingFile]) -> None:
        remove(self._log.storage, (file for file in files if facts_of_file(file).keys))

    def _newest(self) -> DeltaTable | None:
        # If the entry is another one, the table was removed, or created anew, or restored to an older state.
        if self._handle is None or not self._entry or self._entry != self._log.entry(self._handle.version()):
            return self._log.opened()
        with refusals(self.table):
            self._handle.update_incremental()
        require_writable(self.table, self._handle)
        return self._handle

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        return self._columns

    def sync(self) -> None:
        if self._handle is not None:
            self._log.sync(self._handle.version())


logger = logging.getLogger(__name__)

_CLEANUP_VERSIONS = 100
"""Transactions between two searches of the log for expired entries: deltalake would search in each transaction, in
which 2,000 entries took 20 ms.
"""

_HISTORY = 200
"""Number of versions in which the decision of a window is looked for: it is asked for right after a crash."""


class DeltaState(MergedState[LoggedFile]):
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
        return self._marker

    @property
    def version(self) -> str:
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
            custom_metadata=self._facts_of(last),
            # Rows of other writers are read again before they are replaced.
            max_commit_retries=0 if keys else None,
        )
        if self._handle is None and not keys:
            columns, partition_by = self._checked(files)
            with refusals(table):
                create_table_with_add_actions(
                    table.location,
                    Schema.from_arrow(columns),
                    [_add_action(table, file, columns) for file in files],
                    mode="error",
                    partition_by=partition_by,
                    configuration=CONFIGURATION,
                    storage_options=self._log.options(),
                    commit_properties=properties,
                )
            return
        handle, columns = self._ready(files)
        with refusals(table):
            if keys:
                upsert(handle, *newest_rows(self._log.storage, files, keys, columns_of(handle)), keys, properties)
            else:
                _append(handle, [_add_action(table, file, columns) for file in files], properties)

    def _facts_of(self, window: DecidedWindow) -> dict[str, str]:
        return {
            "dagflow.writer": self._writer,
            "dagflow.window": str(window.window_id),
            "dagflow.decision": window.decision,
        }

    def _checked(self, files: Sequence[PendingFile]) -> tuple[pa.Schema, list[str]]:
        """The columns of the table with files that it takes, and those by which it is partitioned."""
        handle, known = self._handle, pa.schema([]) if self._handle is None else columns_of(self._handle)
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(self._table, files, known, may_grow=True)
        partition_by = [*facts_of_file(files[0]).partition] if handle is None else handle.metadata().partition_columns
        require_decided_for(self._table, self._table.location, partition_by, files)
        return columns, [*partition_by]

    def _ready(self, files: Sequence[PendingFile]) -> tuple[DeltaTable, pa.Schema]:
        """The table with the columns that files need, created if it does not exist, and these columns."""
        columns, partition_by = self._checked(files)
        if self._handle is None:
            with refusals(self._table):
                self._handle = self._log.create(columns, partition_by)
        return self._grown(self._handle, columns), columns

    def _require_unmoved(self) -> None:
        if self._handle is not None and self._handle.version() != self._version:
            raise StorageError(f"it has gone on from {self.version}", url=self._table.name)

    @property
    def replays(self) -> int:
        """The version of the writer's transactions that replace files; where there are none, all of the log is read."""
        self._require_unmoved()
        return 0 if self._handle is None else self._handle.transaction_version(replays_of(self._writer)) or 0

    def not_shown(self, files: Sequence[PendingFile]) -> tuple[list[PendingFile], list[Merge[LoggedFile]]]:
        if self._handle is None:
            return list(files), []
        with refusals(self._table):
            gone = missing_in(self._table, self._handle, files)
            return gone, history_of(self._log, self._handle).merges_of([name_of(file.final_url) for file in gone])

    def replace(self, replay: DecidedReplay) -> None:
        table, window = self._table, replay.window
        self._require_unmoved()
        handle, columns = self._ready(replay.files)
        with refusals(table):
            now = DeltaState(self._log, self._writer, handle)
            gone, merges = now.not_shown(replay.removed)
            # The version after the one that was read has new columns.
            has_moved = now._version > self._version + 1 or now.replays >= replay.number
            if has_moved or not_merged(gone, merges, replay.removed):
                raise StorageError("another program has changed it meanwhile", url=table.name)
            shown = [file for file in replay.removed if file not in gone]
            removed = [name_of(file.final_url) for file in replay.removed]
            actions = [*removals(table, shown), *unmerging(self._log, merges, removed)]
            actions += [_add_action(table, file, columns) for file in replay.files]
            markers = [Transaction(replays_of(self._writer), replay.number)]
            facts = {"dagflow.writer": self._writer, "dagflow.replay": str(replay.number)}
            if window is not None:
                markers.append(Transaction(self._writer, window.window_id))
                facts |= self._facts_of(window)
            properties = CommitProperties(
                app_transactions=markers,
                custom_metadata=facts,
                max_commit_retries=0,  # another program may have changed the files that are removed
            )
            _append(handle, actions, properties)

    def _grown(self, handle: DeltaTable, columns: pa.Schema) -> DeltaTable:
        """Add new columns, and new members of columns, to the table, and open it anew, if the marker is the same."""
        there = {field.name: field.type for field in columns_of(handle)}
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


def _append(handle: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> None:
    """Write one version, a checkpoint if that is due, and seldom clean the log of old entries."""
    is_due = (handle.version() + 1) % _CLEANUP_VERSIONS == 0
    # With the table's own schema: deltalake silently drops columns that the schema lacks.
    handle.create_write_transaction(
        [*actions],
        "append",
        handle.schema(),
        partition_by=list(handle.metadata().partition_columns),
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=None if is_due else False),
    )


def _add_action(table: Table, file: PendingFile, columns: pa.Schema) -> AddAction:
    """The log's add action for a file of a table with these columns."""
    facts, now_ms = facts_of_file(file), time.time_ns() // 1_000_000
    # deltalake escapes the escapes of names.
    path, statistics = file.final_url.removeprefix(join(table.location, "")), statistics_text(file, facts, columns)
    return AddAction(path, file.size_bytes, facts.partition, now_ms, True, statistics)


def replays_of(writer: str) -> str:
    """The application under which a table keeps the newest replay of a writer."""
    return f"{writer}/replays"


def missing_in(table: Table, handle: DeltaTable, files: Sequence[PendingFile]) -> list[PendingFile]:
    """The files among some that a version of a table, whose files may be replaced, does not have as written."""
    if files and handle.metadata().configuration.get("delta.appendOnly") == "true":
        raise DagflowError(f"{table.name} has delta.appendOnly: no files of it may be replaced", hint=ANOTHER_TABLE)
    actions = pa.table(handle.get_add_actions())
    sizes = dict(zip(map(name_of, actions["path"].to_pylist()), actions["size_bytes"].to_pylist(), strict=True))
    if "deletionVectors" in (handle.protocol().writer_features or ()):
        # Another program has deleted rows of these files without rewriting them.
        for path in pa.table(handle.deletion_vectors())["filepath"].to_pylist():
            sizes.pop(name_of(path), None)
    # Their names are unique, and the log escapes the directories.
    return [file for file in files if sizes.get(name_of(file.final_url)) != file.size_bytes]


def removals(table: Table, files: Iterable[PendingFile]) -> list[RemoveAction]:
    """The log's remove actions for files; the files stay until a vacuum."""
    now_ms, root = time.time_ns() // 1_000_000, join(table.location, "")
    return [
        RemoveAction(file.final_url.removeprefix(root), True, now_ms, file.size_bytes, facts_of_file(file).partition)
        for file in files
    ]


def statistics_text(file: PendingFile, facts: FileFacts, columns: pa.Schema) -> str:
    """The statistics of a file as JSON.

    The datasets of pyarrow that deltalake makes take a missing bound for one that no value is within, if the file has
    bounds of other columns. So a file has bounds of all columns for which readers expect them, or none at all.
    """
    own = schema_of_text(facts.schema)
    there = {*own.names, *facts.partition}
    lacked = [field.name for field in columns if field.name not in there and not pa.types.is_nested(field.type)]
    nulls = {**dict.fromkeys(lacked, file.records), **facts.nulls}
    statistics: dict[str, Any] = {"numRecords": file.records, "nullCount": nulls}
    needed = [field.name for field in own if has_bounds(field.type) and field.name not in facts.partition]
    structs = [field for field in columns if pa.types.is_struct(field.type)]
    if all(name in facts.least or nulls.get(name) == file.records for name in needed) and all(map(_is_plain, structs)):
        statistics |= {
            "minValues": {**{field.name: {} for field in structs}, **_bounds(facts.least, own)},
            "maxValues": {**{field.name: {} for field in structs}, **_bounds(facts.greatest, own)},
        }
    return msgspec.json.encode(statistics).decode()


def _is_plain(field: pa.Field) -> bool:
    """Whether all members of a struct have bounds; polars fails if only some members have them."""
    if pa.types.is_struct(field.type):
        return all(map(_is_plain, field.type))
    return has_bounds(field.type)


def _bounds(values: dict[str, Any], columns: pa.Schema) -> dict[str, Any]:
    """Bounds of columns; a decimal is a number with all of its digits, which a float would round."""
    return {
        name: msgspec.Raw(value.encode()) if pa.types.is_decimal(columns.field(name).type) else value
        for name, value in values.items()
    }


def upsert(
    handle: DeltaTable, rows: pa.Table, gone: pa.Table, keys: Sequence[str], properties: CommitProperties
) -> None:
    """Replace the rows that have the keys of the given ones, and add the others, in one version of the table.

    The rows have each key once, and the columns of the table; a null equals a null. Rows with the keys that are gone
    leave. The version fails if the table has changed since it was read.
    """
    # An update would write the new row once for each row that has its key, and a table of others may have several. So
    # one copy of the row deletes all of these, and the other copy, which matches nothing, is inserted.
    is_new = max(rows.column_names, key=len) + "_"
    keys_alone = with_columns(pa.concat_tables([rows.select([*keys]), gone]), rows.schema)
    copies = [
        rows.append_column(is_new, pa.repeat(True, len(rows))),
        keys_alone.append_column(is_new, pa.repeat(False, len(keys_alone))),
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
    return '"' + name.replace('"', '""') + '"'
