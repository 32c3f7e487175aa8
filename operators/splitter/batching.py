"""Packing small files, so that reading a million of them takes thousands of steps and not millions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dagflow.api.properties import Count, Millis, Size
from dagflow.storage.roots import expanded, shortened
from operators.files.columns import Column
from operators.files.small_file_batch import SmallFileBatch
from operators.splitter.clock import Clock
from operators.splitter.scan.listed_files import FoundFiles

SMALL_PARTS = 16
"""A file is small when so many of its size fit into a pack: packs are then full to within 6 %."""

PackBytes = Annotated[
    Size, Field(ge=0, description="small files, those of up to a sixteenth of this, are read in packs of this size")
]
PackFiles = Annotated[Count, Field(ge=1, description="files in a pack at most")]
PackMillis = Annotated[
    Millis, Field(description="while following: how long small files may wait for their pack to be filled")
]
Packs = Annotated[
    Literal["divided", "whole"],
    Field(
        description="divided: tasks share packs, and a pack ends with its window; whole: one task reads all of a pack, "
        "and a window ends with a pack"
    ),
]
DEFAULT_PACK_BYTES = 16 << 20
DEFAULT_PACK_FILES = 4096


@dataclass(frozen=True, slots=True)
class BatchRules:
    """When a pack is full.

    Attributes:
        pack_bytes: At so many bytes.
        pack_files: At so many files.
        pack_millis: A pack that is not full waits so long for further files; 0 for no longer than its window.
        are_whole: Whether a pack is read by one task, and ends where it is full and not where its window ends.
    """

    pack_bytes: int = DEFAULT_PACK_BYTES
    pack_files: int = DEFAULT_PACK_FILES
    pack_millis: int = 0
    are_whole: bool = False


class SmallFileBatcher:
    """Gathers small files.

    Files that may grow and files that do not never share a pack; see admits.

    Guarantee: the packs are a function of the files in their order and of the windows that they fall into;
    while following, pack_millis makes them one of time as well.

    Args:
        rules: When a pack is full.
        clock: The time.
        waits: Whether files may grow; objects with an etag never do.
    """

    def __init__(self, rules: BatchRules, clock: Clock, *, waits: bool = False) -> None:
        self._waits = waits
        self._rules = rules
        self._clock = clock
        self._clear()

    def _clear(self) -> None:
        self._urls: list[str] = []
        self._sizes: list[int] = []
        self._mtimes: list[int] = []
        self._etags: list[str] = []
        self._fingerprints: list[int] = []
        self._size_bytes = 0
        self._is_open = False
        self._since_s = 0.0

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def urls(self) -> list[str]:
        """The files in the pack."""
        return self._urls

    def is_small(self, size_bytes: int, block_size: int) -> bool:
        """Whether a file belongs into a pack; an empty one always does, because it has no block to be read by."""
        return size_bytes <= self.small_bytes(block_size)

    def small_bytes(self, block_size: int) -> int:
        """Up to which length is_small says yes."""
        return min(block_size, self._rules.pack_bytes // SMALL_PARTS)

    def admits(self, etag: str) -> bool:
        """Whether a file is of the same kind as those in the pack."""
        return not self._urls or self._is_open == (self._waits and not etag)

    def add(self, url: str, size_bytes: int, mtime_ns: int, etag: str, fingerprint: int = 0) -> None:
        """Put a file into the pack."""
        if not self._urls:
            self._since_s = self._clock.elapsed_s()
            self._is_open = self._waits and not etag
        self._urls.append(url)
        self._sizes.append(size_bytes)
        self._mtimes.append(mtime_ns)
        self._etags.append(etag)
        self._fingerprints.append(fingerprint)
        self._size_bytes += size_bytes

    def add_files(self, files: FoundFiles) -> None:
        """Put files into the pack that do not grow, all of which fit."""
        if not self._urls:
            self._since_s = self._clock.elapsed_s()
        self._urls += files.urls
        self._sizes += files.size_bytes.tolist()
        self._mtimes += files.mtime_ns.tolist()
        self._etags += files.stats.etags or [""] * len(files)
        self._fingerprints += [0] * len(files)
        self._size_bytes += int(files.size_bytes.sum())

    def room(self, sizes: Column) -> int:
        """How many of these files fit, the first ones; what has_room says of each in turn."""
        count = min(len(sizes), self._rules.pack_files - len(self._urls))
        fits = int(np.searchsorted(np.cumsum(sizes) + self._size_bytes, self._rules.pack_bytes, side="right"))
        return max(min(count, fits), 0 if self._urls else 1)

    def has_room(self, size_bytes: int) -> bool:
        """Whether one more file of that size fits; into an empty pack any does."""
        rules = self._rules
        count = len(self._urls)
        return not count or (count < rules.pack_files and self._size_bytes + size_bytes <= rules.pack_bytes)

    @property
    def ends_window(self) -> bool:
        """Whether a window may end before the next file."""
        return self.ends_window_after(0)

    def ends_window_after(self, count: int) -> bool:
        """Whether a window may end when so many more files are in the pack."""
        return not (self._rules.are_whole and (self._urls or count))

    @property
    def may_wait(self) -> bool:
        """Whether the pack may wait for further files."""
        return (self._clock.elapsed_s() - self._since_s) * 1000 < self._rules.pack_millis

    def take(self, first_id: int) -> SmallFileBatch:
        """The pack, whose first member gets that id; the next one is empty."""
        pack = SmallFileBatch.of(first_id, self._urls, self._sizes, self._mtimes, self._etags)
        prints = tuple(self._fingerprints) if self._is_open else ()
        pack = replace(pack, is_whole=self._rules.are_whole, is_open=self._is_open, fingerprints=prints)
        self._clear()
        return pack

    def snapshot(self) -> list[Any]:
        """The files that wait."""
        columns = self._sizes, self._mtimes, self._etags, self._fingerprints
        return list(zip(map(shortened, self._urls), *columns, strict=True))

    def restore(self, waiting: list[Any]) -> None:
        """Take back what snapshot gave."""
        self._clear()
        for url, *version in waiting:
            self.add(expanded(url), *version)
