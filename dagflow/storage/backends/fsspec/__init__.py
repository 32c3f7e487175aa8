"""Any store that fsspec has a file system for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem
from typing_extensions import Buffer

from dagflow.errors import MissingError, StorageError
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import FsspecFiles
from dagflow.storage.base import Backend, ObjectStore
from dagflow.storage.location import Roots, join, name_of, parent, redacted
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import (
    PENDING_DIRECTORY,
    Durability,
    PendingFile,
    PendingFiles,
    PendingWriter,
    conflict,
    lost_output,
)

_COMPARE_BYTES = 8 << 20


class FsspecPendingWriter(PendingWriter):
    """Writes under a hidden name beside the final one.

    Guarantee: readers that skip names with a leading dot see nothing. The safety of the later move depends on the
    store, and on a single driver.
    """

    def __init__(self, client: FsspecClient, final_url: str, tag: str, checksum: bool) -> None:
        super().__init__(final_url, checksum=checksum)
        self._client = client
        self._url = join(parent(final_url), PENDING_DIRECTORY, tag, os.urandom(16).hex())
        self._filesystem, self._path = client.locate(self._url)
        with client.translated(self._url, "open"):
            self._filesystem.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            self._file: Any = self._filesystem.open(self._path, "wb")

    def write(self, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        with self._client.translated(self._url, "write"):
            self._file.write(view)
        self._count(view)

    def close(self, *, records: int) -> PendingFile:
        with self._client.translated(self._url, "complete"):
            self._file.close()
        self._file = None
        return self._written(self._url, records)

    def abandon(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        with contextlib.suppress(Exception):  # any error of the client: the file is not needed
            file.close()
        with contextlib.suppress(Exception):
            self._filesystem.rm_file(self._path)
        _remove_empty(self._filesystem, self._path)


class FsspecPendingFiles(PendingFiles):
    """A hidden directory beside each final name, and a move to publish."""

    def __init__(self, client: FsspecClient) -> None:
        self._client = client

    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        return FsspecPendingWriter(self._client, final_url, tag, checksum)

    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        filesystem, source = self._client.locate(pending.pending_url)
        target = self._client.locate(pending.final_url)[1]
        with self._client.translated(pending.final_url, "publish"):
            is_staged, is_published = filesystem.exists(source), filesystem.exists(target)
            if not is_published:
                if not is_staged:
                    raise lost_output(pending)
                _move(filesystem, source, target)
            elif is_staged:
                # A move that copies may be cut off by a crash: the copy is then completed, and any other file stays.
                if not _is_same(filesystem, source, target):
                    raise conflict(pending)
                filesystem.rm_file(source)
            elif filesystem.size(target) != pending.size_bytes:
                raise conflict(pending)
        _remove_empty(filesystem, source)

    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        filesystem, source = self._client.locate(pending.pending_url)
        target = self._client.locate(pending.final_url)[1]
        with self._client.translated(pending.final_url, "replace"):
            if filesystem.exists(source):
                if _copies_at_once(filesystem):
                    filesystem.cp_file(source, target)
                    filesystem.rm_file(source)
                else:
                    if filesystem.exists(target):
                        filesystem.rm_file(target)
                    _move(filesystem, source, target)
            elif not filesystem.exists(target) or filesystem.size(target) != pending.size_bytes:
                raise lost_output(pending)
        _remove_empty(filesystem, source)

    def is_whole(self, pending: PendingFile) -> bool:
        filesystem, source = self._client.locate(pending.pending_url)
        target = self._client.locate(pending.final_url)[1]
        with self._client.translated(pending.final_url, "look at"):
            if filesystem.exists(source):
                return bool(filesystem.size(source) == pending.size_bytes)
            return bool(filesystem.exists(target) and filesystem.size(target) == pending.size_bytes)

    def remove(self, pending_url: str) -> None:
        filesystem, path = self._client.locate(pending_url)
        with self._client.translated(pending_url, "discard"), contextlib.suppress(FileNotFoundError):
            filesystem.rm_file(path)
        _remove_empty(filesystem, path)

    def pending_urls(self, root_url: str) -> Iterator[str]:
        filesystem, root = self._client.locate(root_url)
        with self._client.translated(root_url, "sweep"):
            waiting = [root_url] if filesystem.isdir(root) else []
        while waiting:
            url = waiting.pop()
            is_tag = name_of(parent(url)) == PENDING_DIRECTORY
            with contextlib.suppress(MissingError):
                for entry in FsspecFiles(self._client).list(url):
                    if entry.is_directory:
                        waiting.append(entry.url)
                    elif is_tag:
                        yield entry.url


def _copies_at_once(filesystem: Any) -> bool:
    """Whether a copy replaces the target at once and as a whole: true for object stores, and the one in memory."""
    return bool(getattr(filesystem, "async_impl", False)) or filesystem.protocol == "memory"


def _move(filesystem: Any, source: str, target: str) -> None:
    # fsspec's own mv takes the source for a pattern, and makes the target a directory if the path has *, ? or [.
    if getattr(filesystem.mv, "__func__", None) is AbstractFileSystem.mv:
        filesystem.cp_file(source, target)
        filesystem.rm_file(source)
    else:
        filesystem.mv(source, target)


def _is_same(filesystem: Any, first: str, second: str) -> bool:
    size_bytes = filesystem.size(first)
    return size_bytes == filesystem.size(second) and all(
        filesystem.cat_file(first, start=start, end=start + _COMPARE_BYTES)
        == filesystem.cat_file(second, start=start, end=start + _COMPARE_BYTES)
        for start in range(0, size_bytes, _COMPARE_BYTES)
    )


def _remove_empty(filesystem: Any, path: str) -> None:
    directory = path.rpartition("/")[0]
    with contextlib.suppress(Exception):  # each client has its own error for a directory that is not empty
        filesystem.rmdir(directory)
        filesystem.rmdir(directory.rpartition("/")[0])


class FsspecBackend(Backend):
    """A store by fsspec's file system for its scheme; subclasses use the further abilities of one kind of store."""

    client_class: ClassVar[type[FsspecClient]] = FsspecClient
    """Makes the client that all parts of the backend share."""

    files_class: ClassVar[type[FsspecFiles]] = FsspecFiles
    """Reads files by the client."""

    pending_class: ClassVar[type[Any]] = FsspecPendingFiles
    """A class of PendingFiles that is made with the client."""

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        self.client = self.client_class(scheme, options)
        super().__init__(scheme, options, self.files_class(self.client), self.pending_class(self.client))

    @property
    def is_concurrent(self) -> bool:
        return self.client.is_concurrent

    def objects(self, url: str, roots: Roots) -> ObjectStore:
        # fsspec's inherited pipe_file checks first and writes then: two writers can both pass the check, and a probe by
        # one process cannot reveal that.
        filesystem = self.client.locate(url)[0]
        kind = type(filesystem)
        if kind.pipe_file in (AbstractFileSystem.pipe_file, AsyncFileSystem.pipe_file) and (
            not isinstance(filesystem, AsyncFileSystem) or kind._pipe_file is AsyncFileSystem._pipe_file
        ):
            raise StorageError(
                f"{kind.__name__} has no exclusive creation: it cannot keep two drivers apart",
                url=redacted(url),
                hint="put the checkpoint on a local disk or on an object store with conditional writes; "
                "input and output may stay where they are",
            )
        return FsspecObjectStore(self.client, url, roots)


class FsspecObjectStore(ObjectStore):
    """Objects in any store that fsspec reaches.

    Guarantee: the one of the file system's own pipe_file(mode="create").
    """

    def __init__(self, client: FsspecClient, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self.client = client
        self.filesystem, path = client.locate(url)
        self._root = path.rstrip("/")

    def create_if_absent(self, name: str, data: bytes) -> None:
        with self.client.translated(self.url, f"create {name}"):
            path = self.path_in_store(name)
            self.filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.filesystem.pipe_file(path, data, mode="create")

    def replace(self, name: str, data: bytes) -> None:
        with self.client.translated(self.url, f"replace {name}"):
            self.filesystem.pipe_file(self.path_in_store(name), data)

    def read(self, name: str) -> bytes:
        with self.client.translated(self.url, f"read {name}"):
            data: bytes = self.filesystem.cat_file(self.path_in_store(name))
            return data

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        with self.client.translated(self.url, f"list {directory}"):
            try:
                entries = self.filesystem.ls(self.path_in_store(directory).rstrip("/"), detail=True)
            except FileNotFoundError:
                return
        names = (directory + entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file")
        # Tools that copy a checkpoint may create an object of the directory's name, to mark the directory.
        yield from sorted(name for name in names if name > max(after, directory))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with self.client.translated(self.url, f"delete {name}"), contextlib.suppress(FileNotFoundError):
                self.filesystem.rm_file(self.path_in_store(name))

    def path_in_store(self, name: str) -> str:
        return f"{self._root}/{name}"
