"""Files of remote stores, by ranged requests."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.files import (
    Content,
    Files,
    FileStat,
    LoadedFiles,
    RangedFile,
    SmallFiles,
    fill_buffer,
    require_same_version,
)
from dagflow.storage.location import join, redacted

logger = logging.getLogger(__name__)

THREADS = 32
"""Small files that are read at the same time, at most."""

_TAGS = ("ETag", "etag", "md5Hash", "content_md5", "checksum")
_MILLIS = ("modification_time", "modificationTime")  # HDFS
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_VERSIONS = (*_TAGS, *_MILLIS, *_TIMES)


class FsspecFiles(Files):
    """Files of any store that fsspec reaches."""

    def __init__(self, client: FsspecClient) -> None:
        self.client = client
        self._warned: set[str] = set()

    def stat(self, url: str) -> FileStat:
        filesystem, path = self.client.locate(url)
        with self.client.translated(url, "look at"):
            return stat_of(url, filesystem.info(path))

    def open(self, url: str, expected: FileStat | None = None) -> RangedFile:
        now = self.stat(url)
        if now.is_directory:
            raise StorageError("it is a directory", url=redacted(url))
        require_same_version(expected, now)
        return self.file_of(now)

    def file_of(self, found: FileStat) -> RangedFile:
        """A file that was looked at before, without another look."""
        return FsspecFile(self.client, found)

    def open_planned(self, planned: FileStat) -> RangedFile | None:
        return self.file_of(planned) if self.client.is_concurrent else None

    def no_listing(self, url: str) -> str:
        return "only single files of an archive can be read: name each of them" if self.client.is_chain(url) else ""

    def list(self, url: str) -> Iterator[FileStat]:
        """Yield the entries of one answer that has the whole directory.

        fsspec removes slashes at the end of paths, so a directory without a name cannot be listed; one warning says
        that there is one.
        """
        if advice := self.no_listing(url):
            raise StorageError("it cannot be listed", url=redacted(url), hint=advice)
        filesystem, path = self.client.locate(url)
        with self.client.translated(url, "list"):
            listed = filesystem.ls(path, detail=True)
            if [entry["name"] for entry in listed if entry["type"] == "file"] == [path]:
                raise StorageError("it is no directory", url=redacted(url))
            entries = [entry for entry in listed if entry["name"].rstrip("/") != path]
            nameless = [entry for entry in listed if entry["name"].rstrip("/") == path]
        self._warn_of_directories(url, nameless)
        stats = [stat_of(join(url, entry["name"].rstrip("/").rpartition("/")[2]), entry) for entry in entries]
        stats += [stat_of(f"{url}/", entry) for entry in nameless if entry["type"] == "file" and entry["size"]]
        yield from sorted(stats, key=sort_key)

    def _warn_of_directories(self, url: str, entries: Iterable[dict[str, Any]]) -> None:
        # A directory with a version is the entry that shows that the listed directory exists.
        if url not in self._warned and any(
            entry["type"] == "directory" and not any(map(entry.get, _VERSIONS)) for entry in entries
        ):
            self._warned.add(url)
            logger.warning("left out: a directory without a name cannot be listed url=%s//", redacted(url))

    def remove(self, url: str) -> None:
        filesystem, path = self.client.locate(url)
        with self.client.translated(url, "remove"):
            filesystem.rm_file(path)

    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        threads = THREADS if self.client.is_concurrent else 1
        contents = read_each(lambda index: self._content(files.expected(index)), len(files.names), threads)
        return fill_buffer(contents, buffer, endings)


class FsspecFile(RangedFile):
    """A file of any store that fsspec reaches; each buffer is one ranged request.

    Guarantee: the version was checked when the file was opened; later requests cannot name a version.
    """

    def __init__(self, client: FsspecClient, found: FileStat) -> None:
        super().__init__(found)
        self._client = client
        self._filesystem, self._path = client.locate(found.url)

    def request(self, start: int, end: int) -> bytes:
        with self._client.translated(self.found.url, f"read at {start}"):
            data: bytes = self._filesystem.cat_file(self._path, start=start, end=end)
            return data


def read_each(read: Callable[[int], Content], count: int, threads: int) -> Sequence[Content]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(read, range(count)))


def stat_of(url: str, info: dict[str, Any]) -> FileStat:
    if info["type"] == "directory":
        return FileStat(url, 0, is_directory=True)
    if info.get("size") is None:
        raise StorageError(
            "the store does not say how long the file is",
            url=redacted(url),
            hint="copy it to a disk, or to a store that does, and read the copy; a web server says so by a "
            "Content-Length without a Content-Encoding",
        )
    tag = next((info[name] for name in _TAGS if info.get(name)), "")
    tag = hashlib.sha256(tag).hexdigest()[:32] if isinstance(tag, bytes) else str(tag).strip('"')
    return FileStat(url, int(info["size"]), _nanoseconds(info), tag)


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
            return round(value * 10**6) * 1000  # a float has no more than microseconds for current times
    if re.match(r"\d{14}", modified := str(info.get("modify", ""))):  # FTP
        return int(datetime.strptime(modified[:14] + "Z", "%Y%m%d%H%M%S%z").timestamp()) * 10**9
    return 0


def sort_key(found: FileStat) -> bytes:
    """Sorts a listing by the bytes of its names, with a slash after a directory's name."""
    return (found.url + ("/" if found.is_directory else "")).encode("utf-8", "surrogateescape")


T = TypeVar("T")

TRIES = 6
FIRST_PAUSE_S = 0.5
"""Seconds of the pause after the first failure; it doubles with each further one: about 16 seconds in all."""

MOST_PAUSE_S = 30.0
"""Seconds to wait at most where a server says how long to wait."""

PATIENCE_S = 60.0
"""Seconds after which a server that lets each request time out is not asked again."""

LOOK_PATIENCE_S = 1.0
"""The same for a look at a file: scans try again themselves, and a user waits for checks of an app."""


def answered(
    ask: Callable[[], T],
    failure: type[TransientStorageError] = TransientStorageError,
    patience_s: float = PATIENCE_S,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The answer of a store that is asked up to TRIES times, with growing pauses."""
    last_s = clock() + patience_s
    for attempt in range(TRIES - 1):
        try:
            return ask()
        except failure as error:
            pause_s = max(FIRST_PAUSE_S * 2.0**attempt, min(_retry_after_s(error), MOST_PAUSE_S))
            if clock() + pause_s > last_s:
                raise
            logger.warning("store is asked again in %.1f s error=%s", pause_s, error)
        wait(pause_s)
    return ask()


def _retry_after_s(error: BaseException | None) -> float:
    """The seconds to wait that a server has given; 0 where it has given none, or a date."""
    while error is not None:
        header = str((getattr(error, "headers", None) or {}).get("Retry-After", ""))
        if header.isdecimal():
            return float(header)
        error = error.__cause__
    return 0.0
