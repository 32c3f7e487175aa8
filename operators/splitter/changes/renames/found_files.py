"""Files that may be known under another name, the versions that they may continue, and what is decided of them."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from dagflow.frozen import frozen
from dagflow.storage.fingerprint import file_id_of
from operators.files.metadata import Fate, FileVersion
from operators.files.rotation_names import uncompressed
from operators.splitter.changes.renames.cases import Continuing
from operators.splitter.index.entries import EARLIER, PART, SHORTER, IndexEntry, earlier_name, earlier_names
from operators.splitter.scan.listed_files import FilePrefix, ListedFiles


@frozen
class FoundFile:
    """A listed file that may be known under another name.

    Attributes:
        entry: The version that was taken under its name; None for none.
    """

    files: ListedFiles
    entry: IndexEntry | None

    @property
    def path(self) -> bytes:
        return self.files.keys[0]

    @property
    def name(self) -> bytes:
        return self.files.index_names[0]

    @property
    def stat(self) -> FileVersion:
        return self.files.stats[0]

    @property
    def is_compressed(self) -> bool:
        return uncompressed(self.path) != self.path

    def prefix(self, size_bytes: int) -> FilePrefix:
        return FilePrefix(self.path, size_bytes, self.stat.file_id)

    def is_older_than(self, entry: IndexEntry) -> bool:
        """Whether it has an earlier time than a version; compressing programs keep times, some of them in seconds."""
        return self.stat.mtime_ns // 1_000_000_000 < entry.mtime_ns // 1_000_000_000

    def may_be(self, entry: IndexEntry) -> bool:
        """Whether it may be the file of a version, by size and time: neither shorter nor older."""
        stat = self.stat
        is_same = (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
        has_grown = entry.size_bytes < stat.size_bytes and entry.mtime_ns <= stat.mtime_ns
        return entry.size_bytes > 0 and (is_same or has_grown)

    def is_behind(self, path: bytes) -> bool:
        """Whether another path leads through links to the name under which the scan reads this file.

        Such a path is no second name of it: a scan skips it. Links above the location of the scan that both paths have
        in common do not count.
        """
        if (real := os.path.realpath(path)) == path:
            return False
        common = os.path.commonpath([path, os.path.dirname(self.files.root.base)])
        return real == os.path.join(os.path.realpath(common), os.path.relpath(self.path, common))

    def is_still_there(self, emitted: Container[int]) -> bool:
        """Whether the listed file still exists, and is not shorter.

        Args:
            emitted: Identities of files that the scan has emitted. Such a file with a single link was renamed while the
                scan ran, and is known under its former name.
        """
        now = stat_behind_links(self.path)
        if now is None or file_id_of(now.st_ino) != self.stat.file_id or now.st_size < self.stat.size_bytes:
            return False
        return self.stat.file_id not in emitted or now.st_nlink > 1

    def is_exactly_as_listed(self) -> bool:
        now, listed = stat_behind_links(self.path), self.stat
        version = listed.file_id, listed.size_bytes, listed.mtime_ns
        return now is not None and (file_id_of(now.st_ino), now.st_size, now.st_mtime_ns) == version


@frozen
class TakenVersion:
    """A version that was taken, and that may be under another name now."""

    name: bytes
    path: bytes
    entry: IndexEntry

    @property
    def taken_name(self) -> bytes:
        """The name under which the version was taken, or of the rest behind it that may not be read yet."""
        return self.name.removesuffix(SHORTER).removesuffix(PART)

    @property
    def is_earlier(self) -> bool:
        return EARLIER in self.name


@frozen
class FileDecision:
    """What a held file is.

    Attributes:
        answer: CONTINUES, NEW, CHANGED, LATER or AGAIN.
        has_more: Whether it has bytes behind those that were read of the version.
        is_content: Whether the content of a compressed file was recognised. The inode proves nothing then: the file may
            have got that of the uncompressed file.
        is_copy: Whether it is another file than the one that was read, which nothing is appended to.
    """

    file: FoundFile
    answer: Continuing
    version: TakenVersion | None = None
    has_more: bool = False
    is_content: bool = False
    is_copy: bool = False

    @property
    def is_read(self) -> bool:
        """Whether all of it was read, also a last record without delimiter."""
        entry = None if self.version is None else self.version.entry
        return not (entry is None or self.has_more or entry.rest_bytes or entry.fate is not Fate.READ)


class VersionsOfInode:
    """Versions with one inode number, in the order in which they are tried.

    A file of many hard links has a version under each of its names. They are examined once, and not for each file of
    that inode.

    Args:
        versions: The versions, longest first.
    """

    def __init__(self, file_id: int, versions: Sequence[TakenVersion]) -> None:
        self.versions = versions
        self._file_id = file_id

    def left(self, file: FoundFile) -> Iterator[TakenVersion]:
        """The versions that have left their names and that a file of this inode may be, even if they are back."""
        # If the newest version of the name is this very file, the file was changed in place, and was not away.
        is_back = file.name not in self._names
        for position in sorted({*self._away, *self._positions.get(file.path, ())}):
            version = self.versions[position]
            if not file.may_be(version.entry):
                continue
            if version.path == file.path:
                has_left = is_back and version.taken_name != file.name
            else:
                has_left = not self._is_at(version.path) or file.is_behind(version.path)
            if has_left:
                yield version

    @cached_property
    def _names(self) -> frozenset[bytes]:
        return frozenset(version.name for version in self.versions)

    @cached_property
    def _positions(self) -> dict[bytes, list[int]]:
        positions: dict[bytes, list[int]] = {}
        for position, version in enumerate(self.versions):
            positions.setdefault(version.path, []).append(position)
        return positions

    @cached_property
    def _away(self) -> list[int]:
        """Positions of versions whose paths no longer are names of the file, or lead to it only through links."""
        paths = {path for path in self._positions if not self._is_at(path) or os.path.realpath(path) != path}
        return [position for position, version in enumerate(self.versions) if version.path in paths]

    def _is_at(self, path: bytes) -> bool:
        now = stat_behind_links(path)
        return now is not None and file_id_of(now.st_ino) == self._file_id


def stat_behind_links(path: bytes) -> os.stat_result | None:
    """The current version of the file that a path leads to; None if there is none, or it cannot be examined.

    The file may have another name now, and a link under this one: see FoundFile.is_behind().
    """
    try:
        return os.stat(path)
    except OSError:
        return None


_NOTHING = IndexEntry(0, 0, 0, fate=Fate.MOVED)

_NEVER_MILLIS = 1 << 62
"""Replaces the time of a version that was taken, so that its slot is the last to be reused."""


def names_to_know(read: Mapping[bytes, IndexEntry]) -> list[bytes]:
    """The names in the index whose entries the notes depend on; see IndexNotes."""
    parts = {_path_of(name) + PART for name in read}
    taken = (earlier_names(name) for name in read if EARLIER not in name)
    return [*parts, *(slot for slots in taken for slot in slots)]


class IndexNotes:
    """Entries to note in the index together with files that were held, in the order in which these are taken.

    Guarantee: the index is right after each file that is taken with its notes. No name holds a version that this file
    or an earlier one has taken over, and a version that none of them has is held under a name. So the other files may
    be taken in any window, and by any run.
    """

    def __init__(
        self, decisions: Sequence[FileDecision], read: Mapping[bytes, IndexEntry], known: Mapping[bytes, IndexEntry]
    ) -> None:
        self._read = read
        files = [decision.file for decision in decisions]
        self._replaced = {file.name: file.entry for file in files if file.entry is not None}
        continued = {decision.version.name for decision in decisions if decision.version is not None}
        self._known = {
            name: entry._replace(taken_millis=_NEVER_MILLIS) if name in continued else entry
            for name, entry in known.items()
        }
        # By path: the name of the version that the path held before these files were taken.
        self._earlier_names: dict[bytes, bytes] = {}
        self._found_elsewhere: set[bytes] = set()

    def of(
        self, decision: FileDecision, *, replaces: bool = True, is_out: bool = False
    ) -> list[tuple[bytes, IndexEntry]]:
        """The notes for the next file.

        Args:
            replaces: Whether the file is another version than the one under its name; otherwise both continue
                the same earlier version, and nothing was read of the one under its name.
            is_out: Whether the records of that one leave the output: found under another name, all of it is read.
        """
        file, version = decision.file, decision.version
        notes: dict[bytes, IndexEntry] = {}
        if version is not None:
            notes.update(dict.fromkeys(self._left(version), _NOTHING))
        if file.entry is not None and replaces:
            notes.update(self._set_aside(file.name, is_out=is_out))
        if version is not None and not decision.is_read:
            before = self._read[version.name]
            notes[file.name + (PART if before.is_part else SHORTER)] = before
        return list(notes.items())

    def _left(self, version: TakenVersion) -> Iterable[bytes]:
        """The names that no longer hold a version, because it is known under another one from now on."""
        path = _path_of(version.name)
        if version.taken_name != path:
            # The parts read of the path's newest version are stored beside it, and stay.
            is_there = self._known.pop(version.name, version.entry).version == version.entry.version
            return [version.name] if is_there else []
        # Only one of two entries of a version may know that it was found rewritten.
        replaced = [self._replaced[path], self._read[path]] if path in self._replaced else []
        is_newest = version.entry.version in [entry.version for entry in replaced]
        if path in self._earlier_names:
            if not is_newest:
                return []
            self._known.pop(self._earlier_names[path], None)
            return [self._earlier_names[path]]
        if is_newest:
            self._found_elsewhere.add(path)
        return [version.name, *self._slots(path)]

    def _set_aside(self, path: bytes, *, is_out: bool) -> Mapping[bytes, IndexEntry]:
        """The version that a path held, under a name of its own, unless it was found elsewhere."""
        before = self._read[path]
        if before.size_bytes <= 0:
            return {}
        notes = dict.fromkeys(self._slots(path), _NOTHING)
        if path not in self._found_elsewhere and not is_out:
            name = self._earlier_names[path] = earlier_name(path, before, self._known)
            notes[name] = before
            self._known[name] = before._replace(taken_millis=_NEVER_MILLIS)
        return notes

    def _slots(self, path: bytes) -> list[bytes]:
        """The names of the parts read of the version that a path holds."""
        return [path + slot for slot in (SHORTER, PART) if slot == SHORTER or path + PART in self._known]


def _path_of(name: bytes) -> bytes:
    return name.partition(EARLIER)[0]
