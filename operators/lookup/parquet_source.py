"""Tables of Parquet to join with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import redacted
from operators.files.python_file import PythonFile
from operators.lookup.source import FilesSource
from operators.lookup.united_columns import UnitedColumns


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
