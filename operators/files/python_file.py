"""A stored file as a file object of Python, for libraries."""

from __future__ import annotations

import io

from typing_extensions import override

from dagflow.storage.files import ReadableFile


class PythonFile(io.RawIOBase):
    """An open file that can be read at any position; closing it closes the stored file."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
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
        count = self._file.read_into(self._at, memoryview(buffer))
        self._at += count
        return count

    @override
    def readall(self) -> bytes:
        # Python would read the file piece by piece, each with its own request.
        rest = bytearray(max(0, self._file.size_bytes - self._at))
        done = 0
        with memoryview(rest) as view:
            while done < len(rest) and (count := self.readinto(view[done:])):
                done += count
        return bytes(rest[:done])

    @override
    def close(self) -> None:
        self._file.close()
        super().close()
