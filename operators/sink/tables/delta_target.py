"""The log of a Delta table as a transactional target; only the driver imports it, for it needs deltalake."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from dagflow.api.transactions import Target, TargetDecision, TargetState
from dagflow.errors import DagflowError
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.delta_log import LOG, columns_of, opened, refusals, require_writable
from operators.sink.tables.delta_replays import REPLACED_BY_KEYS
from operators.sink.tables.delta_state import DeltaState
from operators.sink.tables.merged_columns import ColumnDecider, merged_columns
from operators.sink.tables.partition_fields import PartitionField


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
        return os.path.join(self.table.location, LOG, f"{version:020}.json")

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

    @property
    def why_not_replayed(self) -> str:
        """Nothing, but that of rows with keys later windows may have taken the place."""
        return REPLACED_BY_KEYS if self.table.upsert_by else ""

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
