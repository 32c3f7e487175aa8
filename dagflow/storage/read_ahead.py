"""Reading ahead on remote stores: bytes are requested before they are needed, which hides latency.

A reader announces the stretches of files that it will read, in order. The next bytes are fetched in large parts, or as
whole small files, several requests at a time, while the reader works on those that have arrived.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from dagflow.errors import TransientStorageError
from dagflow.frozen import frozen, mutable
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, RangedFile, ReadableFile
from dagflow.storage.pending import REQUESTS, request_threads

PART_BYTES = 4 << 20
"""Bytes of a request: enough that its fixed cost vanishes, few enough that several of them fill the budget."""

BUDGET_BYTES = 32 << 20
"""Bytes of one reader that are requested or wait to be read: 640 MB/s at a latency of 50 ms."""

MARGIN_BYTES = 16 << 10
"""Bytes fetched on either side of a stretch, to find its first record and the end of its last one."""

HEAD_BYTES = 4 << 10
"""Bytes fetched of a file whose beginning is in no stretch: formats look for marks and headers there."""


@frozen
class Stretch:
    """Bytes of a file that will be read."""

    file: FileStat
    start: int
    end: int


@mutable
class _Part:
    start: int
    end: int
    future: Future[bytes]


@dataclass(slots=True, eq=False)
class _Opening:
    """A file that will be opened, with its requested or arrived parts, in order."""

    planned: FileStat
    file: RangedFile
    parts: deque[_Part] = field(default_factory=deque)


class ReadAhead:
    """Opens files whose stretches to read are known in advance.

    Files that were not announced, and those of stores without reading ahead (Files.open_planned), are opened by
    StorageContext.open_file. For one thread; not picklable.

    Args:
        budget_bytes: Bytes held and requested at most; one part more where a reader leaves no choice.
    """

    def __init__(self, storage: StorageContext, budget_bytes: int = BUDGET_BYTES) -> None:
        self._storage = storage
        self._budget_bytes = budget_bytes
        self._plan: Iterator[tuple[_Opening, int, int]] = iter(())
        self._openings: deque[_Opening] = deque()
        self._held_bytes = 0
        self._held_parts = 0

    def expect(self, stretches: Iterable[Stretch]) -> None:
        """Start to fetch what will be read; replaces earlier announcements."""
        self.close()
        self._plan = _parts_of(self._storage, stretches)
        self._fill()

    def open(self, url: str, expected: FileStat | None) -> ReadableFile:
        """Open a file; files announced before it are dropped."""
        while self._openings:
            opening = self._openings[0]
            if opening.planned == expected:
                file = AheadFile(self, opening)
                if not opening.file.is_pinned:
                    self._storage.backend(url).files.require_version(opening.planned)
                elif opening.parts:
                    file.arrived(opening.parts[0])  # another version shows here, before its bytes are used
                return file
            self.drop(opening)
        return self._storage.open_file(url, expected)

    def part_at(self, opening: _Opening, offset: int) -> _Part | None:
        """The part of an open file that contains an offset; earlier parts are dropped, and later ones fetched."""
        parts = opening.parts
        # One earlier part is kept: a block begins a little before the end of the bytes read for its predecessor.
        while len(parts) > 2 and parts[2].start <= offset:
            self._release(parts.popleft())
            self._fill()
        return next((part for part in itertools.islice(parts, 3) if part.start <= offset < part.end), None)

    def drop(self, opening: _Opening) -> None:
        while opening.parts:
            self._release(opening.parts.popleft())
        if opening in self._openings:
            self._openings.remove(opening)
        self._fill()

    def close(self) -> None:
        self._plan = iter(())
        while self._openings:
            self.drop(self._openings[0])

    def _release(self, part: _Part) -> None:
        part.future.cancel()
        self._held_bytes -= part.end - part.start
        self._held_parts -= 1

    def _fill(self) -> None:
        while self._held_parts == 0 or (self._held_bytes < self._budget_bytes and self._held_parts < REQUESTS):
            step = next(self._plan, None)
            if step is None:
                return
            opening, start, end = step
            if not self._openings or self._openings[-1] is not opening:
                self._openings.append(opening)
            if start < end:
                opening.parts.append(_Part(start, end, request_threads().submit(opening.file.fetch, start, end)))
                self._held_bytes += end - start
                self._held_parts += 1


class AheadFile(ReadableFile):
    """A file some of whose bytes are fetched before they are needed.

    Guarantee: the one of the opened file; bytes that were not announced are fetched on demand.
    """

    def __init__(self, ahead: ReadAhead, opening: _Opening) -> None:
        self._ahead = ahead
        self._opening = opening
        # The beginning, and the last bytes fetched without an announcement: in case the same few bytes are read again.
        self._kept: dict[bool, tuple[int, bytes]] = {}

    @property
    def size_bytes(self) -> int:
        return self._opening.file.size_bytes

    @property
    def is_pinned(self) -> bool:
        return self._opening.file.is_pinned

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done, wanted = 0, max(0, min(len(buffer), self.size_bytes - offset))
        while done < wanted:
            start, data = self._bytes_at(offset + done, wanted - done)
            some = memoryview(data)[offset + done - start :][: wanted - done]
            buffer[done : done + len(some)] = some
            done += len(some)
        return done

    def _bytes_at(self, offset: int, length: int) -> tuple[int, bytes]:
        for start, data in self._kept.values():
            if start <= offset < start + len(data):
                return start, data
        part = self._ahead.part_at(self._opening, offset)
        if part is None:
            end = min(offset + max(length, MARGIN_BYTES), self.size_bytes)
            piece = offset, self._opening.file.fetch(offset, end)
        else:
            piece = part.start, self.arrived(part)
        if part is None or piece[0] == 0:
            self._kept[piece[0] == 0] = piece[0], piece[1][:MARGIN_BYTES] if piece[0] == 0 else piece[1]
        return piece

    def arrived(self, part: _Part) -> bytes:
        try:
            return part.future.result()
        except (TransientStorageError, CancelledError):
            return self._opening.file.fetch(part.start, part.end)

    def close(self) -> None:
        self._ahead.drop(self._opening)


def _parts_of(storage: StorageContext, stretches: Iterable[Stretch]) -> Iterator[tuple[_Opening, int, int]]:
    """The ranges to fetch, in order; an empty range announces a file without bytes to fetch."""
    for planned, of_file in itertools.groupby(stretches, key=lambda stretch: stretch.file):
        file = storage.backend(planned.url).files.open_planned(planned)
        if file is None:
            continue
        opening = _Opening(planned, file)
        yield opening, 0, 0
        is_first = True
        for start, end in _joined(planned.size_bytes, of_file):
            if is_first and start > 0:
                yield opening, 0, min(HEAD_BYTES, start)
            is_first = False
            for position in range(start, end, PART_BYTES):
                yield opening, position, min(position + PART_BYTES, end)


def _joined(size_bytes: int, stretches: Iterable[Stretch]) -> Iterator[tuple[int, int]]:
    """The stretches of one file with their margins; adjacent ones are joined, and cut at multiples of PART_BYTES."""
    start = end = 0
    for stretch in stretches:
        first, last = max(0, stretch.start - MARGIN_BYTES), min(size_bytes, stretch.end + MARGIN_BYTES)
        if first > end:
            if start < end:
                yield start, end
            start = end = first
        end = max(end, last)
        whole = (end - start) // PART_BYTES * PART_BYTES
        if whole:
            yield start, start + whole
            start += whole
    if start < end:
        yield start, end
