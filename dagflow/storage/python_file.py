"""A stored file as a file object of Python, for libraries."""

from __future__ import annotations

import io
from typing import Protocol

import pyarrow as pa
from typing_extensions import override

from dagflow.storage.files import ReadableFile


class _Readable(Protocol):
    @property
    def size_bytes(self) -> int:
        """Length of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on, as far as the file goes."""


class PythonFile(io.RawIOBase):
    """Bytes that can be read at any position; closing it closes a stored file, if it is the one that holds it."""

    def __init__(self, file: _Readable, *, is_holder: bool = True) -> None:
        self._file = file
        self._is_holder = is_holder
        self._at = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._at

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer
        view = memoryview(buffer).cast("B")
        count = self._file.read_into(self._at, view[: max(0, self._file.size_bytes - self._at)])
        self._at += count
        return count

    @override
    def read(self, size: int = -1) -> bytes:
        left = max(0, self._file.size_bytes - self._at)
        # Damaged lengths ask for more than any memory has.
        return super().read(left if size < 0 else min(size, left)) or b""

    def read_buffer(self, size: int) -> pa.Buffer:
        """Bytes as pyarrow asks for them, which are not copied."""
        buffer = pa.allocate_buffer(min(size, max(0, self._file.size_bytes - self._at)))
        return buffer.slice(0, self.readinto(memoryview(buffer)))

    @override
    def readall(self) -> bytes:
        # Python would read the file piece by piece, each with its own request.
        return self.read()

    @override
    def close(self) -> None:
        if self._is_holder and isinstance(self._file, ReadableFile):
            self._file.close()
        super().close()
