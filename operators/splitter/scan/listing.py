"""Listing of a store: one directory's entries, in the order of a depth-first walk by the bytes of the paths."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from dagflow.frozen import frozen, mutable
from operators.files.metadata import Column, FileVersion

DIRECTORY = FileVersion(-1)


@mutable
class ListedStats(Sequence[FileVersion]):
    """Versions of many files in columns, which take less memory than objects. See FileVersion for the units.

    Attributes:
        etags: Etags; [] where no file has one.
    """

    size_bytes: Column
    mtime_ns: Column
    file_ids: Column
    etags: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stats: Sequence[FileVersion]) -> ListedStats:
        sizes = np.array([stat.size_bytes for stat in stats], np.int64)
        times = np.array([stat.mtime_ns for stat in stats], np.int64)
        ids = np.array([stat.file_id for stat in stats], np.int64)
        etags = [stat.etag for stat in stats]
        return cls(sizes, times, ids, etags if any(etags) else [])

    @classmethod
    def concatenated(cls, parts: Sequence[ListedStats]) -> ListedStats:
        sizes, times, ids = zip(*((part.size_bytes, part.mtime_ns, part.file_ids) for part in parts), strict=True)
        has_etags = any(part.etags for part in parts)
        etags = [etag for part in parts for etag in part.etags or [""] * len(part)] if has_etags else []
        return cls(np.concatenate(sizes), np.concatenate(times), np.concatenate(ids), etags)

    def __len__(self) -> int:
        return len(self.size_bytes)

    def __getitem__(self, index: int) -> FileVersion:  # type: ignore[override]  # slice() gives stretches
        etag = self.etags[index] if self.etags else ""
        return FileVersion(int(self.size_bytes[index]), int(self.mtime_ns[index]), etag, int(self.file_ids[index]))

    @property
    def identities(self) -> Column:
        return np.array([stat.identity for stat in self], np.int64) if self.etags else self.file_ids

    @property
    def has_etag(self) -> npt.NDArray[np.bool_]:
        return np.fromiter(map(bool, self.etags), bool) if self.etags else np.zeros(len(self), bool)

    @property
    def has_unmarked(self) -> bool:
        """Whether a file has no mark of its version but its size."""
        return bool(((self.size_bytes >= 0) & (self.mtime_ns == 0) & (self.file_ids == 0) & ~self.has_etag).any())

    def slice(self, start: int, end: int) -> ListedStats:
        columns = self.size_bytes[start:end], self.mtime_ns[start:end], self.file_ids[start:end]
        return ListedStats(*columns, self.etags[start:end])

    def take(self, positions: Sequence[int] | npt.NDArray[np.intp]) -> ListedStats:
        rows = np.asarray(positions, np.intp)
        etags = [self.etags[index] for index in rows.tolist()] if self.etags else []
        return ListedStats(self.size_bytes[rows], self.mtime_ns[rows], self.file_ids[rows], etags)


logger = logging.getLogger(__name__)

MAX_NOTICES = 10_000
"""Number of paths that are remembered, some 200 bytes each; warnings beyond are repeated."""


class Notices:
    def __init__(self) -> None:
        self._said: set[tuple[str, bytes]] = set()

    def say(self, what: str, path: bytes) -> None:
        """Log a warning about a path, unless the same was logged before."""
        if (what, path) in self._said:
            return
        if len(self._said) < MAX_NOTICES:
            self._said.add((what, path))
        logger.warning("%s path=%s", what, os.fsdecode(path))


Kind = Literal["file", "directory"]

INCOMPLETE_SUFFIXES = (
    *(b"._COPYING_", b".crdownload", b".filepart", b".part", b".partial"),
    *(b".swo", b".swp", b".swx", b".tmp"),
)
"""Suffixes of the names of incomplete copies and of editors' swap files."""

UNFINISHED_ENDS = (*INCOMPLETE_SUFFIXES, b"~", b"#")
"""Suffixes of names that a scan may skip."""

ENTRIES_AT_ONCE = 1024
"""Number of entries of one directory that are processed together."""


@frozen
class Entries:
    """Consecutive entries of one directory.

    Attributes:
        names: Ascending by their bytes. A directory's name ends in "/" and is sorted with it, so that a walk that
            descends at once visits paths in order. A file's name is empty where its key ends in "/".
        stats: Versions; None where they take further calls.
        is_walked: Whether each directory is followed by everything below it, as paths relative to the listed one.
        directory: Path of the listed directory, with "/" at its end; b"" where the caller knows it.
    """

    names: list[bytes]
    stats: ListedStats | None = None
    is_walked: bool = False
    directory: bytes = b""
    links: frozenset[bytes] = frozenset()

    def __len__(self) -> int:
        return len(self.names)

    def slice(self, start: int, end: int) -> Entries:
        stats = None if self.stats is None else self.stats.slice(start, end)
        return Entries(self.names[start:end], stats, self.is_walked, self.directory, self.links)

    def without(self, names: frozenset[bytes]) -> Entries:
        kept = [at for at, name in enumerate(self.names) if name not in names]
        stats = None if self.stats is None else self.stats.take(kept)
        return replace(self, names=[self.names[at] for at in kept], stats=stats)


class Lister(ABC):
    """Lists one kind of store.

    Guarantee: each entry of a directory that exists throughout comes once, in the order of Entries.names.
    """

    is_local = False
    """Whether paths are those of this machine's file systems."""

    @abstractmethod
    def entries(self, directory: bytes) -> Iterator[Entries]:
        """The entries of a directory, piece by piece; a MissingError if it no longer exists."""

    def queue(self, directories: Iterable[bytes], *, is_whole_tree: bool = False) -> None:  # noqa: B027  # optional
        """Announce directories, or whole trees, that the walk will reach in the order of their paths.

        A lister that prefetches starts on them; others ignore it.
        """

    def walked(self, directory: bytes, names: list[bytes]) -> Iterator[Entries]:
        """Consecutive subdirectories, with everything below them if that was prefetched.

        Yields:
            In the order of their paths: entries with is_walked; or a single directory, which the walk must enter.
        """
        return (Entries([name]) for name in names)

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], ListedStats]:
        """The names that are files now, and their versions."""
        pairs = [(name, stat) for name in names if (stat := self.stat(directory + name)) is not None]
        return [name for name, _ in pairs], ListedStats.of([stat for _, stat in pairs])

    @abstractmethod
    def stat(self, path: bytes) -> FileVersion | None:
        """The version of a file; None where it is gone or is no regular file."""

    @abstractmethod
    def kind(self, path: bytes) -> Kind | None:
        """Whether a file or a directory is at a path, links followed; None if nothing is."""

    @abstractmethod
    def identity(self, directory: bytes) -> object:
        """A value that is equal for all names of a directory, which shows loops of links; MissingError if gone."""

    def identities_above(self, directory: bytes) -> list[object]:
        """The identities of all directories above that of a name, links followed; MissingError if one is gone."""
        return []

    def is_also_directory(self, path: bytes) -> bool:
        """Whether paths exist below the name of a file."""
        return False

    def is_link(self, directory: bytes) -> bool:
        return False

    def url(self, path: bytes) -> str:
        """The path, or a part of one, as text; bytes that are not UTF-8 become surrogates."""
        return os.fsdecode(path)
