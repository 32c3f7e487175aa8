"""Files that are written in chunks, whose size on disk is known when a chunk is written."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from operators.sink.formats.base import FileEncoder, FileStream

_LAST_SHARE = 0.25
"""A chunk is sized to fill a file only if at most this share of the file is left: then the estimate is more precise."""

_FULL_SHARE = 0.04
"""A file with no more than this share of its size left is full."""


class ChunkedEncoder(FileEncoder):
    """Holds rows until there are enough for a chunk, and writes them together, compressed.

    How much a chunk takes up on disk is estimated from the chunks before it, so that the file ends near its size.

    Args:
        stream: Takes the bytes of the file.
        chunk_bytes: Bytes of rows in a chunk at most, as they are in memory.
        max_bytes: The size that the file should have; None for no limit.
    """

    def __init__(self, stream: FileStream, chunk_bytes: int, max_bytes: int | None) -> None:
        self.stream = stream
        self._chunk_bytes = chunk_bytes
        self._max_bytes = max_bytes
        self._held: list[Any] = []
        self._held_bytes = 0
        self._written_bytes = 0
        self._limit = chunk_bytes if max_bytes is None else max(1, min(chunk_bytes, max_bytes // 2))

    @abstractmethod
    def measure(self, rows: Any, room: int) -> tuple[int, int]:
        """How many rows are needed to fill some room, at least one, and how many bytes they have in memory."""

    @abstractmethod
    def write_chunk(self, held: list[Any]) -> None:
        """Write the rows that are held, as one chunk."""

    def end_bytes(self) -> int:
        """Bytes that finish will add to the file, beyond those of the rows."""
        return 0

    def write(self, rows: Any) -> int:
        """Take rows until the file is full."""
        taken = 0
        while taken < len(rows) and self._limit:
            rest = rows.slice(taken)
            count, size_bytes = self.measure(rest, self._limit - self._held_bytes)
            self._held.append(rest.slice(0, count))
            self._held_bytes += size_bytes
            taken += count
            if self._held_bytes >= self._limit:
                self._flush()
                self._limit = self._next_limit()
        return taken

    def _flush(self) -> None:
        self._written_bytes += self._held_bytes
        self.write_chunk(self._held)
        self._held, self._held_bytes = [], 0

    def _next_limit(self) -> int:
        """Bytes of rows that the next chunk takes; 0 if the file is full."""
        if self._max_bytes is None:
            return self._chunk_bytes
        left = self._max_bytes - self.stream.size_bytes - self.end_bytes()
        if left <= self._max_bytes * _FULL_SHARE:
            return 0
        aim = left if left <= self._max_bytes * _LAST_SHARE else left * (1 - _LAST_SHARE)
        return max(1, min(self._chunk_bytes, int(aim * self._written_bytes / self.stream.size_bytes)))

    def finish(self) -> None:
        """Write the last chunk; a file without rows has one, too."""
        if self._held or not self._written_bytes:
            self._flush()
