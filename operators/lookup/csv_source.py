"""Tables of CSV to join with, read as BlockReader reads CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata, FileVersion
from operators.lookup.source import FilesSource
from operators.lookup.united_columns import UnitedColumns
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.csv import Csv


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
            accounting = BlockAccounting(found.url, Counter(), None)
            for batch in content.parsed(file, block, accounting):
                if len(batch) and not batch.is_raw:
                    yield batch.to_arrow()
