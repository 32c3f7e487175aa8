"""A kind of table whose data files are of Arrow IPC."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.sink.formats.base import ArrowFile, FileEncoder, FileStream
from operators.sink.tables.table_files import TableFormat
from tests.visitors.manifest_table import ManifestTable, ManifestTarget


class ArrowFiles(TableFormat):
    """Files of Arrow IPC."""

    @property
    def extension(self) -> str:
        """How their names end."""
        return ".arrow"

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file; all its rows have the columns of the first batch."""
        return ArrowFilesEncoder(stream, self.layout_of(batch), max_bytes)


class ArrowFilesEncoder(FileEncoder):
    """Writes one file, which ends with the batch that fills it."""

    def __init__(self, stream: FileStream, columns: pa.Schema, max_bytes: int | None) -> None:
        self._stream, self._columns, self._max_bytes = stream, columns, max_bytes
        self._writer = pa.ipc.new_file(ArrowFile(stream), columns)
        self._has_rows = False

    def write(self, rows: pa.RecordBatch) -> int:
        """Write rows, and return how many the file took: fewer than there are end it."""
        if self._has_rows and self._max_bytes is not None and self._stream.size_bytes >= self._max_bytes:
            return 0
        self._has_rows = True
        self._writer.write_batch(rows.cast(self._columns))
        return len(rows)

    def finish(self) -> None:
        """Write the end of the file."""
        self._writer.close()


class ArrowManifestTable(ManifestTable):
    """The table of manifests, with other data files."""

    target_class: ClassVar[str] = f"{__name__}.ArrowManifestTarget"
    file_format: ClassVar[type[TableFormat]] = ArrowFiles


class ArrowManifestTarget(ManifestTarget):
    """Takes the files, and reads them."""

    def rows_of(self, file: pa.PythonFile) -> pa.Table:
        """The rows of a data file."""
        return pa.ipc.open_file(file).read_all()
