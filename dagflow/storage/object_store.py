"""The store on an object store: S3 by its own requests, others through fsspec."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from dagflow.errors import AlreadyExistsError, StorageError
from dagflow.storage.location import redacted
from dagflow.storage.remote import PreconditionError, S3Location, filesystem_of, is_hdfs, is_s3, translated_remote
from dagflow.storage.remote_files import list_directory
from dagflow.storage.store import ReadBackStore

_TEMPORARY = "tmp"
_STALE_S = 3600.0  # far above the time that one create() takes
_DELETE_LIMIT = 1000  # keys that S3 takes in one request


def open_object_store(url: str) -> ReadBackStore:
    """The store rooted at a remote URL.

    Raises:
        StorageError: No such scheme, no package for it, or a file system that only pretends to exclude.
    """
    filesystem, path = filesystem_of(url)
    if is_s3(filesystem):
        return S3Store(url, S3Location(filesystem, path, url))
    if is_hdfs(filesystem):
        return RenamingStore(url, filesystem, path)
    # fsspec's inherited pipe_file looks first and writes then: two writers pass the look together, and a probe
    # by one process cannot see it.
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
    return FsspecStore(url, filesystem, path)


class S3Store(ReadBackStore):
    """Objects in a bucket.

    Guarantee: conditional writes (If-None-Match) make one of several writers win; objects appear whole.
    """

    def __init__(self, url: str, place: S3Location) -> None:
        super().__init__(url)
        self._place = place

    def create_once(self, name: str, data: bytes) -> None:
        """See ReadBackStore."""
        try:
            self._place.call("put_object", f"create {name}", Key=self._key(name), Body=data, IfNoneMatch="*")
        except PreconditionError as error:
            raise AlreadyExistsError("the name is taken", url=error.url) from error

    def read(self, name: str) -> bytes:
        """See Store."""
        return self._place.get(f"read {name}", Key=self._key(name))

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """See Store."""
        root = len(self._key(""))
        start = {"StartAfter": self._key(after)} if after else {}
        for page in self._place.list(f"list {directory}", Prefix=self._key(directory), Delimiter="/", **start):
            yield from (entry["Key"][root:] for entry in page.get("Contents", ()))

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for some in _chunks(names, _DELETE_LIMIT):
            keys = {"Objects": [{"Key": self._key(name)} for name in some], "Quiet": True}
            answer = self._place.call("delete_objects", "delete", Delete=keys)
            for refused in answer.get("Errors", ()):
                raise StorageError(f"cannot delete {refused['Key']}: {refused['Message']}", url=redacted(self.url))

    def _key(self, name: str) -> str:
        return f"{self._place.key}/{name}" if self._place.key else name


class FsspecStore(ReadBackStore):
    """Objects in any other store that fsspec reaches.

    Guarantee: that of the file system's own pipe_file(mode="create").
    """

    def __init__(self, url: str, filesystem: Any, path: str) -> None:
        super().__init__(url)
        self._filesystem = filesystem
        self._root = path.rstrip("/")

    def create_once(self, name: str, data: bytes) -> None:
        """See ReadBackStore."""
        with translated_remote(self.url, f"create {name}"):
            path = self._path(name)
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._filesystem.pipe_file(path, data, mode="create")

    def read(self, name: str) -> bytes:
        """See Store."""
        with translated_remote(self.url, f"read {name}"):
            data: bytes = self._filesystem.cat_file(self._path(name))
            return data

    def list(self, directory: str, after: str = "") -> Iterator[str]:
        """See Store."""
        with translated_remote(self.url, f"list {directory}"):
            try:
                entries = self._filesystem.ls(self._path(directory).rstrip("/"), detail=True)
            except FileNotFoundError:
                return
        names = (directory + entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file")
        yield from sorted(name for name in names if name > after)

    def delete(self, names: Iterable[str]) -> None:
        """See Store."""
        for name in names:
            with translated_remote(self.url, f"delete {name}"), contextlib.suppress(FileNotFoundError):
                self._filesystem.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class RenamingStore(FsspecStore):
    """Objects in a store that renames at once, and never over a name that is taken: HDFS.

    Guarantee: an object is written under another name, and appears whole under its own.
    """

    def create_once(self, name: str, data: bytes) -> None:
        """See ReadBackStore."""
        path, temporary = self._path(name), self._path(f"{_TEMPORARY}/{os.urandom(16).hex()}")
        with translated_remote(self.url, f"create {name}"):
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._filesystem.open(temporary, "wb", overwrite=False) as file:
                file.write(data)
            try:
                self._filesystem.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):  # what remains is swept by the next probe
                    self._filesystem.rm_file(temporary)
                raise

    def probe(self) -> None:
        """See Store; also removes what writers that died left behind."""
        super().probe()
        with contextlib.suppress(StorageError):
            self.delete(
                entry.url[len(self.url) + 1 :]
                for entry in list_directory(f"{self.url}/{_TEMPORARY}")
                if time.time() - entry.mtime_ns / 1e9 > _STALE_S
            )


def _chunks(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while chunk := list(islice(rest, size)):
        yield chunk
