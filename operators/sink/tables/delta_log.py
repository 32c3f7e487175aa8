"""Opens existing Delta tables, and refuses those whose rules added files would break; for the driver alone."""

from __future__ import annotations

import contextlib
import decimal
import itertools
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from dagflow.errors import DagflowError, MissingError, StorageError
from dagflow.frozen import frozen
from dagflow.storage.backends.local.disk import sync
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, PythonFile
from dagflow.storage.location import is_local, join, name_of, parent
from operators.sink.columns.nested_types import with_types
from operators.sink.columns.table_columns import plain_schema
from operators.sink.tables.base import Table
from operators.sink.tables.merges import Changes, Merge, MergeHistory
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_files import bound_as_json
from operators.sink.tables.table_target import no_writing, require_keys, require_same_partitioning

logger = logging.getLogger(__name__)

LOG = "_delta_log"

CONFIGURATION = {"delta.checkpointInterval": "10"}
"""Property of new tables, as other writers set it: entries after the newest checkpoint are read in each transaction."""

_RESPECTED = frozenset(
    ["appendOnly", "timestampNtz", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck", "changeDataFeed"]
)
"""Features of a table that added files cannot violate."""

_UNUSED = frozenset(
    ["invariants", "checkConstraints", "generatedColumns", "identityColumns", "columnMapping", "domainMetadata"]
)
"""Features that a table may declare; whether it uses them is in its columns and properties."""

_READER_VERSION, _WRITER_VERSION = 3, 7
"""The newest versions of the protocol, in which a table names its features."""

_RETENTION = "delta.setTransactionRetentionDuration"


@contextlib.contextmanager
def refusals(table: Table) -> Iterator[None]:
    """Turn errors of deltalake into a StorageError: a transaction failed, or its outcome is not known."""
    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, StorageError):
            raise
        # Some messages of Rust end with a stack of calls, one a line.
        reason = re.split(r"\n +0: ", str(error))[0]
        raise StorageError(f"deltalake: {reason}", url=table.name) from error


class DeltaLog:
    """The log of a table, and the options by which it is reached."""

    def __init__(self, table: Table, storage: StorageContext) -> None:
        self.table = table
        self.storage = storage
        # Errors that keep a run from starting are raised here, and not in the first window.
        self.options()

    def options(self) -> dict[str, str]:
        """Options by which deltalake reaches the store, with current credentials, since those of a role expire."""
        found = self.storage.backend(self.table.location).object_store_options(self.table.location)
        if found is None:
            raise DagflowError(f"{self.table.name}: deltalake does not reach this store as dagflow does")
        return found

    def newest(self) -> DeltaTable | None:
        """The newest version of the table; None where there is no table."""
        location = self.table.location
        with refusals(self.table):
            # deltalake would create the directory.
            if is_local(location) and not os.path.isdir(join(location, LOG)):
                return None
            options = self.options()
            if not DeltaTable.is_deltatable(location, options):
                return None
            return DeltaTable(location, storage_options=options)

    def opened(self) -> DeltaTable | None:
        """The newest version of the table, to which dagflow may write; None where there is no table."""
        if (handle := self.newest()) is not None:
            require_writable(self.table, handle)
        return handle

    def entry(self, version: int) -> FileStat | None:
        """Identifies the log entry of a version, so that another file in its place shows; None where there is none."""
        return self.storage.find(self.path(version))

    def path(self, version: int) -> str:
        return join(self.table.location, f"{LOG}/{version:020}.json")

    def other_files(self) -> list[str]:
        """Names of files in the table's directory that no writer of ours has made."""
        try:
            entries = list(self.storage.list_directory(self.table.location))
        except MissingError:
            return []
        names = [name_of(each.url) for each in entries if not each.is_directory]
        # Files of a decided window have names of ours, or are in directories of partitions.
        return [name for name in names if not name.startswith((".", "part-"))]

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        """Create a table without rows; a DeltaError if it was not created, or exists already."""
        fields = Schema.from_arrow(columns)
        return DeltaTable.create(
            self.table.location,
            fields,
            mode="error",
            partition_by=list(partition_by),
            configuration=CONFIGURATION,
            storage_options=self.options(),
        )

    def sync(self, version: int) -> None:
        """Make an entry durable, which deltalake leaves to the system; object stores do it themselves."""
        newest = self.path(version)
        for path in (newest, parent(newest), self.table.location) if is_local(newest) else ():
            sync(path)


def columns_of(handle: DeltaTable) -> pa.Schema:
    found = pa.schema(handle.schema().to_arrow())
    plain = plain_schema(found)
    return pa.schema([field.with_nullable(found.field(field.name).nullable) for field in plain])


def rows_of(handle: DeltaTable, names: Sequence[str]) -> pa.RecordBatchReader:
    """Columns of the rows of a table, in any order."""
    columns = columns_of(handle)
    schema = pa.schema([columns.field(name) for name in names])
    # Not as a dataset of pyarrow: deltalake gives that a wrong text for a partition of -0.5, and it holds row groups.
    found = pa.RecordBatchReader.from_stream(handle.scan(columns=[*names]))
    tables = (with_types(pa.Table.from_batches([part]), schema) for part in found)
    return pa.RecordBatchReader.from_batches(schema, (part for table in tables for part in table.to_batches()))


def require_writable(table: Table, handle: DeltaTable) -> None:
    """Refuse a table in which added files would break a rule that only its own writers know."""
    protocol, configuration = handle.protocol(), handle.metadata().configuration
    needs = [f"the feature {each}" for each in sorted({*(protocol.writer_features or ())} - _RESPECTED - _UNUSED)]
    if protocol.min_reader_version > _READER_VERSION or protocol.min_writer_version > _WRITER_VERSION:
        needs.append(
            f"version {protocol.min_writer_version} of the protocol, or {protocol.min_reader_version} for readers"
        )
    if needs:
        raise no_writing(table, f"{needs[0]}, which dagflow does not write")
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
        raise no_writing(table, f"{rules[0]}, which files that are added to it would not respect")
    partition_by = list(handle.metadata().partition_columns)
    require_same_partitioning(table, partition_by)
    if _RETENTION in configuration:
        logger.warning(
            "%s forgets which windows it has after %s (%s): no run on it may be interrupted for that long",
            table.name,
            configuration[_RETENTION],
            _RETENTION,
        )


def _require_replaceable(table: Table, handle: DeltaTable) -> None:
    """Refuse a table whose rows must not be replaced, or cannot be."""
    features, configuration = handle.protocol().writer_features or (), handle.metadata().configuration
    rules = [key for key in ("delta.appendOnly",) if configuration.get(key) == "true"]
    if configuration.get("delta.enableDeletionVectors") == "true" or "deletionVectors" in features:
        rules.append("deletion vectors")
    if rules:
        raise DagflowError(
            f"{table.name} has {rules[0]}, with which upsert_by cannot replace rows",
            hint="let upsert_by name columns for another table, or leave it out to add rows",
        )
    partition_by = [PartitionField(name) for name in handle.metadata().partition_columns]
    require_keys(table, columns_of(handle), partition_by)


_KEPT_S = 7 * 86_400
"""Seconds for which a table keeps removed files, unless its property says otherwise."""

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 7 * 86_400}


@frozen
class LoggedFile:
    """A file in an entry of the log.

    Attributes:
        size_bytes: Its length; -1 where the entry does not say it.
        partition: The values of the partition columns, as texts.
        version: The version that has added or removed it.
        removed_ms: When it was removed, in milliseconds since 1970; 0 where it was added.
    """

    path: str
    size_bytes: int
    partition: dict[str, str | None]
    version: int
    removed_ms: int


def history_of(log: DeltaLog, handle: DeltaTable) -> MergeHistory[LoggedFile]:
    """The history of a version of a table: the log tells it for as long as it has the entries."""
    since_ms = (time.time() - _kept_s(handle)) * 1000

    def can_be_shown(file: LoggedFile) -> bool:
        # A file that the table does not keep any longer may be gone at any moment.
        return file.removed_ms > since_ms and log.storage.has(join(log.table.location, file.path), file.size_bytes)

    return MergeHistory(_versions(log, handle.version()), can_be_shown)


def _versions(log: DeltaLog, newest: int) -> Iterator[Iterable[Changes[LoggedFile]]]:
    for version in range(newest, -1, -1):
        try:
            with log.storage.open_file(log.path(version)) as opened:
                lines = PythonFile(opened).readall().splitlines()
        except MissingError:
            return
        by_partition: dict[bytes, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
        for kind, action in itertools.chain.from_iterable(msgspec.json.decode(line).items() for line in lines):
            if kind in ("add", "remove"):
                values = msgspec.json.encode(action.get("partitionValues"), order="deterministic")
                by_partition[values].append((kind, action))
        yield [_changes(actions, version) for actions in by_partition.values()]


def _changes(actions: Iterable[tuple[str, dict[str, Any]]], version: int) -> Changes[LoggedFile]:
    files: dict[str, dict[str, LoggedFile]] = {"add": {}, "remove": {}}
    is_merge = True
    for kind, action in actions:
        path, values = unquote(action["path"]), action.get("partitionValues") or {}
        size, removed_ms = action.get("size") or -1, action.get("deletionTimestamp") or 0
        files[kind][name_of(path)] = LoggedFile(path, size, values, version, removed_ms)
        # With deleted rows a file is not what it was made as.
        is_merge &= not (action["dataChange"] or action.get("deletionVector"))
    return Changes(files["add"], files["remove"], is_merge)


def _kept_s(handle: DeltaTable) -> float:
    """Seconds for which a table keeps removed files at least."""
    text = handle.metadata().configuration.get("delta.deletedFileRetentionDuration")
    found = re.fullmatch(r"(?:interval )?(\d+) ([a-z]+?)s?", (text or "").strip().lower())
    return _KEPT_S if text is None else int(found[1]) * _UNITS.get(found[2], 0) if found else 0


def unmerging(
    log: DeltaLog, merges: Iterable[Merge[LoggedFile]], without: Collection[str]
) -> Iterator[AddAction | RemoveAction]:
    """The actions by which merged files, without some, take the place of the files that have their rows."""
    now_ms = time.time_ns() // 1_000_000
    statistics_at = cache(partial(_statistics, log))
    for merge in merges:
        for file in merge.after.values():
            yield RemoveAction(file.path, True, now_ms, file.size_bytes, file.partition)
        for file in (file for name, file in merge.before.items() if name not in without):
            # An empty text would be no JSON to readers.
            text = statistics_at(file.version - 1).get(name_of(file.path), "{}")
            # No change of data: their rows are in the table already.
            yield AddAction(file.path, file.size_bytes, file.partition, now_ms, False, text)


def _statistics(log: DeltaLog, version: int) -> dict[str, str]:
    """The statistics of the files of a version as JSON, by name, as far as the log reaches back to it."""
    try:
        handle = DeltaTable(log.table.location, version=version, storage_options=log.options())
    except DeltaError:
        return {}
    found = pa.table(handle.get_add_actions()).to_pylist()
    return {name_of(each["path"]): _text(each) for each in found if each.get("num_records") is not None}


def _text(action: dict[str, Any]) -> str:
    least, greatest = (_as_json(action.get(name) or {}, up=name == "max") for name in ("min", "max"))
    counts = {"numRecords": action["num_records"], "nullCount": _as_json(action.get("null_count") or {}, up=False)}
    return msgspec.json.encode({**counts, "minValues": least, "maxValues": greatest}).decode()


def _as_json(value: Any, *, up: bool) -> Any:
    """A statistic as a JSON value; by column, or by member of a column, without those that are null."""
    if isinstance(value, dict):
        return {name: _as_json(member, up=up) for name, member in value.items() if member is not None}
    found = bound_as_json(value, up=up)
    return msgspec.Raw(found.encode()) if isinstance(value, decimal.Decimal) else found
