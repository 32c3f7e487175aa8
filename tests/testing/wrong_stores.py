"""Stores that get one thing wrong each, for tests of the laws of stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import ClassVar

from typing_extensions import Buffer, override

from dagflow.storage.backends.fsspec import FsspecBackend, FsspecObjectStore, FsspecPendingFiles, FsspecPendingWriter
from dagflow.storage.backends.fsspec.client import FsspecClient
from dagflow.storage.backends.fsspec.files import FsspecFile, FsspecFiles
from dagflow.storage.files import FileStat, RangedFile
from dagflow.storage.location import Roots
from dagflow.storage.options import StorageOptions
from dagflow.storage.pending import Durability, PendingFile, PendingWriter
from tests.visitors.sqlite_store import Database, SqliteBackend, SqliteFiles


class _NearFile(FsspecFile):
    @override
    def request(self, start: int, end: int) -> bytes:
        wrong = start % (64 << 10)
        return super().request(wrong, wrong + end - start)


class _NearFiles(FsspecFiles):
    @override
    def file_of(self, found: FileStat) -> RangedFile:
        return _NearFile(self.client, found)


class ReadsNearOffsets(FsspecBackend):
    """A read beyond 64 KiB gives bytes from before."""

    files_class: ClassVar = _NearFiles


class _RangelessFile(FsspecFile):
    @override
    def request(self, start: int, end: int) -> bytes:
        return super().request(0, end - start)


class _RangelessFiles(FsspecFiles):
    @override
    def open_planned(self, planned: FileStat) -> RangedFile | None:
        return _RangelessFile(self.client, planned)


class ReadsAheadFromTheBeginning(FsspecBackend):
    """Each request of a file that is read ahead gives its first bytes."""

    files_class: ClassVar = _RangelessFiles


class _PinnedFile(FsspecFile):
    is_pinned = True


class _PinnedFiles(FsspecFiles):
    @override
    def file_of(self, found: FileStat) -> RangedFile:
        return _PinnedFile(self.client, found)


class PinsNothing(FsspecBackend):
    """Files say that reads name the version, and they do not."""

    files_class: ClassVar = _PinnedFiles


class _ShallowFiles(FsspecFiles):
    @override
    def list(self, url: str) -> Iterator[FileStat]:
        for entry in super().list(url):
            if not entry.is_directory or any(not each.is_directory for each in super().list(entry.url)):
                yield entry


class HidesDirectoriesOfDirectories(FsspecBackend):
    """A listing shows the directories in which a file lies, and no others."""

    files_class: ClassVar = _ShallowFiles


class _RememberingFiles(FsspecFiles):
    def __init__(self, client: FsspecClient) -> None:
        super().__init__(client)
        self._listed: dict[str, list[FileStat]] = {}

    @override
    def list(self, url: str) -> Iterator[FileStat]:
        if url not in self._listed:
            self._listed[url] = [*super().list(url)]
        yield from self._listed[url]


class RemembersListings(FsspecBackend):
    """A directory that was listed never changes."""

    files_class: ClassVar = _RememberingFiles


class _UrlFiles(FsspecFiles):
    @override
    def list(self, url: str) -> Iterator[FileStat]:
        return super().list(url.partition("?")[0])


class TakesNamesForQueries(FsspecBackend):
    """What stands behind a question mark is no part of a directory's name."""

    files_class: ClassVar = _UrlFiles


class _LikeDatabase(Database):
    @override
    def below(self, url: str) -> dict[str, tuple[int, str]]:
        query = "SELECT url, length(data), version FROM files WHERE url LIKE ?"
        with self.transaction() as rows:
            found = rows.execute(query, (f"{url}/%",)).fetchall()
        return {url + file[len(url) :]: (size_bytes, version) for file, size_bytes, version in found}


class TakesNamesForPatterns(SqliteBackend):
    """An underscore in the name of a directory stands for any character."""

    def __init__(self, scheme: str, options: StorageOptions) -> None:
        super().__init__(scheme, options)
        self.files = SqliteFiles(_LikeDatabase(self.database.path))


class _VersionlessFiles(FsspecFiles):
    @override
    def stat(self, url: str) -> FileStat:
        return replace(super().stat(url), mtime_ns=0, etag="")


class GivesNoVersions(FsspecBackend):
    """A file has neither a time nor an etag."""

    files_class: ClassVar = _VersionlessFiles


class _LastWriter(FsspecPendingWriter):
    @override
    def write(self, data: Buffer) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._size_bytes = 0
        super().write(data)


class _LastPendingFiles(FsspecPendingFiles):
    @override
    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        return _LastWriter(self._client, final_url, tag, checksum)


class KeepsTheLastWrite(FsspecBackend):
    """What is written takes the place of what was written before."""

    pending_class: ClassVar = _LastPendingFiles


class _LeavingPendingFiles(FsspecPendingFiles):
    @override
    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        filesystem, target = self._client.locate(pending.final_url)
        if not filesystem.exists(target):
            super().publish(pending, durability)


class LeavesHalfAPublish(FsspecBackend):
    """Where the final name is there, nothing is left to do."""

    pending_class: ClassVar = _LeavingPendingFiles


class _FirstPageFiles(FsspecFiles):
    @override
    def list(self, url: str) -> Iterator[FileStat]:
        return islice(super().list(url), 1000)


class ListsAPageOfFiles(FsspecBackend):
    """A listing of a directory ends after 1,000 names."""

    files_class: ClassVar = _FirstPageFiles


class _FirstPageObjects(FsspecObjectStore):
    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        return islice(super().list(directory, after), 1000)


class ListsAPageOfObjects(FsspecBackend):
    """A listing of objects ends after 1,000 names."""

    @override
    def objects(self, url: str, roots: Roots) -> FsspecObjectStore:
        return _FirstPageObjects(self.client, url, roots)


class _RememberingObjects(FsspecObjectStore):
    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        self._listed = getattr(self, "_listed", None) or [*super().list(directory, after)]
        return iter(self._listed)


class RemembersObjects(FsspecBackend):
    """A listing of objects never changes."""

    @override
    def objects(self, url: str, roots: Roots) -> FsspecObjectStore:
        return _RememberingObjects(self.client, url, roots)
