"""Tables of Delta Lake and Iceberg to join with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from dagflow.storage.context import StorageContext
from dagflow.storage.location import is_local
from operators.lookup.source import LookupSource
from operators.sink.tables.delta_table import DeltaTable
from operators.sink.tables.iceberg_table import IcebergTable


class TableReader(Protocol):
    """One version of a table."""

    def version(self) -> str:
        """Name of the version."""

    def columns(self) -> pa.Schema:
        """Columns of the version."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Rows of the version."""


class VersionedSource(LookupSource):
    """A table that has versions of its own."""

    @abstractmethod
    def reader(self, storage: StorageContext) -> TableReader:
        """Reads the newest version.

        Raises:
            DagflowError: The table is not there.
        """

    def version(self, storage: StorageContext) -> str:
        """The newest version."""
        return self.reader(storage).version()

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the newest version."""
        return self.reader(storage).columns()

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the newest version."""
        return self.reader(storage).batches(names)


class DeltaSource(VersionedSource):
    """A table of Delta Lake.

    Args:
        location: Its directory, on a local disk or in a bucket of S3.

    Raises:
        ValueError: The package is missing, or the location is elsewhere.
    """

    def __init__(self, location: str) -> None:
        self._table = DeltaTable(location, ())
        self.name = self._table.name

    @property
    def is_near(self) -> bool:
        """Whether the location is on a disk of this machine."""
        return is_local(self._table.location)

    def reader(self, storage: StorageContext) -> TableReader:
        """Reads the newest version."""
        # Optional, and only for the driver: tasks get the rows.
        from operators.lookup.delta_reader import DeltaReader

        return DeltaReader(self._table, storage)


class IcebergSource(VersionedSource):
    """A table of Iceberg.

    Args:
        location: Namespace and name.
        catalog: The options of its catalog.

    Raises:
        ValueError: A package is missing, or the catalog cannot be used.
    """

    def __init__(self, location: str, catalog: Mapping[str, str]) -> None:
        self._table = IcebergTable(location, (), catalog=catalog)
        self.name = self._table.name

    @property
    def is_near(self) -> bool:
        """Whether the catalog is a database in a file."""
        return self._table.catalog.get("uri", "").startswith("sqlite")

    def reader(self, storage: StorageContext) -> TableReader:
        """Reads the current snapshot."""
        # Optional, and only for the driver, as above.
        from operators.lookup.iceberg_reader import IcebergReader

        return IcebergReader(self._table, storage)
