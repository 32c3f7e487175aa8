"""Listing local directories by tasks: whole directories, and hash shards of large ones."""

from __future__ import annotations

import logging
import os
import stat as mode
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.errors import StorageError
from dagflow.storage.local_disk import bounded_ns
from operators.splitter.scan.listing import (
    DIRECTORY,
    Entries,
    LocalLister,
    Stats,
    is_directory,
    leads_nowhere,
    listing_error,
)
from operators.splitter.scan.queued_directories import QueuedDirectories

logger = logging.getLogger(__name__)

_NO_STATS = np.empty((0, 3), np.int64)

InTasks = Callable[[Callable[[Any], Any], list[Any]], list[Any]]
"""Applies a function to items in tasks, and gives the results in order."""

LARGE_NAMES = 2_000
"""A directory with more names is dealt to tasks by hash shards; a smaller one is listed by one task."""

SHARDS = 8
HELD_NAMES = 200_000
"""Names of a large directory that are held at a time; it is read once more for each so many."""

AHEAD = 256
"""Directories that are listed by one job, ahead of the walk."""


@dataclass(frozen=True, slots=True)
class ListingTask:
    """A part of a directory to be listed.

    Attributes:
        directory: Its path, with a slash at its end.
        shard: Which of the names, by shard_of.
        shards: How many shards there are; 1 for all names.
        after: Only names behind this one.
        limit: How many names at most; the first ones.
    """

    directory: bytes
    shard: int = 0
    shards: int = 1
    after: bytes = b""
    limit: int = LARGE_NAMES


@dataclass(frozen=True, slots=True)
class Listed:
    """What a task found, in columns.

    Attributes:
        names: Sorted; a directory's ends in "/".
        stats: For each: length, modification time, inode; DIRECTORY's length for a directory.
        goes_on_after: The last name that was looked at, where there are more behind it; else None.
        error: Why there is nothing; None if there is.
    """

    names: list[bytes]
    stats: npt.NDArray[np.int64]
    goes_on_after: bytes | None = None
    error: StorageError | None = None


def shard_of(name: bytes, shards: int) -> int:
    """The shard of a name, the same in every process and every version; from 0 to shards - 1."""
    # A CRC is linear, so that names which count up would fill shards in a pattern: the multiplication mixes it.
    mixed = (zlib.crc32(name) * 0x9E3779B1) & 0xFFFFFFFF
    return (mixed * shards) >> 32


def list_part(task: ListingTask) -> Listed:
    """List a part of a directory and examine its files; runs in a task."""
    try:
        descriptor = os.open(task.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _listed(task, descriptor)
        finally:
            os.close(descriptor)
    except StorageError as error:
        return Listed([], _NO_STATS, error=error)
    except OSError as error:
        return Listed([], _NO_STATS, error=listing_error(error, task.directory, "cannot be listed"))


def _listed(task: ListingTask, descriptor: int) -> Listed:
    with os.scandir(descriptor) as entries:
        # Scanning by a descriptor gives text, whatever the names are.
        names = [os.fsencode(entry.name) + (b"/" if is_directory(entry) else b"") for entry in entries]
    names = [name for name in names if name > task.after]
    if task.shards > 1:
        names = [name for name in names if shard_of(name, task.shards) == task.shard]
    is_cut = len(names) > task.limit
    names.sort()
    del names[task.limit :]
    kept, rows = [], []
    for name in names:
        if (row := _examined(task.directory, name, descriptor)) is not None:
            kept.append(name)
            rows.append(row)
    stats = np.array(rows, np.int64) if rows else _NO_STATS
    return Listed(kept, stats, names[-1] if is_cut else None)


def _examined(directory: bytes, name: bytes, descriptor: int) -> tuple[int, int, int] | None:
    """A file's version, or None where there is none any more, or it is not a file with content.

    Raises:
        StorageError: It cannot be examined: never a MissingError, which would say that the directory is gone.
    """
    if name.endswith(b"/"):
        return DIRECTORY.size_bytes, 0, 0
    try:
        found = os.stat(name, dir_fd=descriptor)
    except OSError as error:
        if not leads_nowhere(error):
            raise listing_error(error, directory + name, "cannot be examined") from error
        logger.warning("gone, or a link that leads nowhere, left out path=%s", os.fsdecode(directory + name))
        return None
    if not mode.S_ISREG(found.st_mode):
        logger.warning("neither file nor directory, left out path=%s", os.fsdecode(directory + name))
        return None
    return found.st_size, bounded_ns(found.st_mtime_ns), found.st_ino


class ShardedLister(LocalLister):
    """Lists by tasks what LocalLister lists in the driver.

    Guarantee: the same entries in the same order; the driver holds at most HELD_NAMES names of one directory, and
    AHEAD small directories.

    Args:
        in_tasks: Applies a function to items in tasks.
        large_names: A directory with more names is large.
        large_held_names: Names of a large directory that are held at a time.
    """

    def __init__(self, in_tasks: InTasks, large_names: int = LARGE_NAMES, large_held_names: int = HELD_NAMES) -> None:
        super().__init__()
        self._in_tasks = in_tasks
        self._large_names = large_names
        self._shard_names = max(1, large_held_names // SHARDS)
        self._jobs = ThreadPoolExecutor(1, thread_name_prefix="sharded-listing")
        self._upcoming = QueuedDirectories()
        self._listed: dict[bytes, Future[dict[bytes, Listed]]] = {}

    def expect(self, directories: Iterable[bytes], *, entirely: bool = False) -> None:
        """See Lister."""
        self._upcoming.add(directories)

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        listed = self._taken(directory)
        if listed.error is not None:
            raise listed.error
        if listed.goes_on_after is None:
            yield _entries(listed.names, listed.stats)
        else:
            yield from self._large(directory)

    def _taken(self, directory: bytes) -> Listed:
        """What a job found in a directory; begins one, and another ahead of the walk, where there is none."""
        self._upcoming.enter(directory)
        for passed in [path for path in self._listed if path < directory]:
            del self._listed[passed]
        if directory not in self._listed:
            self._begin([directory])
        found = self._listed.pop(directory).result()[directory]
        if len(self._listed) < AHEAD // 2 and self._upcoming:
            self._begin([])
        return found

    def _begin(self, directories: list[bytes]) -> None:
        directories += self._upcoming.take(AHEAD - len(directories))
        tasks = [ListingTask(directory, limit=self._large_names) for directory in directories]
        job = self._jobs.submit(lambda: dict(zip(directories, self._in_tasks(list_part, tasks), strict=True)))
        self._listed.update(dict.fromkeys(directories, job))

    def _large(self, directory: bytes) -> Iterator[Entries]:
        round_of = self._begin_round(directory, b"")
        while True:
            parts = round_of.result()
            if (error := next((part.error for part in parts if part.error is not None), None)) is not None:
                raise error
            cuts = [part.goes_on_after for part in parts if part.goes_on_after is not None]
            after = min(cuts, default=None)
            if after is not None:
                round_of = self._begin_round(directory, after)
            names = np.array([name for part in parts for name in part.names], object)
            stats = np.concatenate([part.stats for part in parts])
            order = np.argsort(names)
            if after is not None:
                order = order[: int(np.searchsorted(names[order], after, side="right"))]
            yield _entries(names[order].tolist(), stats[order])
            if after is None:
                return

    def _begin_round(self, directory: bytes, after: bytes) -> Future[list[Listed]]:
        tasks = [ListingTask(directory, shard, SHARDS, after, self._shard_names) for shard in range(SHARDS)]
        return self._jobs.submit(self._in_tasks, list_part, tasks)


def _entries(names: list[bytes], stats: npt.NDArray[np.int64]) -> Entries:
    return Entries(names, Stats(*np.ascontiguousarray(stats.T)))
