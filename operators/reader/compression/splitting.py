"""Cuts compressed files into blocks that are decompressed in parallel: finds units, and chains them.

A block of a compressed file owns the units that begin in it. Bytes that look like the beginning of a unit may also be
data. So a pre-scan of each block reports the chains of units that lead from such bytes to beyond the block's end; from
the beginning of the file on, the driver takes the chain that begins where that of the block before ended. Where there
is none, the rest of the file belongs to one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from dagflow.errors import CredentialsError, StorageError, TransientStorageError
from dagflow.frozen import frozen
from dagflow.storage.file_kinds import HEAD_BYTES, SKIPPABLE_TAIL, is_skippable
from operators.files.compression import COMPRESSION_BY_NAME, Compression, compression_of_content
from operators.files.metadata import BlockMetadata, DecompressedRange
from operators.reader.byte_source import UNKNOWN_SIZE, ByteSource, read_fully
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


UNIT_FINDERS = {"gzip": GzipUnitFinder("gzip"), "bzip2": UnitFinder("bzip2"), "zstd": ZstdUnitFinder("zstd")}

LOOK_BACK_BYTES = 64 << 10
"""Bytes of content before a block that a format can look back at without decompressing the file from its beginning."""

BEYOND_BYTES = 8 << 20
"""Bytes beyond its block, at least, that a unit may end at; the file is not cut behind a longer unit."""

MOST_CHAINS = 64
"""A block with more chains than this has been crafted to have them, and is not cut."""


@frozen
class UnitChain:
    """Units that follow one another, from the first that begins in a block to the last.

    Attributes:
        entry: Position of the first.
        exit: Position one past the last.
        size_bytes: Size of their content.
        near_place: Position of the last one that has enough behind it to look back, or of the first.
        near_size: Size of the content of the units before it.
    """

    entry: int
    exit: int
    size_bytes: int
    near_place: int
    near_size: int


def chains_of(
    source: ByteSource, block: BlockMetadata, compression: Compression, look_back_bytes: int = LOOK_BACK_BYTES
) -> tuple[UnitChain, ...] | None:
    """The chains of units that may lead out of a block; None where the block cannot be read."""
    try:
        return _Walker(BufferedSource(source), block, UNIT_FINDERS[compression.name], look_back_bytes).chains()
    except (TransientStorageError, CredentialsError):
        raise
    except (StorageError, EOFError):
        # Reading the block will fail in the same way, and on_error decides there.
        return None


class _Walker:
    def __init__(self, held: BufferedSource, block: BlockMetadata, units: UnitFinder, look_back_bytes: int) -> None:
        self._held = held
        self._block = block
        self._units = units
        self._look_back_bytes = look_back_bytes
        self._limit = block.end + max(block.size_bytes, BEYOND_BYTES)
        self._visited: set[int] = set()

    def chains(self) -> tuple[UnitChain, ...]:
        found: list[UnitChain] = []
        for place in self._units.candidates(self._held, self._block.start, self._block.end):
            # A position within an earlier chain leads where that chain does.
            if place not in self._visited and (chain := self._walk(place)) is not None:
                found.append(chain)
                if len(found) > MOST_CHAINS:
                    return ()
        return tuple(found)

    def _walk(self, entry: int) -> UnitChain | None:
        place, size = entry, 0
        steps = [(entry, 0)]
        while place < self._block.end:
            if place in self._visited:
                return None
            self._visited.add(place)
            try:
                unit = self._units.measure(self._held, place, self._limit)
            except NoUnitError:
                if place > entry and self._held.is_padding(place):
                    place = self._held.size_bytes
                    break
                return None
            place, size = unit.end, size + unit.size_bytes
            steps.append((place, size))
            while len(steps) > 2 and steps[1][1] <= size - self._look_back_bytes and steps[1][0] < place:
                del steps[0]
        return UnitChain(entry, place, size, *steps[0])


@frozen
class CutProgress:
    """How far a compressed file is cut.

    Attributes:
        place: Position of the next unit; -1 when the rest of the file belongs to a block already.
        offset: Offset of its content.
        near: Units before it from which reading may begin, as position and offset, ascending.
    """

    place: int = 0
    offset: int = 0
    near: tuple[tuple[int, int], ...] = ((0, 0),)

    @property
    def is_over(self) -> bool:
        return self.place < 0


def assign_range(
    block: BlockMetadata,
    chains: Sequence[UnitChain] | None,
    progress: CutProgress,
    look_back_bytes: int = LOOK_BACK_BYTES,
) -> tuple[BlockMetadata, CutProgress]:
    """Give a block its range of the content of its file."""
    place, offset = progress.place, progress.offset
    if progress.is_over or place >= block.end:
        return block.continued(
            decompressed=DecompressedRange(offset, offset, place, place, *progress.near[0])
        ), progress
    chain = next((chain for chain in chains or () if chain.entry == place), None)
    if chain is None:
        rest = DecompressedRange(offset, UNKNOWN_SIZE, place, -1, *progress.near[0])
        return block.continued(decompressed=rest), replace(progress, place=-1)
    end = offset + chain.size_bytes
    near = [*progress.near, (place, offset), (chain.near_place, offset + chain.near_size)]
    while len(near) > 1 and near[1][1] <= end - look_back_bytes:
        del near[0]
    kept = near[:1]
    for point in near[1:]:
        # Otherwise many small blocks would leave as many positions.
        if point[1] - kept[-1][1] >= max(1, look_back_bytes // 4):
            kept.append(point)
    decompressed = DecompressedRange(offset, end, place, chain.exit, *progress.near[0])
    return block.continued(decompressed=decompressed), CutProgress(chain.exit, end, tuple(kept))


def owned_range(block: BlockMetadata, compression: Compression | None) -> tuple[int, int]:
    """The range of a file, as it is stored, whose records belong to a block; those of all blocks add up to the file.

    For a compressed file these are the units that begin in the block, or the whole file in its first block.
    """
    size, known = block.version.size_bytes, block.continuation
    part = known.decompressed
    if compression is None or known.is_open or known.resumes or known.content_start:
        return block.start, block.end
    if part is None:
        return (size, size) if block.start else (0, size)
    start, end = (size if place < 0 else min(place, size) for place in (part.entry, part.exit))
    return start, end


class DecompressedPart:
    """The content of a file, from a unit somewhat before a block on; from its beginning if a format looks back more."""

    def __init__(self, source: ByteSource, url: str, compression: Compression, decompressed: DecompressedRange) -> None:
        self._source = source
        self._url = url
        self._compression = compression
        borders = [(decompressed.entry, decompressed.start)]
        if decompressed.exit >= 0:
            borders.append((decompressed.exit, decompressed.end))
        place, self._start = decompressed.near_place, decompressed.near_start
        self._near = DecompressedFile(source, url, compression, place, self._start, borders)
        self._front: DecompressedFile | None = None

    @property
    def size_bytes(self) -> int:
        return self._near.size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource.

        Raises:
            CorruptArchiveError: The file is damaged at or before the offset.
        """
        if offset >= self._start:
            return self._near.read_into(offset, buffer)
        if self._front is None:
            self._front = DecompressedFile(self._source, self._url, self._compression)
        return self._front.read_into(offset, buffer)
