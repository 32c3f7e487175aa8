"""Files to be read from object stores, by ranged requests."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.storage.files import FileStat, ReadableFile, require_version
from dagflow.storage.location import join, redacted
from dagflow.storage.remote import (
    PreconditionError,
    S3Location,
    filesystem_of,
    is_s3,
    takes_several,
    translated_remote,
)

_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "checksum")
_MILLIS = ("modification_time", "modificationTime")  # HDFS
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")


def stat(url: str) -> FileStat:
    """See files.stat."""
    filesystem, path = filesystem_of(url)
    with translated_remote(url, "look at"):
        return _stat_of(url, filesystem.info(path))


def open_file(url: str, expected: FileStat | None) -> ReadableFile:
    """See files.open_file."""
    filesystem, path = filesystem_of(url)
    found = stat(url)
    if found.is_directory:
        raise StorageError("it is a directory", url=redacted(url))
    require_version(expected, found)
    if is_s3(filesystem):
        return S3File(S3Location(filesystem, path, url), found)
    return RemoteFile(filesystem, path, found)


def planned_file(url: str, planned: FileStat) -> RemoteFile | None:
    """A file that was looked at before, without another look; None where a store takes one request at a time.

    Where reads do not name the version, the caller has to look before it believes what it reads.
    """
    filesystem, path = filesystem_of(url)
    if is_s3(filesystem):
        return S3File(S3Location(filesystem, path, url), planned)
    return RemoteFile(filesystem, path, planned) if takes_several(filesystem) else None


def list_directory(url: str) -> Iterator[FileStat]:
    """See files.list_directory; S3 answers page by page, other stores with the whole directory at once."""
    filesystem, path = filesystem_of(url)
    if is_s3(filesystem):
        return _list_s3(S3Location(filesystem, path, url))
    return _list(filesystem, path, url)


class RemoteFile:
    """A file of any store that fsspec reaches; each buffer is one ranged request.

    Guarantee: the version was checked when the file was opened; the store cannot be asked for a version later.
    """

    def __init__(self, filesystem: Any, path: str, found: FileStat) -> None:
        self._filesystem = filesystem
        self._path = path
        self._found = found

    @property
    def size_bytes(self) -> int:
        """See ReadableFile."""
        return self._found.size_bytes

    @property
    def is_pinned(self) -> bool:
        """See ReadableFile."""
        return False

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
        end = min(offset + len(buffer), self.size_bytes)
        if end <= offset:
            return 0
        data = self.fetch(offset, end)
        buffer[: len(data)] = data
        return len(data)

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from start to end, by one request; may be called by several threads.

        Raises:
            SourceChangedError: The store no longer has this version.
            StorageError: The store failed.
        """
        data = self._request(start, end)
        if len(data) != end - start:
            raise SourceChangedError(
                f"it had {self.size_bytes} bytes, now it ends at {start + len(data)}", url=redacted(self._found.url)
            )
        return data

    def _request(self, start: int, end: int) -> bytes:
        with translated_remote(self._found.url, f"read at {start}"):
            data: bytes = self._filesystem.cat_file(self._path, start=start, end=end)
            return data

    def close(self) -> None:
        """See ReadableFile; nothing is held open between two requests."""

    def __enter__(self) -> Self:
        """See ReadableFile."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See ReadableFile."""
        self.close()


class S3File(RemoteFile):
    """A file in a bucket.

    Guarantee: every request names the etag, so that two versions are never mixed.
    """

    def __init__(self, place: S3Location, found: FileStat) -> None:
        super().__init__(place.filesystem, f"{place.bucket}/{place.key}", found)
        self._place = place

    @property
    def is_pinned(self) -> bool:
        """See ReadableFile."""
        return bool(self._found.etag)

    def _request(self, start: int, end: int) -> bytes:
        try:
            return self._place.get(
                f"read at {start}", self._found.etag, Key=self._place.key, Range=f"bytes={start}-{end - 1}"
            )
        except PreconditionError as error:
            raise SourceChangedError("the file was replaced while it was read", url=error.url) from error


def _stat_of(url: str, info: dict[str, Any]) -> FileStat:
    if info["type"] == "directory":
        return FileStat(url, 0, is_directory=True)
    tag = next((info[name] for name in _TAGS if info.get(name)), "")
    tag = hashlib.sha256(tag).hexdigest()[:32] if isinstance(tag, bytes) else str(tag).strip('"')
    return FileStat(url, int(info["size"] or 0), _nanoseconds(info), tag)


def _nanoseconds(info: dict[str, Any]) -> int:
    for name in _MILLIS:
        if info.get(name):
            return int(info[name]) * 10**6
    for name in _TIMES:
        value = info.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if isinstance(value, datetime):
            return int(value.timestamp()) * 10**9 + value.microsecond * 1000
        if isinstance(value, (int, float)):
            return round(value * 10**6) * 1000  # a float holds no more than microseconds of our time
    return 0


def _list(filesystem: Any, path: str, url: str) -> Iterator[FileStat]:
    with translated_remote(url, "list"):
        listed = filesystem.ls(path, detail=True)
        if [entry["name"] for entry in listed if entry["type"] == "file"] == [path]:
            raise StorageError("it is no directory", url=redacted(url))
        entries = [entry for entry in listed if entry["name"].rstrip("/") != path]
    found = [_stat_of(join(url, entry["name"].rstrip("/").rpartition("/")[2]), entry) for entry in entries]
    yield from sorted(found, key=_sort_key)


def _list_s3(place: S3Location) -> Iterator[FileStat]:
    prefix = f"{place.key}/" if place.key else ""
    is_empty = True
    for page in place.list("list", Prefix=prefix, Delimiter="/"):
        files = (
            _stat_of(join(place.url, entry["Key"][len(prefix) :]), {**entry, "type": "file", "size": entry["Size"]})
            for entry in page.get("Contents", ())
            if entry["Key"] != prefix  # an empty object that some tools create to show a directory
        )
        directories = (
            FileStat(join(place.url, entry["Prefix"][len(prefix) : -1]), 0, is_directory=True)
            for entry in page.get("CommonPrefixes", ())
        )
        is_empty = is_empty and not page.get("KeyCount")
        yield from heapq.merge(files, directories, key=_sort_key)
    if is_empty and prefix:
        raise MissingError("there is no such directory", url=redacted(place.url))


def _sort_key(found: FileStat) -> bytes:
    return (found.url + ("/" if found.is_directory else "")).encode("utf-8", "surrogateescape")
