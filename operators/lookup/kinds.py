"""The kinds of tables that records are joined with."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import absolute, is_local, name_of, redacted
from dagflow.suggestions import did_you_mean
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.python_file import PythonFile
from operators.lookup.united_columns import UnitedColumns
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.reader.formats.csv import Csv
from operators.sink.tables.delta_table import DeltaTable
from operators.sink.tables.iceberg_table import IcebergTable


class LookupSource(ABC):
    """A table that records are joined with. An operator holds it, so it is pickled, and holds no connection.

    Attributes:
        name: Its name in messages.
    """

    name: str

    @property
    @abstractmethod
    def is_near(self) -> bool:
        """Whether the table can be read without a network, so that its columns are known before a run."""

    @abstractmethod
    def version(self, storage: StorageContext) -> str:
        """A text that differs for each state of the table.

        Raises:
            DagflowError: The table does not exist.
        """

    @abstractmethod
    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the table.

        Raises:
            DagflowError: The table does not exist, or cannot be read.
        """

    @abstractmethod
    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table.

        Args:
            storage: Reaches the stores of the app.
            names: The columns to read, all of which the table has.

        Raises:
            DagflowError: The table cannot be read.
        """


class FilesSource(LookupSource):
    """A table of one file, or of the files directly in a directory.

    Args:
        kind: The kind in the property.
        location: The file or directory.
        extension: Suffix of the names of files in a directory; "" for all names.
    """

    def __init__(self, kind: str, location: str, extension: str = "") -> None:
        self._location = absolute(location)
        self._extension = extension
        self.name = f"table {kind}:{redacted(self._location)}"

    @property
    def is_near(self) -> bool:
        """Whether the location is on a disk of this machine."""
        return is_local(self._location)

    def files(self, storage: StorageContext) -> list[FileStat]:
        """The files, by name.

        Raises:
            DagflowError: The location does not exist, or its directory has no files, or something else in it.
        """
        found = storage.stat(self._location)
        if not found.is_directory:
            return [found]
        files = []
        for entry in storage.list_directory(self._location):
            name = name_of(entry.url)
            if name.startswith((".", "_")):
                continue
            if entry.is_directory or not name.endswith(self._extension):
                raise DagflowError(
                    f"{self.name} has {name} in it, and a table is made of the files directly in a directory"
                    + (f", which end in {self._extension}" if self._extension else ""),
                    hint="let table name a directory of such files, or one of them",
                )
            files.append(entry)
        if not files:
            raise DagflowError(f"{self.name} is an empty directory", hint="put the table there, or name where it is")
        return files

    def version(self, storage: StorageContext) -> str:
        """The versions of the files."""
        files = self.files(storage)
        facts = [(name_of(each.url), each.size_bytes, each.mtime_ns, each.etag, each.file_id) for each in files]
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()
        return f"{len(files)} file{'s' * (len(files) > 1)}, {sum(each.size_bytes for each in files)} bytes, {digest}"


_KINDS = ("csv", "parquet", "delta", "iceberg")


def lookup_source(table: str, csv: Mapping[str, Any], catalog: Mapping[str, str]) -> LookupSource:
    """The table that an operator names.

    Args:
        table: Kind and location.
        csv: Options of the format csv.
        catalog: Options of a catalog of Iceberg.

    Raises:
        ValueError: The kind does not exist, its package is missing, or its options are wrong.
    """
    kind, colon, location = table.partition(":")
    if kind not in _KINDS or not colon or not location:
        kinds = "csv:PATH, as in csv:data/rates.csv, parquet:PATH, delta:PATH or iceberg:NAMESPACE.NAME"
        raise ValueError(f"table takes {kinds}; got {table!r}{did_you_mean(kind, _KINDS)}")
    if csv and kind != "csv":
        raise ValueError(f"csv has options of the format csv, and table is of kind {kind}")
    if catalog and kind != "iceberg":
        raise ValueError(f"catalog is for tables of iceberg, and table is of kind {kind}")
    if kind == "csv":
        return CsvSource(location, csv)
    if kind == "parquet":
        return ParquetSource(location)
    return DeltaSource(location) if kind == "delta" else IcebergSource(location, catalog)


class CsvSource(FilesSource):
    """Files of CSV, whose columns are joined by name.

    Args:
        location: The file or directory.
        options: Options of the format csv.

    Raises:
        ValueError: The options are wrong.
    """

    def __init__(self, location: str, options: Mapping[str, Any]) -> None:
        super().__init__("csv", location)
        self._options = dict(options)
        self._format()

    def _format(self) -> Csv:
        return cast(Csv, RECORD_FORMATS.make({"type": "csv", **self._options}))

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of all files that have rows; if none has, those of the headers or of the options."""
        schema: pa.Schema = self._united(storage, self.files(storage)).schema
        return schema if len(schema) else self._format().declared_columns().schema

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of all files, with nulls where a file lacks a column."""
        files = self.files(storage)
        united = self._united(storage, files)
        united.require_united(names)
        for found in files:
            for rows in self._rows_of(storage, found, self._format()):
                yield united.fitted(redacted(found.url), rows, names)

    def _united(self, storage: StorageContext, files: Sequence[FileStat]) -> UnitedColumns:
        found = [(redacted(each.url), *self._columns_of(storage, each)) for each in files]
        # A file without rows often holds only a comment; if all files do, a list has become empty.
        has_rows = any(each for *_, each in found)
        return UnitedColumns(self.name, ((file, schema) for file, schema, each in found if each or not has_rows))

    def _columns_of(self, storage: StorageContext, found: FileStat) -> tuple[pa.Schema, bool]:
        """The columns of a file, and whether it has rows."""
        format = self._format()
        first = next(self._rows_of(storage, found, format), None)
        return (format.headed_columns(), False) if first is None else (first.schema, True)

    def _rows_of(self, storage: StorageContext, found: FileStat, format: Csv) -> Iterator[pa.RecordBatch]:
        version = FileVersion(found.size_bytes, found.mtime_ns, found.etag, found.file_id)
        block = BlockMetadata(0, found.url, version, 0, found.size_bytes, is_last=True)
        with storage.open_file(found.url, found) as file:
            content = ContentReader(format, "auto")
            # Without a listener for rejects, the first bad row is an error, which names the file and its place.
            accounting = ByteAccounting(found.url, Counter(), None)
            for batch in content.parsed(file, block, accounting):
                if len(batch) and not batch.is_raw:
                    yield batch.to_arrow()


class ParquetSource(FilesSource):
    """Files of Parquet, whose columns are joined by name.

    Args:
        location: The file or directory.
    """

    def __init__(self, location: str) -> None:
        super().__init__("parquet", location, ".parquet")

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of all files."""
        return self._united(storage, self.files(storage)).schema

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of all files, with nulls where a file lacks a column."""
        files = self.files(storage)
        united = self._united(storage, files)
        united.require_united(names)
        for found in files:
            with _opened(storage, found) as file:
                there = [name for name in names if name in file.schema_arrow.names]
                for rows in file.iter_batches(columns=there):
                    yield united.fitted(redacted(found.url), rows, names)

    def _united(self, storage: StorageContext, files: Sequence[FileStat]) -> UnitedColumns:
        return UnitedColumns(self.name, ((redacted(found.url), _columns(storage, found)) for found in files))


def _columns(storage: StorageContext, found: FileStat) -> pa.Schema:
    with _opened(storage, found) as file:
        return file.schema_arrow


def _opened(storage: StorageContext, found: FileStat) -> pq.ParquetFile:
    """A file of Parquet.

    Raises:
        DagflowError: The file is no Parquet file.
    """
    try:
        return pq.ParquetFile(pa.PythonFile(PythonFile(storage.open_file(found.url, found)), mode="r"))
    except pa.ArrowInvalid as error:
        raise DagflowError(f"{redacted(found.url)} is no file of Parquet: {error}") from error


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
