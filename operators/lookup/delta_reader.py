"""Reads tables of Delta Lake; needs deltalake, so that only the driver imports it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable as Handle

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from operators.sink.tables.delta_log import DeltaLog, columns_of, refusals, rows_of
from operators.sink.tables.delta_table import DeltaTable


class DeltaReader:
    """The newest version of a table, which stays the same for this object.

    Args:
        table: The table.
        storage: Reaches its store.

    Raises:
        DagflowError: The table does not exist.
        StorageError: The table cannot be read.
    """

    def __init__(self, table: DeltaTable, storage: StorageContext) -> None:
        self._table = table
        options = DeltaLog(table, storage).options()
        with refusals(table):
            if not Handle.is_deltatable(table.location, options):
                raise DagflowError(
                    f"{table.name} is not there", hint="check the path: something must have written to it"
                )
            self._handle = Handle(table.location, storage_options=options)

    def version(self) -> str:
        """The version, and the id of the table."""
        return f"version {self._handle.version()} of {self._handle.metadata().id}"

    def columns(self) -> pa.Schema:
        """The columns of the table."""
        return columns_of(self._handle)

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table.

        Raises:
            StorageError: The rows cannot be read.
        """
        with refusals(self._table):
            yield from rows_of(self._handle, names).to_batches()
