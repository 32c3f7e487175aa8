"""The input of a window as ranges of files, each with the output files that its records are in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.regular_expressions import glob_matcher
from dagflow.api.sources import WHOLE, FileSources
from dagflow.frozen import frozen
from dagflow.storage.location import absolute, redacted


@frozen
class InputRange:
    """Bytes of one version of a file that a window read.

    Attributes:
        mtime_ns: When that version was modified, in nanoseconds since 1970.
        etag: The store's tag of it, or "".
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
        last = ranges[-1] if ranges and owners[-1] == own and ranges[-1].end == part.start else None
        if last is not None and replace(part, start=last.start, blocks=last.blocks) == replace(last, end=part.end):
            ranges[-1] = replace(last, end=part.end, blocks=last.blocks + part.blocks)
        else:
            ranges.append(part)
            owners.append(own)
    positions: list[list[int]] = [[] for _ in sources]
    for position, own in enumerate(owners):
        for number in own:
            positions[number].append(position)
    return ranges, [None if known is None else tuple(own) for known, own in zip(sources, positions, strict=True)]


def _pieces(
    blocks: Iterable[tuple[int, InputRange]], outputs: dict[int, list[int]], sources: Sequence[FileSources | None]
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


READ, PLANNED, LEFT_OUT, IN_PART, CORRECTED = "read", "planned", "left out", "left out in part", "corrected"


class VersionRanges:
    """Ranges of one version, by windows in any order: bytes that one window left out and another read are read."""

    def __init__(self) -> None:
        self._planned: list[tuple[int, int]] = []
        self._read: list[tuple[int, int]] = []
        self._left_out: list[tuple[int, int]] = []
        self._is_corrected = False

    def add(self, part: InputRange, skipped: Sequence[Skipped], *, is_planned: bool) -> None:
        """Add a range of the version that a window has read, left out, or is to read.

        Args:
            skipped: Ranges that the window has left out, of any file.
            is_planned: Whether the window is still to be read.
        """
        if is_planned:
            self._planned.append((part.start, part.end))
            return
        position, own = part.start, [each for each in skipped if each.url == part.url]
        self._is_corrected |= any(each.cause == "corrected" for each in own)
        for start, end in sorted((each.lost_start, each.lost_end) for each in own):
            if start < part.end and part.start < end:
                self._left_out.append((max(start, part.start), min(end, part.end)))
                self._read.append((position, max(start, position)))
                position = max(position, end)
        self._read.append((position, max(part.end, position)))

    @property
    def read_bytes(self) -> int:
        return _length(self._read)

    @property
    def planned_bytes(self) -> int:
        return _length(self._planned)

    @property
    def state(self) -> str:
        """One of READ, PLANNED, LEFT_OUT, IN_PART, and CORRECTED where a later version has taken its place."""
        if self._planned:
            return PLANNED
        if _length([*self._read, *self._left_out]) == self.read_bytes:
            return READ
        return IN_PART if self.read_bytes else CORRECTED if self._is_corrected else LEFT_OUT


def _length(ranges: Iterable[tuple[int, int]]) -> int:
    length = last = 0
    for start, end in sorted(ranges):
        length += max(0, end - max(start, last))
        last = max(last, end)
    return length


def matcher_of(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a pattern matches the whole of a location.

    Args:
        pattern: A location in which `*`, `?` and `[...]` stand for any characters, slashes too. It is matched both as
            written, so that `*` stands for the beginning of any location, and relative to the working directory.
    """
    whole = redacted(absolute(pattern))
    matchers = [glob_matcher(each) for each in {redacted(pattern), whole}]

    def matches(url: str) -> bool:
        shown = redacted(url)
        return shown == whole or any(is_match(shown) for is_match in matchers)

    return matches
