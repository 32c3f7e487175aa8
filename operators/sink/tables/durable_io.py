"""Writes metadata of an Iceberg table on a local disk, and syncs it before the catalog names it."""

from __future__ import annotations

import io
import os

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from typing_extensions import override


class DurableFileIO(PyArrowFileIO):
    """Syncs each local file when it is closed.

    A catalog in a database survives a power loss; if a file that it names does not, the whole table is lost.
    """

    @override
    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    @override
    def create(self, overwrite: bool = False) -> OutputStream:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return _SyncedStream(io.FileIO(self._path, "w" if overwrite else "x"))


class _SyncedStream(io.BufferedWriter):
    @override
    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        path = os.fsdecode(self.name)
        super().close()
        directory = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
