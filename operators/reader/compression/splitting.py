"""Cuts compressed files into blocks that are decompressed in parallel: finds units, and chains them.

A block of a compressed file owns the units that begin in it. Where those are, bytes that look like the beginning
of one only suggest: they may be data. A survey of each block reports the chains of units that lead from such
bytes to beyond the block's end; the driver takes the one that begins where the block before was left, from the
beginning of the file on. Where none does, all that is left of the file belongs to one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dagflow.errors import StorageError, TransientStorageError
from operators.files.compression import Codec
from operators.files.metadata import BlockMetadata, Unpacked
from operators.reader.compression.bzip2 import Bzip2Blocks, Bzip2Units
from operators.reader.compression.stream import UNKNOWN_SIZE, DecompressedFile
from operators.reader.compression.units import GzipUnits, Held, NoUnitError, Units, ZstdUnits
from operators.reader.formats.base import ByteSource

UNITS_BY_CODEC: dict[str, Units] = {"gzip": GzipUnits(), "bzip2": Bzip2Units(), "zstd": ZstdUnits()}

LOOK_BACK_BYTES = 64 << 10
"""So much before a block can be had without reading the file from its beginning on."""

BEYOND_BYTES = 8 << 20
"""So far beyond its block a unit may end, or a block's length beyond it; else the file is not cut from there on."""

MOST_CHAINS = 64
"""More chains are a file that is made to have them."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Units that follow one another, from the first that begins in a block to the last.

    Attributes:
        entry: Place of the first.
        exit: Place behind the last.
        size_bytes: How much is compressed in them.
        near_place: Place of the last one that has enough behind it to look back, or of the first.
        near_size: How much is compressed in those before it.
    """

    entry: int
    exit: int
    size_bytes: int
    near_place: int
    near_size: int


def chains_of(
    source: ByteSource, block: BlockMetadata, codec: Codec, look_back_bytes: int = LOOK_BACK_BYTES
) -> tuple[Chain, ...] | None:
    """The chains of units that a block may be left by; None where it cannot be examined."""
    try:
        return _Walker(Held(source), block, UNITS_BY_CODEC[codec.name], look_back_bytes).chains()
    except TransientStorageError:
        raise
    except (StorageError, EOFError):
        # Reading the block will say so, and whether the run goes on is decided there.
        return None


class _Walker:
    def __init__(self, held: Held, block: BlockMetadata, units: Units, look_back_bytes: int) -> None:
        self._held = held
        self._block = block
        self._units = units
        self._look_back_bytes = look_back_bytes
        self._end = block.end * units.places_per_byte
        self._limit = block.end + max(block.size_bytes, BEYOND_BYTES)
        self._visited: set[int] = set()

    def chains(self) -> tuple[Chain, ...]:
        found: list[Chain] = []
        for place in self._units.candidates(self._held, self._block.start, self._block.end):
            # What begins in the middle of a chain leads where the chain does, also when that is nowhere.
            if place not in self._visited and (chain := self._walk(place)) is not None:
                found.append(chain)
                if len(found) > MOST_CHAINS:
                    return ()
        return tuple(found)

    def _walk(self, entry: int) -> Chain | None:
        place, size = entry, 0
        steps = [(entry, 0)]
        while place < self._end:
            if place in self._visited:
                return None
            self._visited.add(place)
            try:
                unit = self._units.measure(self._held, place, self._limit)
            except NoUnitError:
                if place > entry and self._is_padding(place):
                    place = self._held.size_bytes * self._units.places_per_byte
                    break
                return None
            place, size = unit.end, size + unit.size_bytes
            steps.append((place, size))
            while len(steps) > 2 and steps[1][1] <= size - self._look_back_bytes and steps[1][0] < place:
                del steps[0]
        return Chain(entry, place, size, *steps[0])

    def _is_padding(self, place: int) -> bool:
        per_byte = self._units.places_per_byte
        return not place % per_byte and self._held.is_padding(place // per_byte)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a compressed file is cut.

    Attributes:
        place: Where the next unit begins; -1 when all that is left belongs to a block already.
        offset: Offset of what is compressed in it.
        near: Units before it from which reading may begin, as place and offset, ascending.
    """

    place: int = 0
    offset: int = 0
    near: tuple[tuple[int, int], ...] = ((0, 0),)

    @property
    def is_over(self) -> bool:
        """Whether no later block has anything."""
        return self.place < 0


def unpack_block(
    block: BlockMetadata,
    chains: Sequence[Chain] | None,
    progress: Progress,
    codec: Codec,
    look_back_bytes: int = LOOK_BACK_BYTES,
) -> tuple[BlockMetadata, Progress]:
    """Tell a block what it has of what is compressed in its file.

    Args:
        block: The block.
        chains: What chains_of found.
        progress: How far the file is cut before the block.
        codec: The file's compression.
        look_back_bytes: As chains_of had it.

    Returns:
        The block, and how far the file is cut behind it.
    """
    place, offset = progress.place, progress.offset
    if progress.is_over or place >= block.end * UNITS_BY_CODEC[codec.name].places_per_byte:
        return replace(block, unpacked=Unpacked(offset, offset, place, place, *progress.near[0])), progress
    chain = next((chain for chain in chains or () if chain.entry == place), None)
    if chain is None:
        rest = Unpacked(offset, UNKNOWN_SIZE, place, -1, *progress.near[0])
        return replace(block, unpacked=rest), replace(progress, place=-1)
    end = offset + chain.size_bytes
    near = [*progress.near, (place, offset), (chain.near_place, offset + chain.near_size)]
    while len(near) > 1 and near[1][1] <= end - look_back_bytes:
        del near[0]
    kept = near[:1]
    for point in near[1:]:
        # Many small blocks would else leave as many places.
        if point[1] - kept[-1][1] >= max(1, look_back_bytes // 4):
            kept.append(point)
    unpacked = Unpacked(offset, end, place, chain.exit, *progress.near[0])
    return replace(block, unpacked=unpacked), Progress(chain.exit, end, tuple(kept))


class CutFile:
    """What is compressed in a file, read from a unit somewhat before a block on; from the beginning where need be.

    Args:
        source: The compressed file.
        url: Its name, for errors.
        codec: Its compression.
        unpacked: What was found of the block.
    """

    def __init__(self, source: ByteSource, url: str, codec: Codec, unpacked: Unpacked) -> None:
        self._source = source
        self._url = url
        self._codec = codec
        self._near = self._opened(unpacked)
        self._start = unpacked.near_start
        self._front: DecompressedFile | None = None

    def _opened(self, unpacked: Unpacked) -> DecompressedFile:
        place, start = unpacked.near_place, unpacked.near_start
        if self._codec.name == "bzip2":
            return Bzip2Blocks(self._source, self._url, place, start)
        borders = [(unpacked.entry, unpacked.start)]
        if unpacked.exit >= 0:
            borders.append((unpacked.exit, unpacked.end))
        return DecompressedFile(self._source, self._url, self._codec, place, start, borders)

    @property
    def size_bytes(self) -> int:
        """How many bytes are compressed in the file; UNKNOWN_SIZE until its end was seen."""
        return self._near.size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource.

        Raises:
            CorruptArchiveError: The file is damaged at or before that place.
        """
        if offset >= self._start:
            return self._near.read_into(offset, buffer)
        if self._front is None:
            self._front = DecompressedFile(self._source, self._url, self._codec)
        return self._front.read_into(offset, buffer)
