"""The log of a Delta table as a transactional target; only the driver imports it, for it needs deltalake."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, create_table_with_add_actions

from dagflow.api.transactions import DecidedWindow, Target, TargetDecision, TargetState
from dagflow.errors import DagflowError, StorageError
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import join, redacted
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.delta_upserts import newest_rows, remove, upsert
from operators.sink.tables.merged_columns import (
    ColumnDecider,
    facts_of_file,
    merged_columns,
    require_same_partitioning,
)
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import plain_schema, schema_of_text

logger = logging.getLogger(__name__)

_LOG = "_delta_log"
_HISTORY = 200
"""Versions in which the decision of a window is looked for: it is asked for right after a crash."""

_RESPECTED = frozenset(
    ["appendOnly", "timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "changeDataFeed"]
)
"""Features of a table that files which are added to it cannot violate."""

_UNUSED = frozenset(
    ["invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping", "domainMetadata"]
)
"""Features that a table may declare; whether it uses them is in its columns and properties."""

_RETENTION = "delta.setTransactionRetentionDuration"


def shape_of(table: Table) -> TableShape:
    """What there is of a table.

    Raises:
        DagflowError: It cannot be written to, or its directory holds other files.
        StorageError: It cannot be read.
    """
    handle = opened(table)
    if handle is None:
        _require_no_others(table)
        return TableShape(table.location, None, table.partition_by)
    partition_by = tuple(PartitionField(name) for name in handle.metadata().partition_columns)
    return TableShape(table.location, columns_of(handle), partition_by)


def _require_no_others(table: Table) -> None:
    """Refuse to make a table in the midst of other files."""
    with contextlib.suppress(FileNotFoundError):
        # What a decided window has put there already has names of ours, or is in directories of partitions.
        entries = [each.name for each in os.scandir(table.location) if each.is_file()]
        if others := [name for name in entries if not name.startswith((".", "part-"))]:
            raise DagflowError(
                f"{table.name}: the directory holds {len(others)} files, such as {min(others)}, and no Delta table",
                hint="let table name an empty directory, or a table",
            )


@contextlib.contextmanager
def refusals(table: Table) -> Iterator[None]:
    """Turn what deltalake raises into a StorageError: a transaction failed, or its outcome is not known."""
    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"deltalake: {error}", url=table.name) from error


def opened(table: Table) -> DeltaTable | None:
    """The newest version of a table; None where there is no table.

    Raises:
        DagflowError: The table is of a form that cannot be written to.
        StorageError: It cannot be read.
    """
    with refusals(table):
        if not os.path.isdir(os.path.join(table.location, _LOG)) or not DeltaTable.is_deltatable(table.location):
            return None
        handle = DeltaTable(table.location)
    require_writable(table, handle)
    return handle


def columns_of(handle: DeltaTable) -> pa.Schema:
    """The columns of a table, in plain types."""
    found = pa.schema(handle.schema().to_arrow())
    plain = plain_schema(found)
    return pa.schema([field.with_nullable(found.field(field.name).nullable) for field in plain])


def require_writable(table: Table, handle: DeltaTable) -> None:
    """Refuse a table in which files would break a rule that only its own writers know.

    Raises:
        DagflowError: Which.
    """
    unknown = sorted(set(handle.protocol().writer_features or ()) - _RESPECTED - _UNUSED)
    if unknown:
        raise DagflowError(f"{table.name} has the feature {unknown[0]}, which dagflow does not write")
    configuration = handle.metadata().configuration
    rules = [key for key in configuration if key.startswith("delta.constraints.")]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        rules.append("delta.columnMapping.mode")
    for field in handle.schema().fields:
        rules += [
            f"{key} of column {field.name}"
            for key in field.metadata
            if key in ("delta.invariants", "delta.generationExpression") or key.startswith("delta.identity")
        ]
    if table.upsert_by:
        _require_replaceable(table, handle)
    if rules:
        raise DagflowError(
            f"{table.name} has {rules[0]}, which files that are added to it would not respect",
            hint="write into another table, and copy from there",
        )
    partition_by = list(handle.metadata().partition_columns)
    require_same_partitioning(table, partition_by)
    if _RETENTION in configuration:
        logger.warning(
            "%s forgets which windows it has after %s (%s): no run on it may be interrupted for as long",
            table.name,
            configuration[_RETENTION],
            _RETENTION,
        )


def _require_replaceable(table: Table, handle: DeltaTable) -> None:
    """Refuse a table whose rows must not be replaced, or cannot be.

    Raises:
        DagflowError: Why.
    """
    features, configuration = handle.protocol().writer_features or (), handle.metadata().configuration
    rules = [key for key in ("delta.appendOnly",) if configuration.get(key) == "true"]
    if configuration.get("delta.enableDeletionVectors") == "true" or "deletionVectors" in features:
        rules.append("deletion vectors")
    if rules:
        raise DagflowError(
            f"{table.name} has {rules[0]}, with which upsert_by cannot replace rows",
            hint="let upsert_by name columns for another table, or leave it out to add rows",
        )
    missing = [name for name in table.upsert_by if name not in columns_of(handle).names]
    if missing:
        raise DagflowError(
            f"{table.name} has no column '{missing[0]}' for upsert_by; it has {', '.join(columns_of(handle).names)}",
            hint="let upsert_by name columns of the table, or let table name another one",
        )
    try:
        table.require_keys_of([PartitionField(name) for name in handle.metadata().partition_columns])
    except ValueError as error:
        raise DagflowError(f"{table.name}: {error}") from error


class DeltaTarget(Target):
    """Takes windows as versions of a table: the marker is the version of the writer's `txn`.

    It reads of the log what is new since it looked last, so that the time of a transaction does not grow with the
    number of versions.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._decider = ColumnDecider(table)
        self._columns: pa.Schema | None = None
        self._handle: DeltaTable | None = None
        self._entry: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The kind and the location."""
        return self.table.name

    def open(self, writer: str) -> TargetState:
        """Read the newest version."""
        handle = self._handle = self._newest()
        self._entry = () if handle is None else self._entry_of(handle.version())
        self._columns = None if handle is None else columns_of(handle)
        return DeltaState(self.table, writer, handle)

    def _newest(self) -> DeltaTable | None:
        # Where the entry is another one, the table was removed, or made anew, or an older state of it put back.
        if self._handle is None or not self._entry or self._entry != self._entry_of(self._handle.version()):
            return opened(self.table)
        with refusals(self.table):
            self._handle.update_incremental()
        require_writable(self.table, self._handle)
        return self._handle

    def _entry_path(self, version: int) -> str:
        return os.path.join(self.table.location, _LOG, f"{version:020}.json")

    def _entry_of(self, version: int) -> tuple[int, ...]:
        """What tells the log's entry of a version from any other file; empty where there is none."""
        try:
            found = os.stat(self._entry_path(version))
        except FileNotFoundError:
            return ()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision:
        """The columns of the table as it was opened last, and those that the files bring."""
        return self._decider.decide(waiting, files, self._columns)

    def check(self, files: Sequence[PendingFile]) -> None:
        """Refuse files whose columns are not those of the table as it was opened last, or of each other."""
        columns = merged_columns(self.table, files, self._columns, may_grow=self.table.may_grow)
        for name in self.table.upsert_by if files else ():
            if name not in columns.names:
                raise DagflowError(
                    f"{self.table.name}: no type is known yet of the column '{name}' of upsert_by, because all of its "
                    "values are null",
                    hint="give the column a type upstream, or make the table before",
                )

    def rows(self) -> pa.Table | None:
        """The rows of the newest version."""
        handle = opened(self.table)
        return None if handle is None else handle.to_pyarrow_table()

    def sync(self) -> None:
        """Sync the newest entry of the log, which deltalake leaves to the system."""
        if self._handle is None:
            return
        newest = self._entry_path(self._handle.version())
        for path in (newest, os.path.dirname(newest), self.table.location):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class DeltaState(TargetState):
    """A version of a table, or none yet."""

    def __init__(self, table: Table, writer: str, handle: DeltaTable | None) -> None:
        self._table = table
        self._writer = writer
        self._handle = handle
        # Of this moment: the target goes on with the handle when it looks again.
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
        """What the commit of the newest window says; None where it is among the newest versions no more."""
        if self._handle is None:
            return None
        # Mostly it is the newest version, and nothing else is read.
        for versions in (1, _HISTORY):
            with refusals(self._table):
                entries = self._handle.history(versions)
            for entry in entries:
                if entry.get("dagflow.writer") == self._writer:
                    found: str | None = entry.get("dagflow.decision")
                    return found
        return None

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add the files in one version; the first one makes the table."""
        table, files = self._table, [file for window in windows for file in window.files]
        last, keys = windows[-1], facts_of_file(windows[-1].files[0]).keys
        if self._handle is not None and self._handle.version() != self._version:
            raise StorageError(f"it has gone on from {self.version}", url=table.name)
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
        # What was decided is done, also where the app has changed since.
        columns = merged_columns(table, files, known, may_grow=True)
        actions = [_add_action(table, file) for file in files]
        partition_by = list(facts_of_file(files[0]).partition)
        if self._handle is None and keys:
            with refusals(table):
                self._handle = DeltaTable.create(
                    table.location, Schema.from_arrow(columns), mode="error", partition_by=partition_by
                )
            known = columns
        if self._handle is None:
            with refusals(table):
                create_table_with_add_actions(
                    table.location,
                    Schema.from_arrow(columns),
                    actions,
                    mode="error",
                    partition_by=partition_by,
                    commit_properties=properties,
                )
            return
        handle = self._handle if len(columns) == len(known) else self._grown(columns, len(known))
        partition_by = list(handle.metadata().partition_columns)
        if other := [file for file in files if list(facts_of_file(file).partition) != partition_by]:
            decided = ", ".join(facts_of_file(other[0]).partition)
            raise DagflowError(
                f"{table.name} is partitioned by {', '.join(partition_by) or 'nothing'}, and "
                f"{redacted(other[0].final_url)} was decided for {decided or 'nothing'}"
            )
        if keys:
            with refusals(table):
                upsert(handle, newest_rows(files, keys, columns_of(handle), partition_by), keys, properties)
            remove(files)
            return
        with refusals(table):
            # By the table's own schema: columns that it does not know would be dropped without a word.
            handle.create_write_transaction(
                [*actions], "append", handle.schema(), partition_by=partition_by, commit_properties=properties
            )

    def _grown(self, columns: pa.Schema, known: int) -> DeltaTable:
        """Add the columns behind the known ones to the table, and open it anew.

        Raises:
            StorageError: They could not be added, or the marker has changed meanwhile.
        """
        with refusals(self._table):
            fields = Schema.from_arrow(pa.schema(list(columns)[known:])).fields
            DeltaTable(self._table.location).alter.add_columns(fields)
        logger.info("columns were added table=%s columns=%s", self._table.name, [field.name for field in fields])
        handle = opened(self._table)
        if handle is None or (handle.transaction_version(self._writer) or 0) != self.marker:
            raise StorageError("another driver has added a window meanwhile", url=self._table.name)
        if any(columns_of(handle).field(field.name).type != field.type for field in columns):
            raise StorageError("another program has added a column of another type", url=self._table.name)
        return handle


def _add_action(table: Table, file: PendingFile) -> AddAction:
    """What the log says of a file.

    Raises:
        DagflowError: It lies outside the table.
    """
    root, facts = join(table.location, ""), facts_of_file(file)
    if not file.final_url.startswith(root):
        raise DagflowError(
            f"{redacted(file.final_url)} was decided for another table than {table.name}",
            hint="let the app name the table that it named before, until the window is published",
        )
    path = file.final_url.removeprefix(root)  # deltalake escapes the escapes of names
    return AddAction(
        path, file.size_bytes, facts.partition, time.time_ns() // 1_000_000, True, _statistics(file, facts)
    )


def _statistics(file: PendingFile, facts: FileFacts) -> str:
    columns = schema_of_text(facts.schema)

    def bounds(values: dict[str, Any]) -> dict[str, Any]:
        decimals = {name for name in values if pa.types.is_decimal(columns.field(name).type)}
        # A number with all its digits; a float would have some of them.
        return {name: msgspec.Raw(value.encode()) if name in decimals else value for name, value in values.items()}

    statistics = {
        "numRecords": file.records,
        "minValues": bounds(facts.least),
        "maxValues": bounds(facts.greatest),
        "nullCount": facts.nulls,
    }
    return msgspec.json.encode(statistics).decode()
