"""Asks catalogs of Iceberg; only the driver imports it, for it needs pyiceberg."""

from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Handle
from pyiceberg.typedef import Identifier

from dagflow.errors import DagflowError, StorageError
from dagflow.storage.backends.local.disk import sync
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import is_local, name_of, parent
from operators.sink.tables.iceberg_table import CATALOG_TYPES, IcebergTable

_DURABLE_IO = "operators.sink.tables.iceberg_catalog.DurableFileIO"
_STORAGE_IO = "operators.sink.tables.iceberg_catalog.StorageFileIO"
_CLASSES = {"SqlCatalog", "RestCatalog", "GlueCatalog", "HiveCatalog"}


@contextlib.contextmanager
def refusals(table: IcebergTable) -> Iterator[None]:
    """Turn errors of a catalog's client into a StorageError: a transaction failed, or its outcome is not known."""
    try:
        yield
    except DagflowError:
        raise
    except Exception as error:  # clients of catalogs raise what their databases and servers do, without a common base
        text = str(error).partition("\n")[0]
        raise StorageError(f"catalog: {type(error).__name__}: {text}", url=table.name) from error


@contextlib.contextmanager
def refusals_before(table: IcebergTable) -> Iterator[None]:
    """Turn errors of pyiceberg before it asks a catalog into a DagflowError: they would be the same each time."""
    try:
        yield
    except DagflowError:
        raise
    except Exception as error:  # its checks raise errors of several kinds, without a common base
        text = str(error).partition("\n")[0]
        raise DagflowError(f"{table.name} cannot take the window: {type(error).__name__}: {text}") from error


class TableCatalog:
    """The catalog of a table; one that changes tables without a check of their state is refused."""

    def __init__(self, table: IcebergTable, storage: StorageContext) -> None:
        options: dict[str, Any] = dict(table.catalog)
        warehouse = options.get("warehouse", "")
        if warehouse.startswith("file://"):
            options.setdefault(PY_IO_IMPL, _DURABLE_IO)
        elif not is_local(warehouse):
            options.update({PY_IO_IMPL: _STORAGE_IO, STORAGE: storage})
        if path := table.database_file:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        self._table = table
        self.identifier: Identifier = (table.namespace, table.table)
        with refusals(table):
            # The catalog's name is part of the key of its tables in a database.
            self.catalog: Catalog = load_catalog(options.pop("name", "default"), **options)
        weakref.finalize(self, self.catalog.close)
        known = {base.__name__ for base in type(self.catalog).__mro__}
        if not known & _CLASSES or isinstance(self.catalog, InMemoryCatalog):
            raise DagflowError(
                f"{table.name}: a catalog of class {type(self.catalog).__name__} does not compare a table with what a "
                "change expects, so that windows of several writers would be lost",
                hint=f"use a catalog of type {', '.join(CATALOG_TYPES[:-1])} or {CATALOG_TYPES[-1]}",
            )

    def load(self) -> Handle | None:
        """The current table; None where there is none."""
        with refusals(self._table):
            try:
                return self.catalog.load_table(self.identifier)
            except NoSuchTableError:
                return None

    def new_location(self) -> str:
        """The location at which the catalog puts a new table of this name."""
        with refusals(self._table):
            return self.catalog.create_table_transaction(self.identifier, Schema()).table_metadata.location


STORAGE = "dagflow.storage"
"""The option of a catalog that holds the StorageContext: an object of this process, which is never written."""


class StorageFileIO(FileIO):
    """Reads and writes by the app's own storage: no credentials are passed to pyiceberg.

    Guarantee: a file appears whole, and under a name that was free. If the answer to a write is lost, the file is read
    back.
    """

    @property
    def _storage(self) -> StorageContext:
        found: Any = self.properties[STORAGE]
        assert isinstance(found, StorageContext)
        return found

    def new_input(self, location: str) -> InputFile:
        return _StoredFile(location, self._storage)

    def new_output(self, location: str) -> OutputFile:
        return _NewFile(location, self._storage)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        url = location if isinstance(location, str) else location.location
        self._storage.backend(url).files.remove(url)


class _Stored:
    location: str

    def __init__(self, location: str, storage: StorageContext) -> None:
        super().__init__(location=location)  # type: ignore[call-arg]  # of pyiceberg's class beside this one
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.stat(self.location).size_bytes

    def exists(self) -> bool:
        return self._storage.find(self.location) is not None


class _StoredFile(_Stored, InputFile):
    def open(self, seekable: bool = True) -> InputStream:
        return PythonFile(self._storage.open_file(self.location))


class _NewFile(_Stored, OutputFile):
    def to_input_file(self) -> InputFile:
        return _StoredFile(self.location, self._storage)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Created(self.location, self._storage)


class _Created(io.BytesIO):
    """Bytes that become a file when they are closed, unless an exception was raised before."""

    def __init__(self, url: str, storage: StorageContext) -> None:
        super().__init__()
        self._url = url
        self._storage = storage

    def __exit__(self, *error: Any) -> None:
        if error[0] is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._storage.objects(parent(self._url)).create(name_of(self._url), data)


class DurableFileIO(PyArrowFileIO):
    """Syncs each local file when it is closed.

    A catalog in a database survives a power loss; if a file that it names does not, the whole table is lost.
    """

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        path = os.fsdecode(self.name)
        super().close()
        sync(os.path.dirname(path))
