"""The log of a Delta table as a transactional target; only the driver imports it, for it needs deltalake."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from dagflow.api.transactions import Target, TargetDecision, TargetState
from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.delta_log import DeltaLog, columns_of, refusals, require_writable, rows_of
from operators.sink.tables.delta_state import DeltaState
from operators.sink.tables.merged_columns import (
    ColumnDecider,
    merged_columns,
    require_typed_partition,
)
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.upserted_rows import LATE_BY_KEYS, REPLACED_BY_KEYS, require_typed_keys


def shape_of(table: Table, storage: StorageContext) -> TableShape:
    """The shape of a table.

    Raises:
        DagflowError: The table cannot be written to, or its directory holds other files.
        StorageError: The table cannot be read.
    """
    log = DeltaLog(table, storage)
    handle = log.opened()
    if handle is None:
        if others := log.other_files():
            raise DagflowError(
                f"{table.name}: the directory holds {len(others)} files, such as {min(others)}, and no Delta table",
                hint="let table name an empty directory, or a table",
            )
        return TableShape(table.location, None, table.partition_by)
    partition_by = tuple(PartitionField(name) for name in handle.metadata().partition_columns)
    return TableShape(table.location, columns_of(handle), partition_by)


class DeltaTarget(Target):
    """Takes windows as versions of a table: the marker is the version of the writer's `txn`.

    It reads the entries of the log since its last look. deltalake still lists the log's names in each transaction,
    so that its time grows with the versions that the table keeps.
    """

    def __init__(self, table: Table, storage: StorageContext) -> None:
        self.table = table
        self._log = DeltaLog(table, storage)
        self._decider = ColumnDecider(table)
        self._columns: pa.Schema | None = None
        self._handle: DeltaTable | None = None
        self._entry: FileStat | None = None

    @property
    def name(self) -> str:
        """The kind and the location."""
        return self.table.name

    def open(self, writer: str) -> TargetState:
        """Read the newest version."""
        handle = self._handle = self._newest()
        self._entry = None if handle is None else self._log.entry(handle.version())
        self._columns = None if handle is None else columns_of(handle)
        return DeltaState(self._log, writer, handle)

    def _newest(self) -> DeltaTable | None:
        # If the entry is another one, the table was removed, or created anew, or restored to an older state.
        if self._handle is None or not self._entry or self._entry != self._log.entry(self._handle.version()):
            return self._log.opened()
        with refusals(self.table):
            self._handle.update_incremental()
        require_writable(self.table, self._handle)
        return self._handle

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision:
        """The columns of the table as it was opened last, and those that the files bring."""
        return self._decider.decide(waiting, files, self._columns)

    def check(self, files: Sequence[PendingFile]) -> None:
        """Refuse files whose columns are not those of the table as it was opened last, or of each other."""
        known, causes = self._columns, self._decider.causes
        columns = merged_columns(self.table, files, known, may_grow=self.table.may_grow, causes=causes)
        require_typed_keys(self.table, files, columns)
        require_typed_partition(self.table, files, columns)

    @property
    def why_not_replayed(self) -> str:
        """Empty unless rows have keys: then later windows may have replaced them."""
        return REPLACED_BY_KEYS if self.table.upsert_by else ""

    @property
    def why_no_late_records(self) -> str:
        """Empty unless rows have keys: then the row that came last is the row of its key."""
        return LATE_BY_KEYS if self.table.upsert_by else ""

    def rows(self) -> pa.Table | None:
        """The rows of the newest version."""
        handle = self._log.opened()
        return None if handle is None else rows_of(handle)

    def sync(self) -> None:
        """Sync the newest entry of the log, which deltalake leaves to the system."""
        if self._handle is not None:
            self._log.sync(self._handle.version())
