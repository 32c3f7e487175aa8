"""The members of gzip."""

from __future__ import annotations

from collections.abc import Iterator

from operators.files.compression import COMPRESSION_BY_NAME
from operators.reader.compression.units import (
    BufferedSource,
    CompressedUnit,
    NoUnitError,
    UnitFinder,
    decompressed_unit,
)


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
