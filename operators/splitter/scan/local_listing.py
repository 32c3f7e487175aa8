"""Lists the machine's own file systems."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from typing import Any

import numpy as np

from dagflow.errors import MissingError, StorageError
from dagflow.storage.backends.local.disk import bounded_ns
from dagflow.storage.fingerprint import file_id_of
from operators.files.metadata import FileVersion
from operators.splitter.scan.listing import ENTRIES_AT_ONCE, Entries, Kind, ListedStats, Lister, Notices
from operators.splitter.scan.worker_program import stat_files


class LocalLister(Lister):
    """Lists local directories.

    Args:
        held_names: Names of one directory that are in memory at a time, about 80 bytes each. A larger directory is
            read several times, each time for the names that come next.
        notices: The notices of the scans of a run; None if this is its only scan.
    """

    is_local = True

    def __init__(self, held_names: int = 500_000, notices: Notices | None = None) -> None:
        self._held_names = held_names
        self._notices = notices or Notices()

    def entries(self, directory: bytes) -> Iterator[Entries]:
        after: bytes | None = b""
        while after is not None:
            links: set[bytes] = set()
            names, after = self._smallest(directory, after, links)
            yield Entries(names, links=frozenset(links))

    def _smallest(self, directory: bytes, after: bytes, links: set[bytes]) -> tuple[list[bytes], bytes | None]:
        """The first names after `after`, sorted, and the last of them; None for it if there are no more.

        All links of the directory are added to links.
        """
        names: list[bytes] = []
        bound: bytes | None = None
        try:
            with os.scandir(directory) as entries:
                while some := [_name_of(entry, links) for entry in itertools.islice(entries, ENTRIES_AT_ONCE)]:
                    if after or bound is not None:
                        some = [name for name in some if name > after and (bound is None or name < bound)]
                    names += some
                    if len(names) > 2 * self._held_names:
                        names.sort()
                        del names[self._held_names :]
                        bound = names[-1]
        except OSError as error:
            raise _listing_error(error, directory, "cannot be listed") from error
        names.sort()
        if bound is None and len(names) <= self._held_names:
            return names, None
        del names[self._held_names :]
        return names, names[-1]

    def stat(self, path: bytes) -> FileVersion | None:
        """See Lister. Pipes, sockets, devices and broken links are no files; each is logged once."""
        try:
            status = os.stat(path)
        except OSError as error:
            if _is_missing(error):
                if os.path.islink(path):
                    self._notices.say("a link that leads nowhere, left out", path)
                return None
            raise _listing_error(error, path, "cannot be examined") from error
        if not stat.S_ISREG(status.st_mode):
            self._notices.say("neither file nor directory, left out", path)
            return None
        return FileVersion(status.st_size, bounded_ns(status.st_mtime_ns), "", file_id_of(status.st_ino))

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], ListedStats]:
        if (columns := stat_files(directory, names)) is None:
            # One by one, so that the log or the error names the file.
            return super().stats(directory, names)
        sizes, times, ids = (np.array(column, np.int64) for column in columns)
        return names, ListedStats(sizes, times, ids)

    def kind(self, path: bytes) -> Kind | None:
        if os.path.isdir(path):
            return "directory"
        return "file" if os.path.lexists(path) else None

    def identity(self, directory: bytes) -> object:
        """Device and inode, which are the same through a symbolic link."""
        try:
            status = os.stat(directory)
        except OSError as error:
            raise _listing_error(error, directory, "cannot be examined") from error
        return status.st_dev, status.st_ino

    def identities_above(self, directory: bytes) -> list[object]:
        identities: list[object] = []
        path = os.path.realpath(directory)
        while (parent := os.path.dirname(path)) != path:
            identities.append(self.identity(parent))
            path = parent
        return identities

    def is_link(self, directory: bytes) -> bool:
        return os.path.islink(directory.rstrip(b"/"))


def _name_of(entry: os.DirEntry[bytes], links: set[bytes]) -> bytes:
    """The entry's name, with "/" added for a directory; added to links if it is one."""
    name = entry.name + b"/" if _is_directory(entry) else entry.name
    if entry.is_symlink():
        links.add(name)
    return name


def _is_directory(entry: os.DirEntry[Any]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself; or stat() gives the reason later


def _is_missing(error: OSError) -> bool:
    """Whether the name does not exist: gone, or a link to nothing, through a file, or to itself."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP


def _listing_error(error: OSError, path: bytes, what: str) -> StorageError:
    kind = MissingError if _is_missing(error) else StorageError
    hint = "give read permission, or leave it out with ignore_pattern" if isinstance(error, PermissionError) else ""
    return kind(f"{what}: {error.strerror}", url=os.fsdecode(path), hint=hint)
