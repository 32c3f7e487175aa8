"""One directory's names, in an order that makes a depth-first walk go by the bytes of the paths."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

from dagflow.errors import MissingError, StorageError
from dagflow.storage import files
from dagflow.storage.location import redacted

logger = logging.getLogger(__name__)

Kind = Literal["file", "directory"]


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

    def children(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        """See Lister."""
        after: bytes | None = b""
        while after is not None:
            names, after = self._smallest(directory, after)
            for name in names:
                yield name, None

    def _smallest(self, directory: bytes, after: bytes) -> tuple[list[bytes], bytes | None]:
        """The first names behind one, sorted, and the last of them; None for it where there are no more."""
        names: list[bytes] = []
        bound: bytes | None = None
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    name = entry.name + b"/" if entry.is_dir() else entry.name
                    if name > after and (bound is None or name < bound):
                        names.append(name)
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
        except FileNotFoundError:
            logger.warning("gone, or a link that leads nowhere, left out path=%s", os.fsdecode(path))
            return None
        except OSError as error:
            raise listing_error(error, path, "cannot be examined") from error
        if not stat.S_ISREG(found.st_mode):
            logger.warning("neither file nor directory, left out path=%s", os.fsdecode(path))
            return None
        return Stat(found.st_size, found.st_mtime_ns, "", found.st_ino)

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


class RemoteLister(Lister):
    """Lists what fsspec reaches; a listing brings the versions along."""

    def children(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        """See Lister."""
        for found in files.list_directory(self.url(directory).rstrip("/")):
            name = os.fsencode(found.url.rpartition("/")[2])
            if found.is_directory:
                yield name + b"/", None
            else:
                yield name, Stat(found.size_bytes, found.mtime_ns, found.etag)

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


def listing_error(error: OSError, path: bytes, what: str) -> StorageError:
    """What to raise for the operating system's refusal to list or examine a local path."""
    kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else StorageError
    hint = "give read permission, or leave it out with ignore_pattern" if isinstance(error, PermissionError) else ""
    return kind(f"{what}: {error.strerror}", url=os.fsdecode(path), hint=hint)
