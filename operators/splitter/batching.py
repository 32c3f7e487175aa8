"""Batches of small files, so that reading a million of them takes thousands of steps and not millions."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from dagflow.frozen import frozen
from dagflow.storage.location import Roots
from operators.files.metadata import Column
from operators.files.small_file_batch import SmallFileBatch
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_sources import Clock

SMALL_PARTS = 16
"""A file is small if this many files of its size fit into a batch: batches are then full to within 6 %."""


@frozen
class BatchState:
    """Files that wait for their batch to be filled, in columns; see SmallFileBatch."""

    urls: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    mtimes: list[int] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    fingerprints: list[int] = field(default_factory=list)
    file_ids: list[int] = field(default_factory=list)
    is_open: bool = False
    discovered_ms: int = 0


class SmallFileBatcher:
    """Gathers small files.

    Files that may grow and files that do not never share a batch; see admits().

    Guarantee: the batches are a function of the files in their order and of their windows;
    with wait_millis also of the time.

    Args:
        max_bytes: Number of bytes at which a batch is full.
        max_files: Number of files at which a batch is full.
        wait_millis: How long a batch that is not full waits for further files; 0 for no longer than its window.
        is_whole: Whether one task reads all of a batch, which then ends where it is full and not where its window ends.
        may_grow: Whether files may grow; objects with an etag never do.
    """

    def __init__(
        self,
        max_bytes: int,
        max_files: int,
        clock: Clock,
        *,
        wait_millis: int = 0,
        is_whole: bool = False,
        may_grow: bool = False,
    ) -> None:
        self._max_bytes, self._max_files = max_bytes, max_files
        self._clock = clock
        self._wait_millis = wait_millis
        self._is_whole = is_whole
        self._may_grow = may_grow
        self._state = BatchState()
        self._size_bytes = 0
        self._since_s = 0.0

    def __len__(self) -> int:
        return len(self._state.urls)

    @property
    def urls(self) -> list[str]:
        return self._state.urls

    def max_small_bytes(self, block_size: int) -> int:
        """Length up to which a file is small; at least 0, because an empty file has no block that could be read."""
        return min(block_size, self._max_bytes // SMALL_PARTS)

    def admits(self, etag: str) -> bool:
        """Whether a file has an etag, or none, as those in the batch: one that has none may grow, and is recognised."""
        return not len(self) or bool(self._state.etags[0]) == bool(etag)

    def add(self, files: ListedFiles) -> None:
        """Add files that fit, of which all have an etag, or none."""
        stats, count = files.stats, len(files)
        if not len(self):
            self._begin(files.discovered_ms, is_open=self._may_grow and not any(stats.etags[:1]))
        state = self._state
        state.urls.extend(files.urls)
        state.sizes.extend(stats.size_bytes.tolist())
        state.mtimes.extend(stats.mtime_ns.tolist())
        state.etags.extend(stats.etags or [""] * count)
        state.fingerprints.extend(files.fingerprints or [0] * count)
        state.file_ids.extend(stats.file_ids.tolist())
        self._size_bytes += int(stats.size_bytes.sum())

    def _begin(self, discovered_ms: int, *, is_open: bool) -> None:
        self._since_s = self._clock.elapsed_s()
        self._state = BatchState(is_open=is_open, discovered_ms=discovered_ms)
        self._size_bytes = 0

    def count_fitting(self, sizes: Column) -> int:
        """How many of these files, the first ones, fit; an empty batch takes any."""
        count = min(len(sizes), self._max_files - len(self))
        fits = int(np.searchsorted(np.cumsum(sizes) + self._size_bytes, self._max_bytes, side="right"))
        return max(min(count, fits), 0 if len(self) else 1)

    def may_end_window(self, more_files: int = 0) -> bool:
        """Whether a window may end with a number of further files in the batch."""
        return not (self._is_whole and (len(self) or more_files))

    @property
    def may_wait(self) -> bool:
        return (self._clock.elapsed_s() - self._since_s) * 1000 < self._wait_millis

    def take(self, first_id: int) -> SmallFileBatch:
        """The batch, whose first file gets that block id; the next batch is empty."""
        state = self._state
        batch = SmallFileBatch.of(first_id, state.urls, state.sizes, state.mtimes, state.etags, state.file_ids)
        prints = tuple(state.fingerprints) if any(state.fingerprints) else ()
        self._state, self._size_bytes = BatchState(), 0
        return replace(
            batch,
            is_whole=self._is_whole,
            is_open=state.is_open,
            fingerprints=prints,
            discovered_ms=state.discovered_ms,
        )

    def snapshot(self, roots: Roots) -> BatchState:
        return _copied(self._state, list(map(roots.shorten, self._state.urls)))

    def restore(self, state: BatchState, roots: Roots) -> None:
        """Take back a snapshot; the time to wait begins anew."""
        self._begin(state.discovered_ms, is_open=state.is_open)
        self._state = _copied(state, list(map(roots.expand, state.urls)))
        self._size_bytes = sum(state.sizes)


def _copied(state: BatchState, urls: list[str]) -> BatchState:
    columns: dict[str, Any] = {
        name: [*getattr(state, name)] for name in ("sizes", "mtimes", "etags", "fingerprints", "file_ids")
    }
    return replace(state, urls=urls, **columns)
