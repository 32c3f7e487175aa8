"""The frames of zstd."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.storage.compression_marks import SKIPPABLE_TAIL, is_skippable
from operators.files.compression import COMPRESSION_BY_NAME
from operators.reader.compression.units import (
    BufferedSource,
    CompressedUnit,
    NoUnitError,
    UnitFinder,
    decompressed_unit,
)


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
