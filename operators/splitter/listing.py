"""One directory's names, in an order that makes a depth-first walk go by the bytes of the paths."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dagflow.errors import MissingError, StorageError

logger = logging.getLogger(__name__)


class Stat(NamedTuple):
    """What tells one version of a file from another.

    Attributes:
        size_bytes: Its length.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        file_id: What a file keeps while it is appended to and loses when another takes its name; 0 where unknown.
    """

    size_bytes: int
    mtime_ns: int
    etag: str
    file_id: int


class Lister(Protocol):
    """How one kind of store is listed."""

    def children(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        """The directory's entries as (name, version), by the bytes of the name.

        A directory's name ends in "/", and sorts with it: so a walk that descends at once goes by path.
        The version is None where it takes another call.

        Raises:
            StorageError: The directory cannot be listed; MissingError where it is gone.
        """

    def stat(self, path: bytes) -> Stat | None:
        """The version of a file, or None where there is none any more, or it is not a file with content.

        Raises:
            StorageError: The store does not say.
        """

    def identity(self, directory: bytes) -> object:
        """What two names of one directory have in common; the walk stops where it meets itself."""

    def url(self, path: bytes) -> str:
        """The path as operators name it."""


class LocalLister:
    """Lists the machine's own file systems."""

    def children(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        """See Lister. Only names are held, about 80 bytes each: a flat directory of a million takes 80 MB."""
        try:
            with os.scandir(directory) as entries:
                names = [entry.name + b"/" if entry.is_dir() else entry.name for entry in entries]
        except OSError as error:
            raise _error(error, directory, "cannot be listed") from error
        names.sort()
        for name in names:
            yield name, None

    def stat(self, path: bytes) -> Stat | None:
        """See Lister. Pipes, sockets and devices are no files; neither is a link that leads nowhere."""
        try:
            found = os.stat(path)
        except FileNotFoundError:
            logger.info("gone, or a link that leads nowhere path=%s", os.fsdecode(path))
            return None
        except OSError as error:
            raise _error(error, path, "cannot be examined") from error
        if not stat.S_ISREG(found.st_mode):
            logger.warning("neither file nor directory, left out path=%s", os.fsdecode(path))
            return None
        return Stat(found.st_size, found.st_mtime_ns, "", found.st_ino)

    def identity(self, directory: bytes) -> object:
        """Device and inode, which symbolic links do not hide."""
        try:
            found = os.stat(directory)
        except OSError as error:
            raise _error(error, directory, "cannot be examined") from error
        return found.st_dev, found.st_ino

    def url(self, path: bytes) -> str:
        """The path itself; bytes that are no text survive as surrogates."""
        return os.fsdecode(path)


def _error(error: OSError, path: bytes, what: str) -> StorageError:
    kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else StorageError
    hint = "give read permission, or leave it out with ignore_pattern" if isinstance(error, PermissionError) else ""
    return kind(f"{what}: {error.strerror}", url=os.fsdecode(path), hint=hint)
