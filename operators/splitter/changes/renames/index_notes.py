"""Notes for the index about versions that are replaced, or that are found under another name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from operators.files.source_events import Fate
from operators.splitter.changes.renames.found_files import FileDecision, TakenVersion
from operators.splitter.index.entries import (
    EARLIER,
    PART,
    SHORTER,
    IndexEntry,
    ReadVersion,
    earlier_name,
    earlier_names,
    shorter_name,
)

_NOTHING = IndexEntry(0, 0, 0, fate=Fate.MOVED)

_NEVER_MILLIS = 1 << 62
"""Replaces the time of a version that was taken, so that its slot is the last to be reused."""


def names_to_know(read: Mapping[bytes, ReadVersion]) -> list[bytes]:
    """The names in the index whose entries the notes depend on; see IndexNotes."""
    parts = {_path_of(name) + PART for name in read}
    taken = (earlier_names(name, version) for name, version in read.items() if EARLIER not in name)
    return [*parts, *(slot for slots in taken for slot in slots)]


class IndexNotes:
    """Entries to note in the index together with files that were held, in the order in which these are taken.

    Guarantee: the index is right after each file that is taken with its notes. No name holds a version that this file
    or an earlier one has taken over, and a version that none of them has is held under a name. So the other files may
    be taken in any window, and by any run.
    """

    def __init__(
        self, decisions: Sequence[FileDecision], read: Mapping[bytes, ReadVersion], known: Mapping[bytes, IndexEntry]
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

    def of(self, decision: FileDecision, *, replaces: bool = True) -> list[tuple[bytes, IndexEntry]]:
        """The notes for the next file.

        Args:
            replaces: Whether the file is another version than the one under its name; otherwise both continue
                the same earlier version, and nothing was read of the one under its name.
        """
        file, version = decision.file, decision.version
        notes: dict[bytes, IndexEntry] = {}
        if version is not None:
            notes.update(dict.fromkeys(self._left(version), _NOTHING))
        if file.entry is not None and replaces:
            notes.update(self._set_aside(file.name))
        if version is not None and not decision.is_read:
            before = self._read[version.name]
            notes[shorter_name(file.name, before)] = before.entry
        return list(notes.items())

    def _left(self, version: TakenVersion) -> Iterable[bytes]:
        """The names that no longer hold a version, because it is known under another one from now on."""
        path = _path_of(version.name)
        if version.taken_name != path:
            # The parts read of the path's newest version are stored beside it, and stay.
            is_there = self._known.pop(version.name, version.entry).version == version.entry.version
            return [version.name] if is_there else []
        is_newest = any(_is_same(version.entry, entry) for entry in self._versions_replaced(path))
        if path in self._earlier_names:
            if not is_newest:
                return []
            self._known.pop(self._earlier_names[path], None)
            return [self._earlier_names[path]]
        if is_newest:
            self._found_elsewhere.add(path)
        return [version.name, *self._slots(path)]

    def _set_aside(self, path: bytes) -> Mapping[bytes, IndexEntry]:
        """The version that a path held, under a name of its own, unless it was found elsewhere."""
        before = self._read[path]
        if before.entry.size_bytes <= 0:
            return {}
        notes = dict.fromkeys(self._slots(path), _NOTHING)
        if path not in self._found_elsewhere:
            name = self._earlier_names[path] = earlier_name(path, before, self._known)
            notes[name] = before.entry
            self._known[name] = before.entry._replace(taken_millis=_NEVER_MILLIS)
        return notes

    def _slots(self, path: bytes) -> list[bytes]:
        """The names of the parts read of the version that a path holds."""
        return [path + slot for slot in (SHORTER, PART) if slot == SHORTER or path + PART in self._known]

    def _versions_replaced(self, path: bytes) -> list[IndexEntry]:
        return [self._replaced[path], self._read[path].entry] if path in self._replaced else []


def _path_of(name: bytes) -> bytes:
    return name.partition(EARLIER)[0]


def _is_same(entry: IndexEntry, other: IndexEntry) -> bool:
    """Whether two entries are of one version; only one of them may know that it was found rewritten."""
    return entry.version == other.version
