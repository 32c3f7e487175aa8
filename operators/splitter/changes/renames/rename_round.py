"""Decides about files that are examined together: their former names, copies, and new files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from dagflow.storage.fingerprint import UNKNOWN, file_id_of
from operators.files.rotation_names import earlier_paths, is_shifted
from operators.files.source_events import Fate
from operators.splitter.changes.renames.evidence import ContentPrefix, Evidence
from operators.splitter.changes.renames.inode_versions import InodeVersions
from operators.splitter.changes.renames.left_files import COPY_GRACE_S, INCOMPLETE_GRACE_S, LeftFiles
from operators.splitter.changes.renames.verdicts import Outcome, Source, Suspect, Verdict, stat_behind_links
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.fingerprinting import FilePrefix
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.workers import InTasks


class RenameRound:
    """The state of suspects that are examined together, and of the versions that they may be.

    Create it before the index is read, which has all later reports: files whose readers have not reported by then are
    left for later scans.

    Args:
        pending: Files whose fingerprints readers will report.
        left: Files that are left for later scans.
        in_tasks: Takes fingerprints.
    """

    def __init__(self, pending: PendingFingerprints, left: LeftFiles, in_tasks: InTasks | None) -> None:
        self._pending = pending
        self._in_flight_files = pending.in_flight()
        self._left = left
        self._evidence = Evidence(in_tasks)
        self._by_name: dict[bytes, list[Source]] = {}
        self._by_identity: dict[int, InodeVersions] = {}
        # Identities of versions that this scan has emitted.
        self._recent: set[int] = set()
        # Names of versions whose fate is not known yet.
        self._in_flight: set[bytes] = set()
        # Names of versions that were found as suspects: no other suspect is one of them, or its earlier part.
        self._moved: set[bytes] = set()
        # Names of suspects that begin with a version whose own file still has it.
        self._copies: set[bytes] = set()

    def add_by_name(self, sources: Mapping[bytes, Sequence[Source]], recent: set[int]) -> None:
        """Add versions that suspects may be.

        Args:
            sources: The versions by the names of the suspects, in the order in which they are tried.
            recent: Their identities that this scan has emitted.
        """
        for name, own in sources.items():
            self._by_name.setdefault(name, []).extend(own)
        self._recent |= recent
        self._add_in_flight(sources.values())

    def set_by_identity(self, sources: Mapping[int, Sequence[Source]]) -> None:
        """Set the versions by their identities, in the order in which they are tried."""
        self._by_identity = {identity: InodeVersions(identity, own) for identity, own in sources.items()}
        self._add_in_flight(sources.values())

    def _add_in_flight(self, sources: Iterable[Sequence[Source]]) -> None:
        self._in_flight |= self._in_flight_files.among(source.taken_name for own in sources for source in own)

    def fetch_evidence(self, suspects: Sequence[Suspect]) -> None:
        """Request likely evidence together: many files may have moved, and each request may be a Spark job."""
        prefixes: list[FilePrefix] = []
        contents: list[ContentPrefix] = []
        for suspect in suspects:
            size_bytes = suspect.stat.size_bytes
            sources = [*self._left_with_inode(suspect)] if size_bytes > 0 else []
            if suspect.is_compressed:
                sizes = {source.entry.size_bytes for source in self._by_name[suspect.name]}
                contents += [ContentPrefix(suspect.path, size) for size in sizes if size > 0]
            else:
                sources += [each for each in self._by_name[suspect.name] if each.entry.size_bytes <= size_bytes]
            known = (source.entry for source in sources if source.entry.fingerprint > UNKNOWN)
            prefixes += [suspect.prefix(entry.size_bytes) for entry in known]
        self._evidence.fetch(prefixes)
        self._evidence.fetch_contents(contents)
        self._evidence.fetch(each for suspect in suspects for each in self._prefixes_of_known(suspect))

    def _prefixes_of_known(self, suspect: Suspect) -> Iterator[FilePrefix]:
        """The prefixes to fingerprint in the files under the names of the versions with which a file begins."""
        known = self._by_name[suspect.name]
        for source in known:
            if source.entry.size_bytes > 0 and self._begins_with(suspect, source) is not None:
                still_has = _still_has_by_stat(source, known)
                if isinstance(still_has, FilePrefix):
                    yield still_has

    def _left_with_inode(self, suspect: Suspect) -> Iterator[Source]:
        versions = self._by_identity.get(suspect.stat.file_id)
        return iter(()) if versions is None else versions.left(suspect)

    def find_source(self, suspect: Suspect) -> Verdict | None:
        """The verdict that a file is known under another name, or not decided yet; None if it is not known."""
        if suspect.stat.size_bytes > 0:
            for source in self._left_with_inode(suspect):
                if source.taken_name in self._moved:
                    continue
                if (verdict := self._judge_inode(suspect, source)) is not None:
                    return verdict
        return self.find_source_by_content(suspect)

    def _judge_inode(self, suspect: Suspect, source: Source) -> Verdict | None:
        entry, stat = source.entry, suspect.stat
        is_same = (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
        if entry.fingerprint > UNKNOWN:
            if self._evidence.fingerprint(suspect.prefix(entry.size_bytes)) != entry.fingerprint:
                return None
        elif not is_same:
            # Without a fingerprint a new file cannot be distinguished from one that has got the inode of a deleted one.
            return Verdict(suspect, "later") if self._is_pending(source) else None
        if source.taken_name in self._in_flight:
            return Verdict(suspect, "later")
        self._moved.add(source.taken_name)
        return Verdict(suspect, "moved", source, entry.read_until, has_more=entry.read_until < stat.size_bytes)

    def find_source_by_content(self, suspect: Suspect) -> Verdict | None:
        """The same for a file with the content of one whose name it may have got, or of which it may be a copy."""
        # Paths of files that it may be a copy of; the longest version of a path comes first, and decides for all.
        copied: set[bytes] = set()
        for source in self._by_name[suspect.name]:
            entry = source.entry
            if source.taken_name in self._moved or entry.size_bytes <= 0 or source.path in (suspect.path, *copied):
                continue
            if entry.fingerprint == UNKNOWN and self._is_pending(source):
                return Verdict(suspect, "later")
            if (found := self._begins_with(suspect, source)) is None:
                continue
            if entry.identity in self._recent and not self._left.was_left_often(suspect):
                return Verdict(suspect, "again")
            if not _may_have_gone_to(suspect, source, self._by_name[suspect.name]):
                continue
            if suspect.is_behind(source.path) or not self._still_has(source, self._by_name[suspect.name]):
                if source.taken_name in self._in_flight:
                    return Verdict(suspect, "later")
                if not suspect.is_exactly_as_listed():
                    # The file may have been completed, or its time set, between the listing and the examination.
                    return Verdict(suspect, "later" if self._left.was_left_often(suspect) else "again")
                self._moved.add(source.taken_name)
                has_more = found or entry.fate is not Fate.READ
                is_content = suspect.is_compressed
                return Verdict(suspect, "moved", source, entry.read_until, has_more, is_content, is_copy=True)
            copied.add(source.path)
        if copied:
            self._copies.add(suspect.name)
        return None

    def leave_copies(self, suspects: Sequence[Suspect]) -> dict[int, Verdict]:
        """Leave files for later scans that may be copies in progress; all must have been examined before.

        Returns:
            The verdicts by the ids of the suspects; files that are no copies, or stayed unchanged, have none.
        """
        others_by_id = {id(each): list(_files_before(each)) for each in suspects}
        compressed = [each for each in suspects if each.is_compressed]
        self._evidence.fetch_contents(
            ContentPrefix(each.path, other.size_bytes) for each in compressed for other in others_by_id[id(each)]
        )
        pairs = ((each, other) for each in suspects for other in others_by_id[id(each)])
        self._evidence.fetch(prefix for pair in pairs for prefix in self._prefixes_of_copy(*pair))
        left: dict[int, Verdict] = {}
        for each in suspects:
            beginnings = [self._beginning_of(each, other) for other in others_by_id[id(each)]]
            grace_s = INCOMPLETE_GRACE_S if "incomplete" in beginnings else COPY_GRACE_S
            is_copy = each.name in self._copies or any(beginnings)
            if is_copy and self._left.leave_new_copy(each, grace_s):
                left[id(each)] = Verdict(each, "later")
        return left

    def _begins_with(self, suspect: Suspect, source: Source) -> bool | None:
        """Whether a file, or its decompressed content, continues a version; None if it begins differently."""
        entry, size_bytes = source.entry, suspect.stat.size_bytes
        if entry.fingerprint <= UNKNOWN:
            return None
        if suspect.is_compressed:
            content = self._evidence.content(ContentPrefix(suspect.path, entry.size_bytes))
            is_same = (content.size_bytes, content.fingerprint) == (entry.size_bytes, entry.fingerprint)
            return content.has_more if is_same else None
        is_same = entry.size_bytes <= size_bytes and (
            self._evidence.fingerprint(suspect.prefix(entry.size_bytes)) == entry.fingerprint
        )
        return size_bytes > entry.size_bytes if is_same else None

    def _still_has(self, source: Source, known: Sequence[Source]) -> bool:
        """Whether the file of a version's own name is still the one that was taken, and begins with the version.

        Args:
            source: The version.
            known: Versions of the same paths, including the newest that was taken of this file.
        """
        still_has = _still_has_by_stat(source, known)
        if isinstance(still_has, FilePrefix):
            return self._evidence.fingerprint(still_has) == source.entry.fingerprint
        return still_has

    def _prefixes_of_copy(self, suspect: Suspect, other: FilePrefix) -> Iterator[FilePrefix]:
        """The prefixes to fingerprint in a file and in another one, of which it may be a copy."""
        size_bytes = self._size_within(suspect, other)
        if size_bytes is not None:
            yield other._replace(size_bytes=size_bytes)
            if not suspect.is_compressed:
                yield suspect.prefix(size_bytes)

    def _size_within(self, suspect: Suspect, other: FilePrefix) -> int | None:
        """The size of a file, or of its decompressed content; None if that is larger than another file."""
        if suspect.is_compressed:
            content = self._evidence.content(ContentPrefix(suspect.path, other.size_bytes))
            return None if content.has_more else content.size_bytes
        size_bytes = suspect.stat.size_bytes
        return size_bytes if size_bytes <= other.size_bytes else None

    def _beginning_of(self, suspect: Suspect, other: FilePrefix) -> Literal["", "incomplete", "whole"]:
        """Whether a file holds the beginning, or all, of an existing one, and so may be its copy; "" if it does not."""
        size_bytes = self._size_within(suspect, other)
        if size_bytes is None:
            return ""
        if suspect.is_compressed:
            fingerprint = self._evidence.content(ContentPrefix(suspect.path, other.size_bytes)).fingerprint
        else:
            fingerprint = self._evidence.fingerprint(suspect.prefix(size_bytes))
        if size_bytes and self._evidence.fingerprint(other._replace(size_bytes=size_bytes)) != fingerprint:
            return ""
        return "incomplete" if size_bytes < other.size_bytes else "whole"

    def _is_pending(self, source: Source) -> bool:
        return bool(self._pending.are_pending([source.name])[0])

    def decide(self, suspect: Suspect, verdict: Verdict | None) -> Verdict:
        """The verdict on a file; without another name, for which verdict is None, it is new or changed.

        All other files must have been examined: one of them may be the former file of its name.
        """
        if verdict is None:
            # A task that finds another file under the name says nothing about this one.
            is_there = self._left.was_left_often(suspect) or suspect.is_still_there(())
            is_as_listed = is_there and not self._is_in_the_making(suspect)
            verdict = Verdict(suspect, self._outcome_under_its_name(suspect) if is_as_listed else "again")
        if verdict.outcome == "again":
            self._left.leave_for_next_scan(suspect)
        return verdict

    def _is_in_the_making(self, suspect: Suspect) -> bool:
        """Whether a file that a rotation may have made has changed between the listing and the examination."""
        may_be_copy = bool(self._by_name.get(suspect.name)) and not self._left.was_left_often(suspect)
        return may_be_copy and not suspect.is_exactly_as_listed()

    def _outcome_under_its_name(self, suspect: Suspect) -> Outcome:
        entry = suspect.entry
        if entry is None or suspect.name in self._moved:
            return "new"
        if entry.identity == suspect.stat.file_id:
            return "changed"
        # The former file of the name has been found elsewhere, now or by an earlier scan.
        others = self._by_identity.get(entry.identity)
        is_elsewhere = others is not None and any(_has_gone_to(each, suspect.path, entry) for each in others.sources)
        return "new" if is_elsewhere else "changed"


def _files_before(suspect: Suspect) -> Iterator[FilePrefix]:
    """Existing files under the former names of a file, of which it may be a copy."""
    for path in earlier_paths(suspect.path):
        now = stat_behind_links(path)
        if now is not None and path != suspect.path and not suspect.is_behind(path) and os.path.isfile(path):
            yield FilePrefix(path, now.st_size, file_id_of(now.st_ino))


def _may_have_gone_to(suspect: Suspect, source: Source, known: Sequence[Source]) -> bool:
    """Whether a file that begins with a version may be its current file, by name and time.

    Args:
        suspect: The file.
        source: The version.
        known: Versions of the same paths, including the newest that was taken of this file.
    """
    if suspect.is_compressed:
        return True
    # A log that is copied stays, truncated. If it is gone, or the number is higher, a new file may have the content of
    # a deleted one. Files that are moved here from another file system, or mirrored, keep their time.
    if stat_behind_links(source.path) is not None and not is_shifted(suspect.path, source.path):
        return True
    mtime_ns = suspect.stat.mtime_ns
    return any(each.entry.mtime_ns == mtime_ns for each in known if each.taken_name == source.taken_name)


def _still_has_by_stat(source: Source, known: Sequence[Source]) -> bool | FilePrefix:
    """See RenameRound._still_has; if only the content decides, the bytes that must be those of the version."""
    entry, now = source.entry, stat_behind_links(source.path)
    if now is None or now.st_size < entry.size_bytes:
        return False
    file_id = file_id_of(now.st_ino)
    if (file_id, now.st_size, now.st_mtime_ns) == (entry.identity, entry.size_bytes, entry.mtime_ns):
        return True
    # The next log may begin with the same lines. The part read before the last tail may have an outdated inode.
    is_same_file = any(_may_be_of(now, each.entry) for each in known if each.taken_name == source.taken_name)
    return is_same_file and FilePrefix(source.path, entry.size_bytes, file_id)


def _may_be_of(now: os.stat_result, entry: IndexEntry) -> bool:
    """Whether a file may be the one of a version: a restored one has another inode, and keeps its size and time."""
    file_id = file_id_of(now.st_ino)
    if not (file_id and entry.identity) or file_id == entry.identity:
        return True
    return (now.st_size, now.st_mtime_ns) == (entry.size_bytes, entry.mtime_ns)


def _has_gone_to(source: Source, path: bytes, entry: IndexEntry) -> bool:
    """Whether a version that was taken under a path is now known as another one."""
    if source.is_earlier or source.path == path or source.entry.size_bytes < entry.size_bytes:
        return False
    now = stat_behind_links(source.path)
    is_there = now is not None and file_id_of(now.st_ino) == entry.identity
    return is_there or source.entry.fingerprint == entry.fingerprint
