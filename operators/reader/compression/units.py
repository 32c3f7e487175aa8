"""Units: the parts of a compressed file that can be decompressed without what lies before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from operators.files.compression import CODEC_BY_NAME, Codec, Decompressor
from operators.reader.formats.base import ByteSource

INPUT_BYTES = 256 << 10
"""How much of a compressed file is read at a time."""

COUNTED_BYTES = 1 << 20
"""How much is decompressed at a time when only its length is wanted."""

SKIPPABLE_TAIL = b"\x2a\x4d\x18"
"""What follows the first byte, 0x50 to 0x5f, of a zstd frame that holds no data."""


def is_skippable(head: bytes) -> bool:
    """Whether a frame of zstd or lz4 that holds no data begins so."""
    return head[1:4] == SKIPPABLE_TAIL and head[0] & 0xF0 == 0x50


def may_become_skippable(codec: Codec, head: bytes) -> bool:
    """Whether a frame that holds no data begins so, as far as it is there."""
    return codec.name in ("zstd", "lz4") and SKIPPABLE_TAIL.startswith(head[1:4]) and head[0] & 0xF0 == 0x50


class NoUnitError(ValueError):
    """No whole unit is at a place, or it is longer than it may be."""


class Unit(NamedTuple):
    """What is known of a unit.

    Attributes:
        end: The place behind it.
        size_bytes: How many bytes are compressed in it.
    """

    end: int
    size_bytes: int


class Held:
    """The bytes of a compressed file, a stretch of which is kept in memory.

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
        """So many bytes from an offset on; fewer at the end of the file.

        Raises:
            StorageError: The source failed.
            EOFError: It ended before its size.
        """
        length = max(0, min(length, self.size_bytes - offset))
        if not self._start <= offset <= offset + length <= self._start + len(self._data):
            self._data = self._read(offset, min(max(length, INPUT_BYTES), self.size_bytes - offset))
            self._start = offset
        return self._data[offset - self._start :][:length] if length else b""

    def _read(self, offset: int, length: int) -> bytes:
        data = bytearray(max(0, length))
        filled = 0
        while filled < length:
            count = self._source.read_into(offset + filled, memoryview(data)[filled:])
            if count <= 0:
                raise EOFError(f"the file ends after {offset + filled} of its {self.size_bytes} bytes")
            filled += count
        return bytes(data)

    def is_padding(self, offset: int) -> bool:
        """Whether nothing but zeros comes."""
        while piece := self.at(offset, INPUT_BYTES):
            if piece.strip(b"\0"):
                return False
            offset += len(piece)
        return True

    def occurrences(self, pattern: bytes, start: int, end: int) -> Iterator[int]:
        """Where a pattern begins in [start, end), ascending; it may end beyond."""
        while start < end:
            piece = self.at(start, min(INPUT_BYTES, end - start) + len(pattern) - 1)
            found = piece.find(pattern)
            while found >= 0:
                yield start + found
                found = piece.find(pattern, found + 1)
            start += INPUT_BYTES


class Units(Protocol):
    """How files of one compression consist of units. A place is an offset in bytes, times places_per_byte."""

    places_per_byte: int

    def candidates(self, held: Held, start: int, end: int) -> Iterator[int]:
        """Places in the bytes [start, end) where a unit begins, or what looks like one; ascending."""

    def measure(self, held: Held, place: int, limit: int) -> Unit:
        """The unit at a place.

        Raises:
            NoUnitError: There is none, or it goes on beyond the byte limit.
        """


class GzipUnits:
    """The members of a gzip file. Those of BGZF, which bgzip writes, tell their lengths."""

    places_per_byte = 1

    def candidates(self, held: Held, start: int, end: int) -> Iterator[int]:
        """See Units."""
        for place in held.occurrences(b"\x1f\x8b\x08", start, end):
            flags = held.at(place + 3, 1)
            if flags and not flags[0] & 0xE0:
                yield place

    def measure(self, held: Held, place: int, limit: int) -> Unit:
        """See Units."""
        head = held.at(place, 18)
        if not head.startswith(b"\x1f\x8b\x08"):
            raise NoUnitError("no gzip member")
        length = _bgzf_length(head)
        if not length:
            return _decompressed_unit(CODEC_BY_NAME["gzip"].decompressor(), held, place, limit)
        trailer = held.at(place + length - 4, 4)
        if len(trailer) < 4:
            raise NoUnitError("the file ends in the middle of a member")
        return Unit(place + length, int.from_bytes(trailer, "little"))


def _bgzf_length(head: bytes) -> int:
    """How long a member is, by its header; 0 where that does not say."""
    is_bgzf = len(head) == 18 and head[3] == 4 and head[10:16] == b"\x06\0BC\x02\0"
    length = int.from_bytes(head[16:18], "little") + 1
    return length if is_bgzf and length > 26 else 0


class ZstdUnits:
    """The frames of a zstd file; walked by the headers of their blocks, and only decompressed if they hide their size.

    Source:
        RFC 8878, sections 3.1.1 and 3.1.2.
    """

    places_per_byte = 1

    def candidates(self, held: Held, start: int, end: int) -> Iterator[int]:
        """See Units."""
        frames = list(held.occurrences(CODEC_BY_NAME["zstd"].magic, start, end))
        tails = held.occurrences(SKIPPABLE_TAIL, start + 1, end + 1)
        skippable = [tail - 1 for tail in tails if held.at(tail - 1, 1)[0] & 0xF0 == 0x50]
        yield from sorted(frames + skippable)

    def measure(self, held: Held, place: int, limit: int) -> Unit:
        """See Units."""
        head = held.at(place, 18)
        if is_skippable(head):
            return _within(held, Unit(place + 8 + int.from_bytes(head[4:8], "little"), 0), limit)
        if not head.startswith(CODEC_BY_NAME["zstd"].magic) or len(head) < 6:
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
        unit = _within(held, Unit(at + 4 * bool(head[4] & 4), size_bytes), limit)
        if size_bytes >= 0:
            return unit
        return _decompressed_unit(CODEC_BY_NAME["zstd"].decompressor(), held, place, limit)


def _within(held: Held, unit: Unit, limit: int) -> Unit:
    if unit.end > min(limit, held.size_bytes):
        raise NoUnitError("the frame does not end")
    return unit


def _zstd_header(head: bytes) -> tuple[int, int]:
    """The length of a frame's header, and the size of what the frame holds; -1 where the header does not say."""
    flags = head[4]
    is_single = flags >> 5 & 1
    at = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    length = (is_single, 2, 4, 8)[flags >> 6]
    value = int.from_bytes(head[at : at + length], "little") + (256 if length == 2 else 0)
    return at + length, value if length else -1


def _decompressed_unit(decompressor: Decompressor, held: Held, place: int, limit: int) -> Unit:
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
    return Unit(at - len(decompressor.unused_data or b""), size_bytes)
