"""The blocks of bzip2, which begin at any bit."""

from __future__ import annotations

import bz2
from collections.abc import Iterator

from dagflow.storage.file_kinds import BZIP2_BLOCK, BZIP2_END
from operators.files.compression import COMPRESSION_BY_NAME
from operators.reader.byte_source import ByteSource
from operators.reader.compression.stream import DecompressedFile
from operators.reader.compression.units import BufferedSource, CompressedUnit, NoUnitError, UnitFinder

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
