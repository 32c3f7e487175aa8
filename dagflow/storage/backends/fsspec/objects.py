"""Objects in stores that fsspec reaches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from typing_extensions import override

from dagflow.errors import StorageError
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots


def open_objects(client: FsspecClient, url: str, roots: Roots) -> FsspecObjectStore:
    """The objects below a remote URL."""
    # fsspec's inherited pipe_file checks first and writes then: two writers can both pass the check, and a probe by one
    # process cannot reveal that.
    filesystem = client.locate(url)[0]
    own = type(filesystem)
    if own.pipe_file in (AbstractFileSystem.pipe_file, AsyncFileSystem.pipe_file) and (
        not isinstance(filesystem, AsyncFileSystem) or own._pipe_file is AsyncFileSystem._pipe_file
    ):
        raise StorageError(
            f"{own.__name__} has no exclusive creation: it cannot keep two drivers apart",
            url=redacted(url),
            hint="put the checkpoint on a local disk or on an object store with conditional writes; "
            "input and output may stay where they are",
        )
    return FsspecObjectStore(client, url, roots)


class FsspecObjectStore(ObjectStore):
    """Objects in any store that fsspec reaches.

    Guarantee: the one of the file system's own pipe_file(mode="create").
    """

    def __init__(self, client: FsspecClient, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self.client = client
        self.filesystem, path = client.locate(url)
        self._root = path.rstrip("/")

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        with self.client.translated(self.url, f"create {name}"):
            path = self.path_in_store(name)
            self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.filesystem.pipe_file(path, data, mode="create")

    @override
    def replace(self, name: str, data: bytes) -> None:
        with self.client.translated(self.url, f"replace {name}"):
            self.filesystem.pipe_file(self.path_in_store(name), data)

    @override
    def read(self, name: str) -> bytes:
        with self.client.translated(self.url, f"read {name}"):
            data: bytes = self.filesystem.cat_file(self.path_in_store(name))
            return data

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        with self.client.translated(self.url, f"list {directory}"):
            try:
                entries = self.filesystem.ls(self.path_in_store(directory).rstrip("/"), detail=True)
            except FileNotFoundError:
                return
        names = (directory + entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file")
        yield from sorted(name for name in names if name > after)

    @override
    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self.client.translated(self.url, f"delete {name}"), contextlib.suppress(FileNotFoundError):
                self.filesystem.rm_file(self.path_in_store(name))

    def path_in_store(self, name: str) -> str:
        """The path of an object in the file system."""
        return f"{self._root}/{name}"
