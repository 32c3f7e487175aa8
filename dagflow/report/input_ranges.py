"""The input of a window as ranges of files, each with the output files that its records are in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dagflow.api.context import VersionKey
from dagflow.api.sources import WHOLE, FileSources


@dataclass(frozen=True, slots=True)
class InputRange:
    """Bytes of one version of a file that a window read.

    Attributes:
        mtime_ns: When that version was modified, in nanoseconds since 1970.
        etag: The store's tag of it, or "".
        blocks: How many blocks the range was cut into.
        partition: The partition that read them, or None where all did.
        discovered_ms: When a scan listed the version, in milliseconds since 1970; 0 where that is not known.
    """

    url: str
    size_bytes: int
    mtime_ns: int
    etag: str
    start: int
    end: int
    blocks: int
    port: str
    partition: int | None
    discovered_ms: int = 0

    @property
    def version(self) -> VersionKey:
        return self.url, self.size_bytes, self.mtime_ns, self.etag


def attributed(
    blocks: Iterable[tuple[int, InputRange]], sources: Sequence[FileSources | None]
) -> tuple[list[InputRange], list[tuple[int, ...] | None]]:
    """Ranges of files, as large as they can be where each has one set of output files.

    Args:
        blocks: Every block that a window read, with its id, by partition.

    Returns:
        The ranges; and for each output file the positions of those that its records come from, None where its
        sources are not known.
    """
    outputs: dict[int, list[int]] = defaultdict(list)
    for number, known in enumerate(sources):
        for block_id in known.ids() if known is not None else ():
            outputs[block_id].append(number)
    ranges: list[InputRange] = []
    owners: list[list[int]] = []
    for part, own in _pieces(blocks, outputs, sources):
        if ranges and owners[-1] == own and _continues(ranges[-1], part):
            ranges[-1] = replace(ranges[-1], end=part.end, blocks=ranges[-1].blocks + part.blocks)
        else:
            ranges.append(part)
            owners.append(own)
    positions: list[list[int]] = [[] for _ in sources]
    for position, own in enumerate(owners):
        for number in own:
            positions[number].append(position)
    return ranges, [None if known is None else tuple(own) for known, own in zip(sources, positions, strict=True)]


def _pieces(
    blocks: Iterable[tuple[int, InputRange]],
    outputs: dict[int, list[int]],
    sources: Sequence[FileSources | None],
) -> Iterator[tuple[InputRange, list[int]]]:
    """The blocks, each cut where one of its output files ends and the next one begins, with its output files."""
    for block_id, block in blocks:
        own = outputs.get(block_id, [])
        extents = {number: _extent(block_id, block, sources[number]) for number in own}
        cuts = sorted({block.start, block.end, *(place for extent in extents.values() for place in extent)})
        if len(cuts) < 2:
            yield block, own
        for start, end in pairwise(cuts):
            within = [number for number in own if extents[number][0] <= start and end <= extents[number][1]]
            yield replace(block, start=start, end=end), within


def _extent(block_id: int, block: InputRange, sources: FileSources | None) -> tuple[int, int]:
    """The part of a block that an output file has records of."""
    start, end = block.start, block.end
    if sources is not None and sources.runs:
        if sources.start != WHOLE and sources.runs[0] == block_id:
            start = sources.start
        if sources.end != WHOLE and sources.runs[-2] + sources.runs[-1] - 1 == block_id:
            end = sources.end
    return start, end


def _continues(last: InputRange, part: InputRange) -> bool:
    return last.end == part.start and replace(part, start=last.start, blocks=last.blocks) == replace(last, end=part.end)
