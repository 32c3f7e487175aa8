"""S3 and stores with its protocol: conditional writes, multipart uploads, reads of one version."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

from typing_extensions import override

from dagflow.errors import (
    AlreadyExistsError,
    CredentialsError,
    MissingError,
    SourceChangedError,
    StorageError,
    TransientStorageError,
)
from dagflow.storage.backends.fsspec import FsspecBackend
from dagflow.storage.backends.fsspec.client import PreconditionError
from dagflow.storage.backends.fsspec.files import THREADS, FsspecFiles, read_each, sort_key, stat_of
from dagflow.storage.backends.s3.client import CONNECTIONS, S3Client
from dagflow.storage.backends.s3.fast_objects import FastObjects, open_bucket
from dagflow.storage.backends.s3.pending import S3PendingFiles
from dagflow.storage.file_stat import FileStat
from dagflow.storage.files import RangedFile
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots
from dagflow.storage.small_files import Content, LoadedFiles, SmallFiles, fill_buffer


class S3Files(FsspecFiles):
    """Objects read as files; a listing is fetched page by page."""

    client: S3Client

    def __init__(self, client: S3Client) -> None:
        super().__init__(client)
        self._fast_buckets: WeakKeyDictionary[Any, dict[str, FastObjects | None]] = WeakKeyDictionary()

    @override
    def file_of(self, found: FileStat) -> RangedFile:
        return S3File(self.client, found)

    @override
    def stat(self, url: str) -> FileStat:
        try:
            return super().stat(url)
        except StorageError as error:
            if type(error) is StorageError:
                self._require_credentials(url)
            raise

    def _require_credentials(self, url: str) -> None:
        """Check whether a look at an object or a bucket failed because of the credentials.

        An answer to HEAD has no body that could say so; one to GET has, even where listing is not allowed.

        Raises:
            CredentialsError: The credentials are refused.
            TransientStorageError: The store may succeed if asked again.
        """
        location = self.client.location(url)
        try:
            location.call("list_objects_v2", "look at", Prefix=location.prefix, MaxKeys=1)
        except (CredentialsError, TransientStorageError):
            raise
        except StorageError:
            return

    @override
    def list(self, url: str) -> Iterator[FileStat]:
        location = self.client.location(url)
        prefix, below = location.prefix, f"{url}/"
        is_empty = True
        for page in location.list("list", Prefix=prefix, Delimiter="/"):
            files = (
                stat_of(below + entry["Key"][len(prefix) :], {**entry, "type": "file", "size": entry["Size"]})
                for entry in page.get("Contents", ())
                if entry["Key"] != prefix or entry["Size"]
            )
            directories = (
                FileStat(below + entry["Prefix"][len(prefix) : -1], 0, is_directory=True)
                for entry in page.get("CommonPrefixes", ())
            )
            is_empty = is_empty and not _has_keys(page)
            yield from heapq.merge(files, directories, key=sort_key)
        if is_empty and prefix:
            raise MissingError("there is no such directory", url=redacted(url))

    @override
    def is_also_directory(self, url: str) -> bool:
        location = self.client.location(url)
        return any(map(_has_keys, location.list("list", Prefix=location.prefix, MaxKeys=1)))

    @override
    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        location = self.client.location(files.base)
        fast: dict[str, FastObjects | None] = {}
        # Without etags it would be unknown whether the bytes read are the planned version.
        if files.etags:
            # If the files are in several buckets, the base is only the scheme.
            buckets = {location.bucket} if location.bucket else {name.partition("/")[0] for name in files.names}
            with self.client.translated(files.base, "open"):
                fast = {bucket: self._fast_objects(location.filesystem, bucket) for bucket in buckets}
        prefix = f"{location.bucket}/{location.key}" if location.bucket else ""

        def read(index: int) -> Content:
            bucket, _, key = f"{prefix}{files.names[index]}".partition("/")
            objects, etag = fast.get(bucket), files.etags[index] if files.etags else ""
            content = objects.read(key, etag) if objects is not None and etag else None
            if content is not None and len(content) == files.sizes[index]:
                return content
            return self._content(files.expected(index))

        threads = CONNECTIONS if any(fast.values()) else THREADS
        return fill_buffer(read_each(read, len(files.names), threads), buffer, endings)

    def _fast_objects(self, filesystem: Any, bucket: str) -> FastObjects | None:
        buckets = self._fast_buckets.setdefault(filesystem, {})
        if bucket not in buckets:
            buckets[bucket] = open_bucket(filesystem, bucket, self.client.options)
        return buckets[bucket]

    @override
    def _open_whole(self, expected: FileStat) -> RangedFile:
        # A read that names its version needs no look before it, unless there is nothing to read.
        if expected.etag and expected.size_bytes:
            return self.file_of(expected)
        return self.open(expected.url, expected)


class S3File(RangedFile):
    """A file in a bucket.

    Guarantee: every request names the etag, so that two versions are never mixed.
    """

    def __init__(self, client: S3Client, found: FileStat) -> None:
        super().__init__(found)
        self._location = client.location(found.url)

    @property
    @override
    def is_pinned(self) -> bool:
        return bool(self.found.etag)

    @override
    def request(self, start: int, end: int) -> bytes:
        try:
            return self._location.get(
                f"read at {start}", self.found.etag, Key=self._location.key, Range=f"bytes={start}-{end - 1}"
            )
        except PreconditionError as error:
            raise SourceChangedError("the file was replaced while it was read", url=error.url) from error


def _has_keys(page: dict[str, Any]) -> bool:
    """Whether a page of a listing has any entry; not every store counts in KeyCount as Amazon's does."""
    return bool(page.get("Contents") or page.get("CommonPrefixes"))


class S3Backend(FsspecBackend):
    """S3, by s3fs and, for small objects, obstore."""

    client: S3Client
    client_class = S3Client
    files_class = S3Files
    pending_class = S3PendingFiles

    @override
    def object_store_options(self, url: str) -> dict[str, str]:
        return self.client.object_store_options(url)

    @override
    def objects(self, url: str, roots: Roots) -> S3ObjectStore:
        return S3ObjectStore(self.client, url, roots)


_DELETE_LIMIT = 1000  # keys that S3 takes in one request


class S3ObjectStore(ObjectStore):
    """Objects in a bucket.

    Guarantee: conditional writes (If-None-Match) make one of several writers win; objects appear whole.
    """

    def __init__(self, client: S3Client, url: str, roots: Roots) -> None:
        super().__init__(url, roots)
        self._location = client.location(url)

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        try:
            self._location.call("put_object", f"create {name}", Key=self._key(name), Body=data, IfNoneMatch="*")
        except PreconditionError as error:
            raise AlreadyExistsError("the name is taken", url=error.url) from error

    @override
    def replace(self, name: str, data: bytes) -> None:
        self._location.call("put_object", f"replace {name}", Key=self._key(name), Body=data)

    @override
    def read(self, name: str) -> bytes:
        return self._location.get(f"read {name}", Key=self._key(name))

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        root = len(self._key(""))
        start = {"StartAfter": self._key(after)} if after else {}
        for page in self._location.list(f"list {directory}", Prefix=self._key(directory), Delimiter="/", **start):
            yield from (entry["Key"][root:] for entry in page.get("Contents", ()))

    @override
    def delete(self, names: Iterable[str]) -> None:
        rest = iter(names)
        while some := list(islice(rest, _DELETE_LIMIT)):
            keys = {"Objects": [{"Key": self._key(name)} for name in some], "Quiet": True}
            answer = self._location.call("delete_objects", "delete", Delete=keys)
            for refused in answer.get("Errors", ()):
                raise StorageError(f"cannot delete {refused['Key']}: {refused['Message']}", url=redacted(self.url))

    def _key(self, name: str) -> str:
        return f"{self._location.key}/{name}" if self._location.key else name
