"""Tables of CSV to join with, read as BlockReader reads CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from operators.files.metadata import BlockMetadata, FileVersion
from operators.lookup.source import FilesSource
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS


class CsvSource(FilesSource):
    """Files of CSV with the same columns.

    Args:
        location: The file or directory.
        options: Those of the format csv.

    Raises:
        ValueError: The options are wrong.
    """

    def __init__(self, location: str, options: Mapping[str, Any]) -> None:
        super().__init__("csv", location)
        self._options = dict(options)
        self._format()

    def _format(self) -> Any:
        return RECORD_FORMATS.make({"type": "csv", **self._options})

    def columns(self, storage: StorageContext) -> pa.Schema:
        """The columns of the first file that has rows; without any, those that the options name."""
        first = next(self._rows(storage), None)
        if first is not None:
            return first.schema
        schema: pa.Schema = self._format().declared_columns().schema
        return schema

    def batches(self, storage: StorageContext, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of all files."""
        for rows in self._rows(storage):
            missing = [name for name in names if name not in rows.schema.names]
            if missing:
                raise DagflowError(f"{self.name} has a file without a column '{missing[0]}'")
            yield rows.select(list(names))

    def _rows(self, storage: StorageContext) -> Iterator[pa.RecordBatch]:
        for found in self.files(storage):
            yield from self._rows_of(storage, found)

    def _rows_of(self, storage: StorageContext, found: FileStat) -> Iterator[pa.RecordBatch]:
        version = FileVersion(found.size_bytes, found.mtime_ns, found.etag, found.file_id)
        block = BlockMetadata(0, found.url, version, 0, found.size_bytes, is_last=True)
        with storage.open_file(found.url, found) as file:
            content = ContentReader(self._format(), "auto")
            # Nothing takes rejects in: the first bad row is an error, which names the file and its place.
            accounting = BlockAccounting(found.url, Counter(), None)
            for batch in content.parsed(file, block, accounting):
                if len(batch) and not batch.is_raw:
                    yield batch.to_arrow()
