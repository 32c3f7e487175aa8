"""Listing of a store: one directory's entries, in the order of a depth-first walk by the bytes of the paths."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from operators.splitter.scan.listed_stats import ListedStat, ListedStats

Kind = Literal["file", "directory"]

ENTRIES_AT_ONCE = 1024
"""Number of entries of one directory that are processed together."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Consecutive entries of one directory.

    Attributes:
        names: Ascending by their bytes. A directory's name ends in "/" and is sorted with it, so that a walk that
            descends at once visits paths in order. A file's name is empty where its key ends in "/".
        stats: Versions; None where they take further calls.
        is_walked: Whether each directory is followed by everything below it, as paths relative to the listed one.
        directory: Path of the listed directory, with "/" at its end; b"" where the caller knows it.
        links: The names that are symbolic links.
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
        """The entries of a directory, piece by piece.

        Raises:
            StorageError: The directory cannot be listed; MissingError if it no longer exists.
        """

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
        """The names that are files now, and their versions.

        Raises:
            StorageError: The store failed.
        """
        found = [(name, stat) for name in names if (stat := self.stat(directory + name)) is not None]
        return [name for name, _ in found], ListedStats.of([stat for _, stat in found])

    @abstractmethod
    def stat(self, path: bytes) -> ListedStat | None:
        """The version of a file; None where it is gone or is no regular file.

        Raises:
            StorageError: The store failed.
        """

    @abstractmethod
    def kind(self, path: bytes) -> Kind | None:
        """Whether a file or a directory is at a path, links followed; None if nothing is.

        Raises:
            StorageError: The store failed.
        """

    @abstractmethod
    def identity(self, directory: bytes) -> object:
        """A value that is equal for two names of the same directory, by which a walk detects a loop of links.

        Raises:
            MissingError: The directory no longer exists.
        """

    def identities_above(self, directory: bytes) -> list[object]:
        """The identities of all directories above the one that a name leads to, links followed.

        Raises:
            MissingError: A directory above no longer exists.
        """
        return []

    def is_also_directory(self, path: bytes) -> bool:
        """Whether paths exist below the name of a file.

        Raises:
            StorageError: The store failed.
        """
        return False

    def is_link(self, directory: bytes) -> bool:
        return False

    def url(self, path: bytes) -> str:
        """The path, or a part of one, as text; bytes that are not UTF-8 become surrogates."""
        return os.fsdecode(path)
