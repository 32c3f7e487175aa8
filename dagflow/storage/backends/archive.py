"""The members of zip and tar archives in any store, as files of that store: `in/a.zip!orders/1.csv`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from dagflow.errors import StorageError
from dagflow.storage.archives import Member, Unpacked, members_of, open_member, unpacked_tar
from dagflow.storage.base import Backend, ObjectStore
from dagflow.storage.files import Files, FileStat, ReadableFile, require_same_version
from dagflow.storage.location import Roots, archive_of, redacted

if TYPE_CHECKING:
    from dagflow.storage.context import StorageContext

MAX_MEMBERS = 1 << 17
"""Members of archives that are remembered, some 250 bytes each; more only if one archive has more."""


class ArchiveBackend(Backend):
    """Reads members of archives in a store; what is written under such a name is an ordinary file of the store."""

    def __init__(self, store: Backend, storage: StorageContext) -> None:
        super().__init__(store.scheme, store.options, ArchiveFiles(storage, store.files), store.pending)
        self._store = store

    def objects(self, url: str, roots: Roots) -> ObjectStore:
        return self._store.objects(url, roots)


class ArchiveFiles(Files):
    """Members of archives. Their version is that of the archive.

    Guarantee: a compressed tar archive is decompressed once by a process that reads its members one after the other;
    members of zip archives are read at their places. A file whose own name is that of a member is found where there is
    no such member.
    """

    def __init__(self, storage: StorageContext, ordinary: Files) -> None:
        self._storage = storage
        self._ordinary = ordinary
        self._members: OrderedDict[FileStat, dict[str, Member]] = OrderedDict()  # by age
        self._held = 0
        self._unpacked: tuple[FileStat, ReadableFile] | None = None

    def members(self, archive: FileStat) -> Iterator[FileStat]:
        """All members of a version of an archive, by the bytes of their names; errors as those of members_of()."""
        return (_stat_of(archive, member) for member in self.directory(archive).values())

    def knows(self, archive: FileStat) -> bool:
        """Whether the members of a version of an archive are remembered."""
        return archive in self._members

    def learn(self, archive: FileStat, members: dict[str, Member]) -> None:
        """Remember the members of a version of an archive, and forget those that were learned first."""
        self._members[archive] = members
        self._held += 1 + len(members)
        while len(self._members) > 1 and self._held > MAX_MEMBERS:
            self._held -= 1 + len(self._members.popitem(last=False)[1])

    def directory(self, archive: FileStat) -> dict[str, Member]:
        """The members of a version of an archive by name; see members()."""
        members = self._members.get(archive)
        if members is None:
            with self._open_archive(archive) as file:
                members = {member.name: member for member in members_of(file, archive.url)}
            self.learn(archive, members)
        return members

    def stat(self, url: str) -> FileStat:
        found = self._find(url)
        return self._ordinary.stat(url) if found is None else _stat_of(*found)

    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        if (found := self._find(url)) is None:
            return self._ordinary.open(url, expected)
        require_same_version(expected, _stat_of(*found))
        file = self._open_archive(found[0])
        try:
            return open_member(file, found[1], url)
        except BaseException:
            file.close()
            raise

    def no_listing(self, url: str) -> str:
        return "name the archive, and choose its members by their names with file_pattern and ignore_pattern"

    def list(self, url: str) -> Iterator[FileStat]:
        raise StorageError("members cannot be listed like this", url=redacted(url), hint=self.no_listing(url))

    def remove(self, url: str) -> None:
        raise StorageError("a member of an archive cannot be removed", url=redacted(url))

    def _find(self, url: str) -> tuple[FileStat, Member] | None:
        """The archive and the member with a name; None if there is no such member."""
        place, name = archive_of(url) or (url, "")
        archive = self._storage.find(place)
        member = None if archive is None or archive.is_directory else self.directory(archive).get(name)
        return None if archive is None or member is None else (archive, member)

    def _open_archive(self, archive: FileStat) -> ReadableFile:
        """The bytes of an archive: of a tar archive without its compression, of an archive in another one all."""
        if self._unpacked is not None and self._unpacked[0] == archive:
            return self._unpacked[1]
        file = self._storage.open_file(archive.url, archive)
        plain = file if archive.url.lower().endswith(".zip") else unpacked_tar(file, archive.url)
        if isinstance(plain, Unpacked):
            self._unpacked = archive, plain
        return plain


def _stat_of(archive: FileStat, member: Member) -> FileStat:
    # A tag, as objects have, that says that the file neither grows nor moves, but changes with its archive.
    tag = archive.etag or f"{archive.size_bytes}-{archive.mtime_ns}"
    return replace(archive, url=f"{archive.url}!{member.name}", size_bytes=member.size_bytes, etag=tag, file_id=0)


def directory_in_task(request: tuple[StorageContext, FileStat]) -> dict[str, Member] | StorageError:
    """The members of a version of an archive, or why they cannot be listed; see ArchiveFiles.directory."""
    storage, archive = request
    files = storage.backend(f"{archive.url}!").files
    assert isinstance(files, ArchiveFiles)
    try:
        return files.directory(archive)
    except StorageError as error:
        return error
