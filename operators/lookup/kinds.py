"""The kinds of tables that records are joined with."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.errors import DagflowError, RecordError
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, PythonFile
from dagflow.storage.location import absolute, is_local, name_of, redacted
from dagflow.suggestions import did_you_mean
from operators.expressions.sql_types import as_decimal, normal_type
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.columns.exact_casts import plain_type
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.reader.formats.csv import Csv
from operators.sink.columns.nested_types import common_type, joined_type, nulls_of, table_type
from operators.sink.tables.base import TableReader, table_class


class LookupSource(ABC):
    """A table that records are joined with. An operator holds it, so it is pickled, and holds no connection."""

    name: str

    @property
    @abstractmethod
    def is_near(self) -> bool:
        """Whether the table can be read without a network, so that its columns are known before a run."""

    @abstractmethod
    def version(self, storage: StorageContext) -> str:
        """A text that differs for each state of the table."""

    @abstractmethod
    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the table."""

    @abstractmethod
    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of the table."""


class FilesSource(LookupSource):
    """A table of one file, or of the files directly in a directory, whose columns are joined by name.

    Args:
        extension: Suffix of the names of files in a directory; "" for all names.
    """

    def __init__(self, kind: str, location: str, extension: str = "") -> None:
        self._location = absolute(location)
        self._extension = extension
        self.name = f"table {kind}:{redacted(self._location)}"

    @property
    def is_near(self) -> bool:
        return is_local(self._location)

    @abstractmethod
    def columns_of(self, storage: StorageContext, file: FileStat) -> tuple[pa.Schema, bool]:
        """The columns of a file, and whether they count beside those of others: a file may have no rows."""

    @abstractmethod
    def rows_of(self, storage: StorageContext, file: FileStat, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with at least those of the columns that it has."""

    def files(self, storage: StorageContext) -> list[FileStat]:
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
        files = self.files(storage)
        facts = [(name_of(file.url), file.size_bytes, file.mtime_ns, file.etag, file.file_id) for file in files]
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=6).hexdigest()
        return f"{len(files)} file{'s' * (len(files) > 1)}, {sum(file.size_bytes for file in files)} bytes, {digest}"

    def columns(self, storage: StorageContext) -> pa.Schema:
        return self._united(storage, self.files(storage)).schema

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        files = self.files(storage)
        united = self._united(storage, files)
        united.require_united(names)
        for file in files:
            for rows in self.rows_of(storage, file, names):
                yield united.fitted(redacted(file.url), rows, names)

    def _united(self, storage: StorageContext, files: Sequence[FileStat]) -> UnitedColumns:
        columns = [(redacted(file.url), *self.columns_of(storage, file)) for file in files]
        # A file without rows often holds only a comment; if all files do, a list has become empty.
        are_empty = not any(counts for *_, counts in columns)
        return UnitedColumns(self.name, ((file, schema) for file, schema, counts in columns if counts or are_empty))


class CsvSource(FilesSource):
    """Files of CSV."""

    def __init__(self, location: str, options: Mapping[str, Any]) -> None:
        super().__init__("csv", location)
        self._options = dict(options)
        self._format()

    def _format(self) -> Csv:
        return cast(Csv, RECORD_FORMATS.make({"type": "csv", **self._options}))

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of all files that have rows; if none has, those of the headers or of the options."""
        schema = super().columns(storage)
        return schema if len(schema) else self._format().declared_columns().schema

    def columns_of(self, storage: StorageContext, file: FileStat) -> tuple[pa.Schema, bool]:
        format = self._format()
        first = next(self._read(storage, file, format), None)
        return (format.headed_columns(), False) if first is None else (first.schema, True)

    def rows_of(self, storage: StorageContext, file: FileStat, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._read(storage, file, self._format())

    def _read(self, storage: StorageContext, stat: FileStat, format: Csv) -> Iterator[pa.RecordBatch]:
        version = FileVersion(stat.size_bytes, stat.mtime_ns, stat.etag, stat.file_id)
        block = BlockMetadata(0, stat.url, version, 0, stat.size_bytes, is_last=True)
        with storage.open_file(stat.url, stat) as file:
            # Without a listener for rejects, the first bad row is an error, which names the file and its place.
            accounting = ByteAccounting(stat.url, Counter(), None)
            try:
                for batch in ContentReader(format, "auto").parsed(file, block, accounting):
                    if len(batch) and not batch.is_raw:
                        yield batch.to_arrow()
            except RecordError as error:
                error.hint = "correct it there: of a table that is looked up, every row must be right"
                raise


class ParquetSource(FilesSource):
    """Files of Parquet."""

    def __init__(self, location: str) -> None:
        super().__init__("parquet", location, ".parquet")

    def columns_of(self, storage: StorageContext, file: FileStat) -> tuple[pa.Schema, bool]:
        with _opened(storage, file) as table:
            return table.schema_arrow, True

    def rows_of(self, storage: StorageContext, file: FileStat, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _opened(storage, file) as table:
            yield from table.iter_batches(columns=[name for name in names if name in table.schema_arrow.names])


def _opened(storage: StorageContext, file: FileStat) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(pa.PythonFile(PythonFile(storage.open_file(file.url, file)), mode="r"))
    except pa.ArrowInvalid as error:
        raise DagflowError(f"{redacted(file.url)} is no file of Parquet: {error}") from error


class TableSource(LookupSource):
    """A table that has versions of its own."""

    def __init__(self, kind: str, location: str, catalog: Mapping[str, str]) -> None:
        self._table = table_class(kind)(location, (), catalog=catalog)
        self.name = self._table.name

    @property
    def is_near(self) -> bool:
        return self._table.is_near

    def version(self, storage: StorageContext) -> str:
        return self._reader(storage).version

    def columns(self, storage: StorageContext) -> pa.Schema:
        return self._reader(storage).columns

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self._reader(storage).batches(names)

    def _reader(self, storage: StorageContext) -> TableReader:
        reader: TableReader = self._table.target(storage).reader()
        return reader


_KINDS = ("csv", "parquet", "delta", "iceberg")


def _is_read(kind: str) -> bool:
    """Whether records can be joined with tables of a kind."""
    try:
        return kind in _KINDS or table_class(kind).has_reader
    except LookupError:
        return False


def lookup_source(table: str, csv: Mapping[str, Any], catalog: Mapping[str, str]) -> LookupSource:
    kind, colon, location = table.partition(":")
    if not colon or not location or not _is_read(kind):
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
    return TableSource(kind, location, catalog)


class UnitedColumns:
    """Converts the rows of each file to the columns of all files."""

    def __init__(self, table: str, files: Iterable[tuple[str, pa.Schema]]) -> None:
        self._table = table
        self._types: dict[str, pa.DataType] = {}
        self._files: dict[str, str] = {}
        self._clashes: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        for file, schema in files:
            for field in schema:
                self._include(file, field)
                self._counts[field.name] = max(self._counts.get(field.name, 0), schema.names.count(field.name))

    def _include(self, file: str, field: pa.Field) -> None:
        name, kind = field.name, field.type
        there = self._types.setdefault(name, kind)
        if (united := _united(there, kind)) is None:
            first = self._files[name]
            self._clashes.setdefault(name, f"column '{name}' is {there} in {first} and {kind} in {file}")
        elif name not in self._files or united != there:
            self._types[name], self._files[name] = united, file

    @property
    def schema(self) -> pa.Schema:
        """The columns; a name occurs as often as in the file that has it most often."""
        fields = [[pa.field(name, kind)] * self._counts[name] for name, kind in self._types.items()]
        return pa.schema([field for same in fields for field in same])

    def require_united(self, names: Sequence[str]) -> None:
        """Refuse columns without a type for the values of all files."""
        for name in names:
            if name in self._clashes:
                raise _refusal(f"{self._table}: {self._clashes[name]}")

    def fitted(self, file: str, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Rows of a file with some of the columns, with nulls for those that the file lacks."""
        columns = [
            self._cast(file, name, rows.column(name)) if name in rows.schema.names else nulls_of(len(rows), kind)
            for name, kind in ((name, self._types[name]) for name in names)
        ]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _cast(self, file: str, name: str, values: pa.Array) -> Any:
        kind = self._types[name]
        if values.type == kind:
            return values
        try:
            return values.cast(kind)
        except pa.ArrowInvalid as error:
            raise _refusal(
                f"{self._table}: column '{name}' is {type_name(values.type)} in {file}, with values that "
                f"{type_name(kind)} does not have, the type that takes those of the other files: {error}"
            ) from error


def _refusal(message: str) -> DagflowError:
    return DagflowError(message, hint="write the files again, with one type in all of them")


def _united(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for the values of two types; None where there is none, or only one that rounds them."""
    if kind == other:
        return kind
    return joined_type(table_type(kind, plain_type), table_type(other, plain_type), _united_values)


def _united_values(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if (common := common_type(kind, other)) is not None:
        return common
    for digits, number in ((kind, other), (other, kind)):
        # Arrow would convert decimals to doubles, which rounds them, and gives whole numbers too few digits.
        if pa.types.is_decimal(digits) and not pa.types.is_null(number):
            return common_type(digits, as_decimal(normal_type(number))) if pa.types.is_integer(number) else None
    try:
        schemas = [pa.schema([pa.field("", each)]) for each in (kind, other)]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
