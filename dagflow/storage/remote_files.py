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
from dagflow.storage.remote import PreconditionError, S3Location, filesystem_of, is_s3, translated_remote

_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "checksum")
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

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
        end = min(offset + len(buffer), self.size_bytes)
        if end <= offset:
            return 0
        data = self._fetch(offset, end)
        if len(data) != end - offset:
            raise SourceChangedError(
                f"it had {self.size_bytes} bytes, now it ends at {offset + len(data)}", url=redacted(self._found.url)
            )
        buffer[: len(data)] = data
        return len(data)

    def _fetch(self, start: int, end: int) -> bytes:
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

    def _fetch(self, start: int, end: int) -> bytes:
        condition = {"IfMatch": f'"{self._found.etag}"'} if self._found.etag else {}
        try:
            return self._place.get(
                f"read at {start}", Key=self._place.key, Range=f"bytes={start}-{end - 1}", **condition
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
        entries = [entry for entry in filesystem.ls(path, detail=True) if entry["name"].rstrip("/") != path]
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
