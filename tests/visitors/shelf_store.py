"""A store of a visitor: a dictionary of names and bytes in this process, by URLs such as `shelf://any/name`.

All of a store is in this one file; an app names it by `storage: {shelf: {backend: tests.visitors.shelf_store.Shelf}}`.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import ClassVar

from typing_extensions import Buffer

from dagflow.errors import AlreadyExistsError, MissingError, StorageError
from dagflow.storage.base import Backend
from dagflow.storage.file_stat import FileStat, require_same_version
from dagflow.storage.files import Files, RangedFile
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    is_earlier_tag,
    lost_output,
)
from dagflow.storage.roots import Roots


class Bytes:
    """What lies on the shelf, by URL: content and version."""

    content: ClassVar[dict[str, tuple[bytes, str]]] = {}
    lock: ClassVar[threading.RLock] = threading.RLock()
    versions: ClassVar[Iterator[int]] = itertools.count(1)

    @classmethod
    def put(cls, url: str, data: bytes) -> None:
        """Put bytes in the place of what is there."""
        cls.content[url] = data, f"v{next(cls.versions)}"

    @classmethod
    def get(cls, url: str, action: str) -> tuple[bytes, str]:
        """The bytes at a URL, and their version."""
        try:
            return cls.content[url]
        except KeyError:
            raise MissingError(f"cannot {action}: nothing is there", url=url) from None


class ShelfFile(RangedFile):
    """A file of the shelf."""

    def request(self, start: int, end: int) -> bytes:
        """See RangedFile."""
        return Bytes.get(self.found.url, "read")[0][start:end]


class ShelfFiles(Files):
    """Files of the shelf; a directory is what names have in common."""

    def stat(self, url: str) -> FileStat:
        """See Files."""
        if any(each.startswith(f"{url}/") for each in Bytes.content):
            return FileStat(url, 0, is_directory=True)
        data, version = Bytes.get(url, "look at")
        return FileStat(url, len(data), etag=version)

    def open(self, url: str, expected: FileStat | None = None) -> RangedFile:
        """See Files."""
        found = self.stat(url)
        if found.is_directory:
            raise StorageError("it is a directory", url=url)
        require_same_version(expected, found)
        return ShelfFile(found)

    def list(self, url: str) -> Iterator[FileStat]:
        """See Files."""
        below = [each[len(url) + 1 :] for each in Bytes.content if each.startswith(f"{url}/")]
        if not below:
            raise MissingError("there is no such directory", url=url)
        names = {name.partition("/")[0] + ("/" if "/" in name else "") for name in below}
        yield from (self.stat(f"{url}/{name.rstrip('/')}") for name in sorted(names, key=str.encode))

    def remove(self, url: str) -> None:
        """See Files."""
        Bytes.get(url, "remove")
        del Bytes.content[url]


class ShelfWriter(PendingWriter):
    """Gathers bytes, and lays them under a hidden name."""

    def __init__(self, final_url: str, tag: str) -> None:
        self._final = final_url
        parent = final_url.rpartition("/")[0]
        self._url = f"{parent}/{PENDING_DIRECTORY}/{tag}/{uuid.uuid4().hex}"
        self._data = bytearray()

    def write(self, data: Buffer) -> None:
        """See PendingWriter."""
        self._data += memoryview(data).cast("B")

    def close(self, *, records: int) -> PendingFile:
        """See PendingWriter."""
        Bytes.put(self._url, bytes(self._data))
        return PendingFile(self._final, self._url, len(self._data), records)

    def abandon(self) -> None:
        """See PendingWriter."""
        Bytes.content.pop(self._url, None)


class ShelfPendingFiles(PendingFiles):
    """Hidden names beside the final ones."""

    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> ShelfWriter:
        """See PendingFiles."""
        return ShelfWriter(final_url, tag)

    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        """See PendingFiles."""
        with Bytes.lock:
            data, _ = Bytes.content.get(pending.pending_url, (None, ""))
            there, _ = Bytes.content.get(pending.final_url, (None, ""))
            if data is None and there is None:
                raise lost_output(pending)
            if there is not None and (len(there) != pending.size_bytes or data not in (None, there)):
                raise conflict(pending)
            if there is None and data is not None:
                Bytes.put(pending.final_url, data)
            self.discard(pending)

    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        """See PendingFiles."""
        with Bytes.lock:
            if not self.is_whole(pending):
                raise lost_output(pending)
            if pending.pending_url in Bytes.content:
                Bytes.put(pending.final_url, Bytes.content.pop(pending.pending_url)[0])

    def is_whole(self, pending: PendingFile) -> bool:
        """See PendingFiles."""
        there = Bytes.content.get(pending.pending_url) or Bytes.content.get(pending.final_url)
        return there is not None and len(there[0]) == pending.size_bytes

    def discard(self, pending: PendingFile) -> None:
        """See PendingFiles."""
        Bytes.content.pop(pending.pending_url, None)

    def sweep(
        self,
        root_url: str,
        *,
        owner: str,
        before_epoch: int,
        require_right: Callable[[], None],
        keep: Collection[str] = (),
    ) -> int:
        """See PendingFiles."""
        dead = [url for url in Bytes.content if url.startswith(f"{root_url}/") and url not in keep]
        dead = [url for url in dead if f"/{PENDING_DIRECTORY}/" in url]
        dead = [url for url in dead if is_earlier_tag(url.split("/")[-2], owner, before_epoch)]
        for url in dead:
            del Bytes.content[url]
        return len(dead)


class ShelfObjects(ObjectStore):
    """Objects of the shelf; a lock makes one of several creators win."""

    def create_if_absent(self, name: str, data: bytes) -> None:
        """See ObjectStore."""
        with Bytes.lock:
            if f"{self.url}/{name}" in Bytes.content:
                raise AlreadyExistsError("the name is taken", url=f"{self.url}/{name}")
            Bytes.put(f"{self.url}/{name}", data)

    def read(self, name: str) -> bytes:
        """See ObjectStore."""
        return Bytes.get(f"{self.url}/{name}", "read")[0]

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """See ObjectStore."""
        below = f"{self.url}/{directory}"
        names = [each[len(self.url) + 1 :] for each in list(Bytes.content) if each.startswith(below)]
        yield from sorted(name for name in names if name > after and "/" not in name[len(directory) :])

    def delete(self, names: Iterable[str]) -> None:
        """See ObjectStore."""
        for name in names:
            Bytes.content.pop(f"{self.url}/{name}", None)


class Shelf(Backend):
    """The shelf: the class that the app, or a line in registry.py, names."""

    @property
    def files(self) -> Files:
        """See Backend."""
        return ShelfFiles()

    @property
    def pending(self) -> PendingFiles:
        """See Backend."""
        return ShelfPendingFiles()

    def objects(self, url: str, roots: Roots) -> ObjectStore:
        """See Backend."""
        return ShelfObjects(url, roots)
