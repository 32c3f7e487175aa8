"""A store under test, and what the laws of stores do with it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.pending import PendingFile, PendingFiles, pending_tag

TAG = pending_tag("app", 1)


class StoreUnderTest:
    """A store, and what its tests do with it.

    Attributes:
        context: Reaches the store.
    """

    context: StorageContext

    @pytest.fixture
    def storage(self) -> StorageContext:
        """Reaches the store; without options unless a subclass gives some."""
        return StorageContext.default()

    @pytest.fixture(autouse=True)
    def _reach(self, storage: StorageContext) -> None:
        self.context = storage

    @pytest.fixture
    def root(self) -> str:
        """The URL of an empty location, a new one for each test."""
        raise NotImplementedError("the fixture `root` is missing in this contract's class")

    def another_context(self) -> StorageContext:
        """Reaches the store as another process does."""
        copy: StorageContext = pickle.loads(pickle.dumps(self.context))
        return copy

    def uploads(self, root: str) -> list[Any]:
        """Leftovers of writers below a root that no listing shows."""
        return []

    def pending(self, root: str) -> PendingFiles:
        """The store's pending files."""
        return self.context.backend(root).pending

    def write(self, url: str, data: bytes, *, tag: str = TAG, checksum: bool = False) -> PendingFile:
        """A pending file with these bytes."""
        writer = self.context.open_pending(url, tag=tag, checksum=checksum)
        writer.write(data)
        return writer.close(records=3)

    def hold(self, url: str, data: bytes, *, tag: str = TAG) -> PendingFile:
        """A file with these bytes that is held beside a name."""
        writer = self.context.open_held(url, tag=tag)
        writer.write(data)
        return writer.close(records=3)

    def put(self, url: str, data: bytes) -> str:
        """Create or replace a file with these bytes, and return its URL."""
        self.pending(url).replace(self.write(url, data))
        return url

    def content(self, url: str, offset: int = 0, length: int | None = None, expected: FileStat | None = None) -> bytes:
        """The bytes of a file from an offset on."""
        with self.context.open_file(url, expected) as file:
            buffer = bytearray(file.size_bytes if length is None else length)
            return bytes(buffer[: file.read_into(offset, memoryview(buffer))])

    def everything(self, root: str) -> set[str]:
        """The names of all files below a root, hidden or not."""
        names = set()
        try:
            for entry in self.context.list_directory(root):
                name = entry.url.rpartition("/")[2]
                below = self.everything(entry.url) if entry.is_directory else {""}
                names |= {f"{name}/{each}".rstrip("/") for each in below}
        except MissingError:
            pass
        return names
