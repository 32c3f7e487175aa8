"""Units of a compressed file: the parts that can be decompressed without the bytes before them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from dagflow.storage.compression_marks import SKIPPABLE_TAIL
from operators.files.compression import Compression, Decompressor
from operators.reader.byte_source import ByteSource, read_fully

INPUT_BYTES = 256 << 10
"""Bytes of a compressed file that are read at a time."""

COUNTED_BYTES = 1 << 20
"""Bytes that are decompressed at a time when only the length is needed."""


def may_become_skippable(compression: Compression, head: bytes) -> bool:
    """Whether these may be the first bytes of a frame without data."""
    return compression.name in ("zstd", "lz4") and SKIPPABLE_TAIL.startswith(head[1:4]) and head[0] & 0xF0 == 0x50


class NoUnitError(ValueError):
    """No whole unit begins at a position, or the unit is longer than allowed."""


class CompressedUnit(NamedTuple):
    """A unit of a compressed file.

    Attributes:
        end: The position one past its end.
        size_bytes: Size of its content.
    """

    end: int
    size_bytes: int


class BufferedSource:
    """The bytes of a compressed file; the range that was read last is kept in memory.

    Args:
        source: The file.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self._source.size_bytes

    def at(self, offset: int, length: int) -> bytes:
        """The bytes from an offset on; fewer than length at the end of the file.

        Raises:
            StorageError: The source failed.
            EOFError: The source ended before its size.
        """
        length = max(0, min(length, self.size_bytes - offset))
        if not self._start <= offset <= offset + length <= self._start + len(self._data):
            # An offset may lie beyond the end.
            data = bytearray(max(0, min(max(length, INPUT_BYTES), self.size_bytes - offset)))
            read_fully(self._source, offset, memoryview(data))
            self._data, self._start = bytes(data), offset
        return self._data[offset - self._start :][:length] if length else b""

    def is_padding(self, offset: int) -> bool:
        """Whether all bytes from an offset on are zeros."""
        while piece := self.at(offset, INPUT_BYTES):
            if piece.strip(b"\0"):
                return False
            offset += len(piece)
        return True

    def occurrences(self, pattern: bytes, start: int, end: int) -> Iterator[int]:
        """Where a pattern begins in [start, end), ascending; occurrences may end beyond."""
        while start < end:
            piece = self.at(start, min(INPUT_BYTES, end - start) + len(pattern) - 1)
            found = piece.find(pattern)
            while found >= 0:
                yield start + found
                found = piece.find(pattern, found + 1)
            start += INPUT_BYTES


class UnitFinder(ABC):
    """Finds the units of files of one compression. A position is an offset in bytes, times positions_per_byte."""

    positions_per_byte: ClassVar[int] = 1

    @abstractmethod
    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        """Positions in the bytes [start, end) where a unit begins, or bytes that look like one; ascending."""

    @abstractmethod
    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        """The unit at a position.

        Raises:
            NoUnitError: No unit begins there, or it extends beyond the byte limit.
        """


def decompressed_unit(decompressor: Decompressor, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
    """The unit at a position, measured by decompressing it.

    Raises:
        NoUnitError: No unit begins there, or it extends beyond the byte limit.
    """
    at, size_bytes = place, 0
    while not decompressor.eof:
        data = b""
        if decompressor.needs_input:
            data = held.at(at, INPUT_BYTES)
            at += len(data)
            if not data or at > limit + INPUT_BYTES:
                raise NoUnitError("it does not end")
        try:
            size_bytes += len(decompressor.decompress(data, COUNTED_BYTES))
        except Exception as error:  # each library has errors of its own
            raise NoUnitError(str(error)) from error
    return CompressedUnit(at - len(decompressor.unused_data or b""), size_bytes)
