"""Units of a compressed file: the parts that can be decompressed without the bytes before them."""

from __future__ import annotations

import bz2
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from dagflow.storage.file_kinds import BZIP2_BLOCK, BZIP2_END, SKIPPABLE_TAIL, is_skippable
from operators.files.compression import COMPRESSION_BY_NAME, Decompressor
from operators.reader.byte_source import ByteSource, read_fully
from operators.reader.compression.stream import DecompressedFile

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
        """Length of the file."""
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


class GzipUnitFinder(UnitFinder):
    """Finds the members of a gzip file. Members of BGZF, which bgzip writes, have their lengths in the header."""

    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        """See UnitFinder."""
        for place in held.occurrences(b"\x1f\x8b\x08", start, end):
            flags = held.at(place + 3, 1)
            if flags and not flags[0] & 0xE0:
                yield place

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        """See UnitFinder."""
        head = held.at(place, 18)
        if not head.startswith(b"\x1f\x8b\x08"):
            raise NoUnitError("no gzip member")
        length = _bgzf_length(head)
        if not length:
            return decompressed_unit(COMPRESSION_BY_NAME["gzip"].decompressor(), held, place, limit)
        trailer = held.at(place + length - 4, 4)
        if len(trailer) < 4:
            raise NoUnitError("the file ends in the middle of a member")
        return CompressedUnit(place + length, int.from_bytes(trailer, "little"))


def _bgzf_length(head: bytes) -> int:
    """The length of a member by its header; 0 if the header does not have it."""
    is_bgzf = len(head) == 18 and head[3] == 4 and head[10:16] == b"\x06\0BC\x02\0"
    length = int.from_bytes(head[16:18], "little") + 1
    return length if is_bgzf and length > 26 else 0


class ZstdUnitFinder(UnitFinder):
    """Finds the frames of a zstd file by the headers of their blocks; decompresses only those that hide their size.

    Source:
        RFC 8878, sections 3.1.1 and 3.1.2.
    """

    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        """See UnitFinder."""
        frames = list(held.occurrences(COMPRESSION_BY_NAME["zstd"].magic, start, end))
        tails = held.occurrences(SKIPPABLE_TAIL, start + 1, end + 1)
        skippable = [tail - 1 for tail in tails if held.at(tail - 1, 1)[0] & 0xF0 == 0x50]
        yield from sorted(frames + skippable)

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        """See UnitFinder."""
        head = held.at(place, 18)
        if is_skippable(head):
            return _within(held, CompressedUnit(place + 8 + int.from_bytes(head[4:8], "little"), 0), limit)
        if not head.startswith(COMPRESSION_BY_NAME["zstd"].magic) or len(head) < 6:
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
        return decompressed_unit(COMPRESSION_BY_NAME["zstd"].decompressor(), held, place, limit)


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


MARKER_BITS = 48
STREAM_HEADER_BITS = 32
BLOCK_BYTES = 4 << 20
"""Above the size of any compressed block: 900,000 symbols of 20 bits, and the tables."""

SCANNED_BYTES = 256 << 10


class Bzip2UnitFinder(UnitFinder):
    """Finds the blocks of a bzip2 file, the first of a stream with the stream's header, the last with its end.

    Each block is decompressed as a stream of its own, so that its own checksum is checked, but not the one over all
    blocks of a stream. The chain of positions shows that blocks follow each other without a gap.
    """

    positions_per_byte = 8

    def candidates(self, held: BufferedSource, start: int, end: int) -> Iterator[int]:
        """See UnitFinder."""
        for place, is_block in markers(held, 8 * start, 8 * end + STREAM_HEADER_BITS):
            begin = place - STREAM_HEADER_BITS
            if begin >= 0 and _is_header(held, begin):
                if 8 * start <= begin < 8 * end:
                    yield begin
            elif is_block and place < 8 * end:
                yield place

    def measure(self, held: BufferedSource, place: int, limit: int) -> CompressedUnit:
        """See UnitFinder."""
        end, content = unit_at(held, place)
        if end > 8 * limit:
            raise NoUnitError("the block ends too far away")
        return CompressedUnit(end, len(content))


class Bzip2Blocks(DecompressedFile):
    """The content of a bzip2 file from a block on."""

    def __init__(self, source: ByteSource, url: str, place: int, start: int) -> None:
        self._held = BufferedSource(source)
        self._first = self._place = place
        super().__init__(source, url, COMPRESSION_BY_NAME["bzip2"], start=start)

    def _rewind(self) -> None:
        super()._rewind()
        self._place = self._first

    def _decompressed(self) -> bytes | None:
        if self._place >= 8 * self._held.size_bytes:
            return None
        if not self._place % 8 and self._place and self._held.is_padding(self._place // 8):
            return None
        try:
            self._place, content = unit_at(self._held, self._place)
        except NoUnitError as error:
            raise self._corrupt(f"it is damaged: {error}", self._place // 8) from error
        return content


def unit_at(held: BufferedSource, place: int) -> tuple[int, bytes]:
    """The end of the unit at a bit, and its content.

    Raises:
        NoUnitError: No unit begins at the bit, or it is damaged.
    """
    begin = place + STREAM_HEADER_BITS if _is_header(held, place) else place
    marker = _bits(held, begin, begin + MARKER_BITS)
    if marker == BZIP2_END and begin > place:
        return _stream_end(held, begin), b""
    if marker != BZIP2_BLOCK:
        raise NoUnitError("no block begins here")
    # Data may look like a marker; then the bytes before it are no whole block, and the next marker is tried.
    for end, is_block in markers(held, begin + MARKER_BITS + 32, begin + 8 * BLOCK_BYTES):
        content = _decompress(held, begin, end)
        if content is not None:
            return end if is_block else _stream_end(held, end), content
    raise NoUnitError("the block is damaged, or the file ends in it")


def _decompress(held: BufferedSource, begin: int, end: int) -> bytes | None:
    """The content of the block between two markers; None where these bytes are no block."""
    crc = _bits(held, begin + MARKER_BITS, begin + MARKER_BITS + 32)
    bits = end - begin
    value = int.from_bytes(_bits(held, begin, end), "big")
    # The checksum of a stream of one block is that of the block.
    tail = BZIP2_END + crc
    length = bits + 8 * len(tail)
    padding = -length % 8
    value = (((value >> (-bits % 8)) << 8 * len(tail)) | int.from_bytes(tail, "big")) << padding
    decompressor = bz2.BZ2Decompressor()
    try:
        content = decompressor.decompress(b"BZh9" + value.to_bytes((length + padding) // 8, "big"))
    except OSError:
        return None
    return content if decompressor.eof and not decompressor.unused_data else None


def _stream_end(held: BufferedSource, marker: int) -> int:
    end = -(-(marker + MARKER_BITS + 32) // 8)
    if end > held.size_bytes:
        raise NoUnitError("the file ends in the end of a stream")
    return 8 * end


def _is_header(held: BufferedSource, place: int) -> bool:
    if place % 8:
        return False
    head = held.at(place // 8, 10)
    return head[:3] == b"BZh" and head[3:4] in b"123456789" and head[4:] in (BZIP2_BLOCK, BZIP2_END)


def _bits(held: BufferedSource, start: int, end: int) -> bytes:
    """The bits of a range, from the highest of a byte on, padded with zeros; fewer at the end of the file."""
    shift = start % 8
    length = -(-end // 8) - start // 8
    data = held.at(start // 8, length)
    if len(data) < length or (not shift and not end % 8):
        return data
    count = end - start
    value = int.from_bytes(data, "big") >> (8 * length - shift - count) & (1 << count) - 1
    return (value << -count % 8).to_bytes(-(-count // 8), "big")


def markers(held: BufferedSource, start: int, end: int) -> Iterator[tuple[int, bool]]:
    """The bits in [start, end) at which a block, True, or the end of a stream, False, seems to begin; ascending."""
    at = start // 8
    while 8 * at < end:
        piece = held.at(at, SCANNED_BYTES + 7)
        if len(piece) < 6:
            return
        found = sorted(
            (8 * at + place, is_block) for is_block, marker in _MARKERS for place in _occurrences(piece, marker)
        )
        yield from ((place, is_block) for place, is_block in found if start <= place < end)
        at += SCANNED_BYTES


def _occurrences(piece: bytes, marker: bytes) -> Iterator[int]:
    """The bits of a piece's first SCANNED_BYTES at which a marker begins."""
    value = int.from_bytes(marker, "big")
    for shift in range(8):
        # The search of the library finds the whole bytes in the middle; only the bits around them are compared here.
        shifted = (value << 8 - shift).to_bytes(7, "big")
        middle = shifted[1:6]
        found = piece.find(middle, 1)
        while 1 <= found <= SCANNED_BYTES:
            around = int.from_bytes(piece[found - 1 : found + 6].ljust(7, b"\0"), "big")
            if (around >> 8 - shift) & (1 << MARKER_BITS) - 1 == value:
                yield 8 * (found - 1) + shift
            found = piece.find(middle, found + 1)


_MARKERS = ((True, BZIP2_BLOCK), (False, BZIP2_END))
