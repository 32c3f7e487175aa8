"""Finds out the facts about a file and the versions that it may continue: by its name, its inode, and its bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from dagflow.storage.fingerprint import UNKNOWN, file_id_of
from operators.files.rotation_names import is_shifted
from operators.splitter.changes.renames.cases import Original
from operators.splitter.changes.renames.copies import Beginnings, ContentPrefix, LeftFiles
from operators.splitter.changes.renames.found_files import FoundFile, TakenVersion, VersionsOfInode, stat_behind_links
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import FilePrefix

AreRecent = Callable[[Sequence[int]], set[int]]
"""The inodes among some that this scan has emitted."""


class KnownVersions:
    """The versions that some files may continue, which are examined together.

    Create it before the index is read, which has all later reports: files whose readers have not reported by then are
    left for later scans.

    Attributes:
        by_name: The versions under former names of files, by the files' names, in the order in which they are tried.
        seen_now: Inodes of versions that this scan has emitted.
        moved: Names of versions that were found as files: no other file is one of them, or its earlier part.
        copies: Names of files that begin with a version whose own file still has it.
    """

    def __init__(
        self, pending: PendingFingerprints, left: LeftFiles, beginnings: Beginnings, are_recent: AreRecent
    ) -> None:
        self.pending = pending
        self.left = left
        self.beginnings = beginnings
        self.by_name: dict[bytes, list[TakenVersion]] = {}
        self.by_inode: dict[int, VersionsOfInode] = {}
        self.seen_now: set[int] = set()
        self.in_flight: set[bytes] = set()
        self.moved: set[bytes] = set()
        self.copies: set[bytes] = set()
        self._uncommitted = pending.in_flight()
        self._are_recent = are_recent

    def add(
        self, by_name: Mapping[bytes, Sequence[TakenVersion]], by_inode: Mapping[int, Sequence[TakenVersion]]
    ) -> None:
        """Add versions by the names of the files that may continue them, and by their inodes, in the order to try."""
        for name, others in by_name.items():
            self.by_name.setdefault(name, []).extend(others)
        self.by_inode |= {inode: VersionsOfInode(inode, others) for inode, others in by_inode.items()}
        added = [version for others in (*by_name.values(), *by_inode.values()) for version in others]
        self.in_flight |= self._uncommitted.among(version.taken_name for version in added)
        self.seen_now |= self._are_recent([version.entry.identity for version in added])

    def fetch(self, files: Sequence[FoundFile]) -> None:
        """Request bytes that will be looked at together: many files may have moved, and a request may be a job."""
        by_inode = [pair for file in files for pair in self._with_inode(file)]
        by_name = [Pair(file, version, self) for file in files for version in self.by_name[file.name]]
        wanted = [*by_inode, *(pair for pair in by_name if not pair.is_compressed)]
        self.beginnings.fetch(prefix for pair in wanted if (prefix := pair.prefix) is not None)
        contents = (pair for pair in by_name if pair.is_compressed and pair.version.entry.size_bytes > 0)
        self.beginnings.fetch_contents(pair.content_prefix for pair in contents)
        begun = (pair for pair in by_name if pair.version.entry.size_bytes > 0 and pair.same_bytes)
        prefixes = (pair.original_prefix for pair in begun)
        self.beginnings.fetch(prefix for prefix in prefixes if isinstance(prefix, FilePrefix))

    def _with_inode(self, file: FoundFile) -> Iterator[Pair]:
        """The versions that have left their names, and that the file may be by its inode."""
        versions = self.by_inode.get(file.stat.file_id) if file.stat.size_bytes > 0 else None
        for version in () if versions is None else versions.left(file):
            yield Pair(file, version, self, same_inode=True)

    def versions_of(self, file: FoundFile) -> Iterator[Pair]:
        """The versions that a file may continue, in the order in which they are tried."""
        yield from (pair for pair in self._with_inode(file) if pair.version.taken_name not in self.moved)
        yield from self.named_before(file)

    def named_before(self, file: FoundFile) -> Iterator[Pair]:
        """The versions whose names a rotation may have changed to that of a file."""
        # The longest version of a path comes first, and decides for all of them whether the file is a copy.
        copied: set[bytes] = set()
        for version in self.by_name[file.name]:
            if version.taken_name in self.moved or version.entry.size_bytes <= 0:
                continue
            if version.path not in (file.path, *copied):
                yield (pair := Pair(file, version, self))
                if pair.is_copy:
                    copied.add(version.path)


class Pair:
    """The facts about a file and a version under another name that it may continue; see PAIR_CASES.

    Args:
        same_inode: Whether the version is tried by its inode.
    """

    def __init__(
        self, file: FoundFile, version: TakenVersion, known: KnownVersions, *, same_inode: bool = False
    ) -> None:
        self.file = file
        self.version = version
        self.same_inode = same_inode
        self.is_copy = False
        self._known = known

    def __str__(self) -> str:
        version, taken, now = os.fsdecode(self.version.path), self.version.entry.size_bytes, self.file.stat.size_bytes
        return f"{os.fsdecode(self.file.path)} ({now} bytes) and the {taken} bytes that were taken of {version}"

    @cached_property
    def _own(self) -> list[IndexEntry]:
        """Versions of the same file, including the newest that was taken of it."""
        versions = self._known.by_name[self.file.name]
        return [version.entry for version in versions if version.taken_name == self.version.taken_name]

    @cached_property
    def same_bytes(self) -> bool | None:
        """Whether the file, or its content, begins with the bytes that were taken; None if that cannot be known."""
        entry = self.version.entry
        if entry.fingerprint == UNKNOWN:
            return None
        if self.is_content:
            content = self._known.beginnings.content(self.content_prefix)
            return (content.size_bytes, content.fingerprint) == (entry.size_bytes, entry.fingerprint)
        return self.prefix is not None and self._known.beginnings.fingerprint(self.prefix) == entry.fingerprint

    @property
    def is_content(self) -> bool:
        """Whether the content of the file is compared: its inode proves nothing, if it is compressed."""
        return self.is_compressed and not self.same_inode

    @property
    def prefix(self) -> FilePrefix | None:
        """The first bytes of the file that must be those of the version; None if it has fewer, or nothing is known."""
        entry = self.version.entry
        if entry.fingerprint == UNKNOWN or entry.size_bytes > self.file.stat.size_bytes:
            return None
        return self.file.prefix(entry.size_bytes)

    @property
    def content_prefix(self) -> ContentPrefix:
        return ContentPrefix(self.file.path, self.version.entry.size_bytes)

    @property
    def has_more(self) -> bool:
        """Whether the file has bytes behind those that were read of the version."""
        entry = self.version.entry
        if self.is_content:
            content = self._known.beginnings.content(self.content_prefix)
            return content.has_more or entry.read_until < entry.size_bytes
        return self.file.stat.size_bytes > entry.read_until

    @property
    def same_version(self) -> bool:
        """Whether the file has the version's size and time."""
        entry, stat = self.version.entry, self.file.stat
        return (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)

    @property
    def same_time(self) -> bool:
        """Whether the file has the time of the version, or of a later one of the same file."""
        # Files that are moved here from another file system, or mirrored, keep their time.
        return any(entry.mtime_ns == self.file.stat.mtime_ns for entry in self._own)

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed."""
        return self.file.is_compressed

    @property
    def only_number_differs(self) -> bool:
        """Whether the names differ in their last number alone."""
        return is_shifted(self.file.path, self.version.path)

    @cached_property
    def original(self) -> Original:
        """What is under the version's name."""
        prefix = self.original_prefix
        if isinstance(prefix, FilePrefix):
            return "kept" if self._known.beginnings.fingerprint(prefix) == self.version.entry.fingerprint else "other"
        return prefix

    @cached_property
    def original_prefix(self) -> Original | FilePrefix:
        """What is under the version's name; the bytes that must be those of the version, if only these decide."""
        entry, path = self.version.entry, self.version.path
        now = stat_behind_links(path)
        if now is None:
            return "gone"
        if now.st_size < entry.size_bytes or self.file.is_behind(path):
            return "other"
        file_id = file_id_of(now.st_ino)
        if (file_id, now.st_size, now.st_mtime_ns) == (entry.identity, entry.size_bytes, entry.mtime_ns):
            return "kept"

        def may_be_of(other: IndexEntry) -> bool:
            # A restored file has another inode, and keeps its size and time.
            is_same_inode = not (file_id and other.identity) or file_id == other.identity
            return is_same_inode or (now.st_size, now.st_mtime_ns) == (other.size_bytes, other.mtime_ns)

        # The next log may begin with the same lines. The part read before the last tail may have an outdated inode.
        return FilePrefix(path, entry.size_bytes, file_id) if any(map(may_be_of, self._own)) else "other"

    @property
    def is_to_be_reported(self) -> bool:
        """Whether a reader will report the fingerprint of the version."""
        return bool(self._known.pending.are_pending([self.version.name])[0])

    @property
    def in_flight(self) -> bool:
        """Whether the window that reads the version is not committed."""
        return self.version.taken_name in self._known.in_flight

    @property
    def seen_now(self) -> bool:
        """Whether this scan has taken the version's inode under another name."""
        return self.version.entry.identity in self._known.seen_now

    @property
    def is_steady(self) -> bool:
        """Whether the file is exactly as it was listed."""
        return self.file.is_exactly_as_listed()

    @property
    def left_often(self) -> bool:
        """Whether the file was left for another scan too often."""
        return self._known.left.was_left_often(self.file.name)


class OwnName:
    """The facts about a file that continues no version under another name; see NAME_CASES.

    Args:
        known: What is known of it; all other files have been examined.
        was_there: Whether it was there, and not renamed meanwhile, when they were.
    """

    def __init__(self, file: FoundFile, known: KnownVersions, *, was_there: bool) -> None:
        self._file = file
        self._known = known
        self._was_there = was_there

    def __str__(self) -> str:
        return f"{os.fsdecode(self._file.path)} and no version"

    @property
    def is_there(self) -> bool:
        """Whether the file is still there, and complete."""
        file, left_often = self._file, self._known.left.was_left_often(self._file.name)
        # A task that finds another file under the name says nothing about this one. A file that a rotation may have
        # made must not have changed since it was listed.
        is_complete = not self._known.by_name.get(file.name) or file.is_exactly_as_listed()
        return self._was_there and (left_often or (file.is_still_there(()) and is_complete))

    @property
    def was_taken(self) -> bool:
        """Whether a version was taken under its name."""
        return self._file.entry is not None

    @property
    def moved_now(self) -> bool:
        """Whether this scan has found that version under another name."""
        return self._file.name in self._known.moved

    @property
    def same_inode(self) -> bool:
        """Whether that version has the file's inode."""
        return self._file.entry is not None and self._file.entry.identity == self._file.stat.file_id

    @property
    def moved_before(self) -> bool:
        """Whether an earlier scan has found that version under another name."""
        entry = self._file.entry
        others = None if entry is None else self._known.by_inode.get(entry.identity)
        return others is not None and any(self._has_gone_to(version) for version in others.versions)

    def _has_gone_to(self, version: TakenVersion) -> bool:
        entry, path = self._file.entry, self._file.path
        assert entry is not None
        if version.is_earlier or version.path == path or version.entry.size_bytes < entry.size_bytes:
            return False
        now = stat_behind_links(version.path)
        is_there = now is not None and file_id_of(now.st_ino) == entry.identity
        return is_there or version.entry.fingerprint == entry.fingerprint
