"""One directory's names, in an order that makes a depth-first walk go by the bytes of the paths."""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dagflow.errors import MissingError, StorageError
from dagflow.storage import files
from dagflow.storage.local_disk import bounded_ns
from dagflow.storage.location import redacted
from operators.files.columns import Column
from operators.splitter.scan.worker_program import examined

logger = logging.getLogger(__name__)

Kind = Literal["file", "directory"]

_STRETCH = 1024
"""Entries of a listing that are looked at together."""


class Stat(NamedTuple):
    """What tells one version of a file from another.

    Attributes:
        size_bytes: Its length; -1 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        file_id: What a file keeps while it is appended to and loses when another takes its name; 0 where unknown.
    """

    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    file_id: int = 0

    @property
    def identity(self) -> int:
        """The etag as a signed 64-bit number; without an etag the file_id."""
        if not self.etag:
            return self.file_id
        return int.from_bytes(hashlib.blake2b(self.etag.encode(), digest_size=8).digest(), "little", signed=True)


DIRECTORY = Stat(-1)


@dataclass(slots=True)
class Stats(Sequence[Stat]):
    """Versions of many files, in columns; what each means says Stat.

    Attributes:
        size_bytes: Lengths.
        mtime_ns: Modification times.
        file_ids: What files keep while they are appended to.
        etags: Tags; [] where none has one.
    """

    size_bytes: Column
    mtime_ns: Column
    file_ids: Column
    etags: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stats: Sequence[Stat]) -> Stats:
        """Versions that came one at a time."""
        sizes, times, etags, ids = zip(*stats, strict=True) if stats else ((), (), (), ())
        return cls(_column(sizes), _column(times), _column(ids), list(etags) if any(etags) else [])

    @classmethod
    def joined(cls, parts: Sequence[Stats]) -> Stats:
        """The versions of all parts, at least one."""
        sizes, times, ids = zip(*((part.size_bytes, part.mtime_ns, part.file_ids) for part in parts), strict=True)
        has_etags = any(part.etags for part in parts)
        etags = [etag for part in parts for etag in part.etags or [""] * len(part)] if has_etags else []
        return cls(np.concatenate(sizes), np.concatenate(times), np.concatenate(ids), etags)

    def __len__(self) -> int:
        return len(self.size_bytes)

    def __getitem__(self, index: int) -> Stat:  # type: ignore[override]  # a stretch is asked for by slice()
        """One of them."""
        etag = self.etags[index] if self.etags else ""
        return Stat(int(self.size_bytes[index]), int(self.mtime_ns[index]), etag, int(self.file_ids[index]))

    @property
    def identities(self) -> Column:
        """What Stat calls the identity."""
        return np.array([each.identity for each in self], np.int64) if self.etags else self.file_ids

    def slice(self, start: int, end: int) -> Stats:
        """The stretch [start, end)."""
        columns = self.size_bytes[start:end], self.mtime_ns[start:end], self.file_ids[start:end]
        return Stats(*columns, self.etags[start:end])

    def take(self, chosen: Sequence[int] | npt.NDArray[np.intp]) -> Stats:
        """Those at some positions."""
        positions = np.asarray(chosen, np.intp)
        etags = [self.etags[index] for index in positions.tolist()] if self.etags else []
        return Stats(self.size_bytes[positions], self.mtime_ns[positions], self.file_ids[positions], etags)


def _column(values: Sequence[int]) -> Column:
    return np.array(values, np.int64)


@dataclass(frozen=True, slots=True)
class Entries:
    """A stretch of a directory's entries.

    Attributes:
        names: By their bytes. A directory's ends in "/", and sorts with it: so a walk that descends at once goes
            by path.
        stats: Their versions; None where that takes another call.
        is_walked: Whether behind each directory comes all that is below it, by the path from here.
    """

    names: list[bytes]
    stats: Stats | None = None
    is_walked: bool = False


class Lister(Protocol):
    """How one kind of store is listed."""

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """The directory's entries, stretch by stretch, in order.

        Raises:
            StorageError: The directory cannot be listed; MissingError where it is gone.
        """

    def expect(self, directories: Iterable[bytes], *, entirely: bool = False) -> None:
        """A walk will ask for these, or for all that is below them, and goes by path; who can, begins with them."""
        return

    def below(self, directory: bytes, names: list[bytes]) -> Iterator[Entries]:
        """Directories that stand in a row in a listing, with what is below them where that is at hand.

        Yields:
            By paths from the directory: entries that are walked; or a single directory, which is left to the walk.
        """
        return (Entries([name]) for name in names)

    def children(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        """The entries as (name, version), where the version is None if it takes another call; see stretches."""
        for entries in self.stretches(directory):
            yield from zip(entries.names, entries.stats or [None] * len(entries.names), strict=True)

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], Stats]:
        """The versions of files in a directory, without those of which stat() would say None.

        Raises:
            StorageError: The store does not say.
        """
        found = [(name, stat) for name in names if (stat := self.stat(directory + name)) is not None]
        return [name for name, _ in found], Stats.of([stat for _, stat in found])

    def stat(self, path: bytes) -> Stat | None:
        """The version of a file, or None where there is none any more, or it is not a file with content.

        Raises:
            StorageError: The store does not say.
        """

    def kind(self, path: bytes) -> Kind | None:
        """What is at a path, links followed; None where nothing is.

        Raises:
            StorageError: The store does not say.
        """

    def identity(self, directory: bytes) -> object:
        """What two names of one directory have in common; the walk stops where it meets itself.

        Raises:
            MissingError: There is no such directory any more.
        """

    def is_link(self, directory: bytes) -> bool:
        """Whether the name stands for a directory elsewhere."""
        return False

    def url(self, path: bytes) -> str:
        """The path, or a part of one, as operators name it; bytes that are no text survive as surrogates."""
        return os.fsdecode(path)


class LocalLister(Lister):
    """Lists the machine's own file systems.

    Args:
        held_names: How many names of one directory are held at a time, about 80 bytes each. A larger directory
            is read several times, each time for the names that come next.
    """

    def __init__(self, held_names: int = 500_000) -> None:
        self._held_names = held_names

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        after: bytes | None = b""
        while after is not None:
            names, after = self._smallest(directory, after)
            yield Entries(names)

    def _smallest(self, directory: bytes, after: bytes) -> tuple[list[bytes], bytes | None]:
        """The first names behind one, sorted, and the last of them; None for it where there are no more."""
        names: list[bytes] = []
        bound: bytes | None = None
        try:
            with os.scandir(directory) as entries:
                while some := [
                    entry.name + b"/" if is_directory(entry) else entry.name
                    for entry in itertools.islice(entries, _STRETCH)
                ]:
                    if after or bound is not None:
                        some = [name for name in some if name > after and (bound is None or name < bound)]
                    names += some
                    if len(names) > 2 * self._held_names:
                        names.sort()
                        del names[self._held_names :]
                        bound = names[-1]
        except OSError as error:
            raise listing_error(error, directory, "cannot be listed") from error
        names.sort()
        if bound is None and len(names) <= self._held_names:
            return names, None
        del names[self._held_names :]
        return names, names[-1]

    def stat(self, path: bytes) -> Stat | None:
        """See Lister. Pipes, sockets and devices are no files; neither is a link that leads nowhere."""
        try:
            found = os.stat(path)
        except OSError as error:
            if leads_nowhere(error):
                logger.warning("gone, or a link that leads nowhere, left out path=%s", os.fsdecode(path))
                return None
            raise listing_error(error, path, "cannot be examined") from error
        if not stat.S_ISREG(found.st_mode):
            logger.warning("neither file nor directory, left out path=%s", os.fsdecode(path))
            return None
        return Stat(found.st_size, bounded_ns(found.st_mtime_ns), "", found.st_ino)

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], Stats]:
        """See Lister."""
        if (columns := examined(directory, names)) is None:
            # Told one by one, as each file has its own fate.
            return super().stats(directory, names)
        sizes, times, ids = map(_column, columns)
        return names, Stats(sizes, times, ids)

    def kind(self, path: bytes) -> Kind | None:
        """See Lister."""
        if os.path.isdir(path):
            return "directory"
        return "file" if os.path.lexists(path) else None

    def identity(self, directory: bytes) -> object:
        """Device and inode, which symbolic links do not hide."""
        try:
            found = os.stat(directory)
        except OSError as error:
            raise listing_error(error, directory, "cannot be examined") from error
        return found.st_dev, found.st_ino

    def is_link(self, directory: bytes) -> bool:
        """See Lister."""
        return os.path.islink(directory.rstrip(b"/"))


class RemoteLister(Lister):
    """Lists what fsspec reaches; a listing brings the versions along."""

    def stretches(self, directory: bytes) -> Iterator[Entries]:
        """See Lister."""
        names, stats = [], []
        for found in files.list_directory(self.url(directory).rstrip("/")):
            name = os.fsencode(found.url.rpartition("/")[2])
            names.append(name + b"/" if found.is_directory else name)
            stats.append(DIRECTORY if found.is_directory else Stat(found.size_bytes, found.mtime_ns, found.etag))
            if len(names) >= _STRETCH:
                yield Entries(names, Stats.of(stats))
                names, stats = [], []
        yield Entries(names, Stats.of(stats))

    def stat(self, path: bytes) -> Stat | None:
        """See Lister."""
        try:
            found = files.stat(self.url(path))
        except MissingError:
            logger.warning("gone, left out url=%s", redacted(self.url(path)))
            return None
        return None if found.is_directory else Stat(found.size_bytes, found.mtime_ns, found.etag)

    def kind(self, path: bytes) -> Kind | None:
        """See Lister."""
        try:
            return "directory" if files.stat(self.url(path)).is_directory else "file"
        except MissingError:
            return None

    def identity(self, directory: bytes) -> object:
        """The directory's own name: object stores have no links."""
        return directory


def is_directory(entry: os.DirEntry[Any]) -> bool:
    """Whether it is a directory, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself; or who examines it will be told why not


def leads_nowhere(error: OSError) -> bool:
    """Whether it says that there is nothing under a name: gone, or a link to nothing, through a file, or to itself."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP


def listing_error(error: OSError, path: bytes, what: str) -> StorageError:
    """What to raise for the operating system's refusal to list or examine a local path."""
    kind = MissingError if leads_nowhere(error) else StorageError
    hint = "give read permission, or leave it out with ignore_pattern" if isinstance(error, PermissionError) else ""
    return kind(f"{what}: {error.strerror}", url=os.fsdecode(path), hint=hint)
