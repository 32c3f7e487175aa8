"""Units of a compressed file: the parts that can be decompressed without the bytes before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dagflow.storage.file_kinds import HEAD_BYTES, SKIPPABLE_TAIL, is_skippable
from operators.files.compression import COMPRESSION_BY_NAME, compression_of_content
from operators.reader.byte_source import ByteSource, read_fully

INPUT_BYTES = 256 << 10
"""Bytes of a compressed file that are read at a time."""

COUNTED_BYTES = 1 << 20
"""Bytes that are decompressed at a time when only the length is needed."""


class NoUnitError(ValueError):
    """No whole unit begins at a position, or the unit is longer than allowed."""


class CompressedUnit(NamedTuple):
    """A unit of a compressed file."""

    end: int
    size_bytes: int


class BufferedSource:
    """The bytes of a compressed file; the range that was read last is kept in memory."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._start = 0
        self._data = b""

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def at(self, offset: int, length: int) -> bytes:
        """The bytes from an offset on; fewer than length at the end of the file."""
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


class UnitFinder:
    """Finds the streams of files of one compression, and measures them by decompressing them."""

    def __init__(self, name: str) -> None:
        self._compression = COMPRESSION_BY_NAME[name]

    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        """Positions in [start, end) where a unit begins, or bytes that look like one; ascending."""
        for place in held.occurrences(self._compression.magic, start, end):
            if compression_of_content(held.at(place, HEAD_BYTES)) is self._compression:
                yield place

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        """The unit at a position.

        Raises:
            NoUnitError: No unit begins there, or it extends beyond the byte limit.
        """
        decompressor, at, size_bytes = self._compression.decompressor(), place, 0
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


class GzipUnitFinder(UnitFinder):
    """Finds the members of a gzip file. Members of BGZF, which bgzip writes, have their lengths in the header."""

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        length = _bgzf_length(held.at(place, 18))
        if not length:
            return super().measure(held, place, limit)
        trailer = held.at(place + length - 4, 4)
        if len(trailer) < 4:
            raise NoUnitError("the file ends in the middle of a member")
        return CompressedUnit(place + length, int.from_bytes(trailer, "little"))


def _bgzf_length(head: bytes) -> int:
    """The length of a member by its header; 0 if the header does not have it."""
    is_bgzf = len(head) == 18 and head[:4] == b"\x1f\x8b\x08\x04" and head[10:16] == b"\x06\0BC\x02\0"
    length = int.from_bytes(head[16:18], "little") + 1
    return length if is_bgzf and length > 26 else 0


class ZstdUnitFinder(UnitFinder):
    """Finds the frames of a zstd file by the headers of their blocks; decompresses only those that hide their size.

    Source:
        RFC 8878, sections 3.1.1 and 3.1.2.
    """

    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        frames = list(held.occurrences(self._compression.magic, start, end))
        tails = held.occurrences(SKIPPABLE_TAIL, start + 1, end + 1)
        skippable = [tail - 1 for tail in tails if held.at(tail - 1, 1)[0] & 0xF0 == 0x50]
        yield from sorted(frames + skippable)

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        head = held.at(place, 18)
        if is_skippable(head):
            return _within(held, CompressedUnit(place + 8 + int.from_bytes(head[4:8], "little"), 0), limit)
        if not head.startswith(self._compression.magic) or len(head) < 6:
            raise NoUnitError("no zstd frame")
        length, size_bytes = _zstd_header(head)
        at = place + length
        is_last = False
        while not is_last:
            header = held.at(at, 3)
            if len(header) < 3 or at > limit:
                raise NoUnitError("the frame does not end")
            value = int.from_bytes(header, "little")
            is_last, kind = bool(value & 1), value >> 1 & 3
            if kind == 3:
                raise NoUnitError("no zstd block")
            at += 3 + (1 if kind == 1 else value >> 3)
        unit = _within(held, CompressedUnit(at + 4 * bool(head[4] & 4), size_bytes), limit)
        if size_bytes >= 0:
            return unit
        return super().measure(held, place, limit)


def _within(held: BufferedSource, unit: CompressedUnit, limit: int) -> CompressedUnit:
    if unit.end > min(limit, held.size_bytes):
        raise NoUnitError("the frame does not end")
    return unit


def _zstd_header(head: bytes) -> tuple[int, int]:
    """The length of a frame's header, and the size of its content; -1 if the header does not have it."""
    flags = head[4]
    is_single = flags >> 5 & 1
    at = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    length = (is_single, 2, 4, 8)[flags >> 6]
    value = int.from_bytes(head[at : at + length], "little") + (256 if length == 2 else 0)
    return at + length, value if length else -1
