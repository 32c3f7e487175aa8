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


class ParquetSource(FilesSource):
    """Files of Parquet with the same columns.

    Args:
        location: The file or directory.
    """

    def __init__(self, location: str) -> None:
        super().__init__("parquet", location, ".parquet")

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the first file."""
        with _opened(storage, self.files(storage)[0]) as file:
            return file.schema_arrow

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of all files."""
        for found in self.files(storage):
            with _opened(storage, found) as file:
                missing = [name for name in names if name not in file.schema_arrow.names]
                if missing:
                    raise DagflowError(f"{redacted(found.url)} has no column '{missing[0]}', as other files have")
                yield from file.iter_batches(columns=list(names))


def _opened(storage: StorageContext, found: FileStat) -> pq.ParquetFile:
    """A file of Parquet.

    Raises:
        DagflowError: It is none.
    """
    try:
        return pq.ParquetFile(pa.PythonFile(PythonFile(storage.open_file(found.url, found)), mode="r"))
    except pa.ArrowInvalid as error:
        raise DagflowError(f"{redacted(found.url)} is no file of Parquet: {error}") from error
