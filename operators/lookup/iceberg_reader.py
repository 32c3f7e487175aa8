"""Reads tables of Iceberg; needs pyiceberg, so that only the driver imports it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from operators.sink.tables.catalog_table import CatalogTable
from operators.sink.tables.iceberg_catalog import TableCatalog, is_missing, refusals
from operators.sink.tables.iceberg_scan import WholeScan
from operators.sink.tables.iceberg_target import columns_of


class IcebergReader:
    """The current snapshot of a table, which stays the same for this object.

    Args:
        table: The table.
        storage: Reaches its files.

    Raises:
        DagflowError: The table does not exist.
        StorageError: The catalog cannot be reached.
    """

    def __init__(self, table: CatalogTable, storage: StorageContext) -> None:
        handle = None if is_missing(table) else TableCatalog(table, storage).load()
        if handle is None:
            raise DagflowError(f"{table.name} is not in its catalog", hint="check namespace and name")
        self._table = table
        self._handle = handle

    def version(self) -> str:
        """The ids of the snapshot, the columns and the table."""
        snapshot = self._handle.current_snapshot()
        taken = f"snapshot {snapshot.snapshot_id}" if snapshot is not None else "no snapshot"
        return f"{taken}, schema {self._handle.schema().schema_id} of {self._handle.metadata.table_uuid}"

    def columns(self) -> pa.Schema:
        """The columns of the table."""
        return columns_of(self._handle.schema())

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table.

        Raises:
            StorageError: The rows cannot be read.
        """
        with refusals(self._table):
            scan = self._handle.scan(selected_fields=tuple(names))
            read = WholeScan(self._handle.metadata, self._handle.io, scan.projection())
            yield from read.to_table(scan.plan_files()).select(list(names)).to_batches()
