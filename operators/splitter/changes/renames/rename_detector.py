"""Recognises files that were taken under another name, by inode or, after a log rotation, by content."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dagflow.storage.roots import Roots
from operators.files.rotation_names import earlier_paths, farther_paths, rotated
from operators.splitter.changes.renames.known_identities import KnownIdentities
from operators.splitter.changes.renames.left_files import LeftFiles
from operators.splitter.changes.renames.rename_round import RenameRound
from operators.splitter.changes.renames.verdicts import Source, Suspect, Verdict
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.index.version_slots import EARLIER, PART, SLOTS
from operators.splitter.scan.clock import Clock
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.workers import InTasks

MAX_CACHED_NAMES = 10_000


class RenameDetector:
    """Holds files back that may be known, and decides at the end of a scan what they are.

    A version that was taken is recognised under another name by its inode, whatever the names, if the file has the
    first and last bytes that were taken. It is recognised by these bytes alone if the names are those of a log rotation
    and the file of the old name has lost them, or is another one.

    Args:
        index: The versions that were taken.
        pending: Files whose fingerprints readers will report.
        roots: The app's named roots.
        in_tasks: Takes fingerprints.
        clock: The time.
    """

    def __init__(
        self, index: FileIndex, pending: PendingFingerprints, roots: Roots, in_tasks: InTasks | None, clock: Clock
    ) -> None:
        self._index = index
        self._pending = pending
        self._roots = roots
        self._in_tasks = in_tasks
        self._left = LeftFiles(clock)
        self._known = KnownIdentities(index)
        self._known_names: dict[bytes, bool] = {}
        self._held: list[Suspect] = []

    @property
    def has_more(self) -> bool:
        """Whether files that changed while they were scanned are left for a scan that follows at once."""
        return self._left.has_more

    @property
    def has_waiting(self) -> bool:
        """Whether copies are left until they have been unchanged for COPY_GRACE_S."""
        return self._left.has_waiting

    def begin_scan(self) -> None:
        """Begin a scan; the index has all files that earlier ones emitted."""
        self._known.begin_scan()
        self._known_names.clear()
        self._held.clear()
        self._left.begin_scan()

    def end_scan(self) -> None:
        """End a scan: all files that were held have been resolved."""
        self._left.end_scan()

    @property
    def held_count(self) -> int:
        """How many files are held."""
        return len(self._held)

    def hold(self, files: ListedFiles, entry: IndexEntry | None) -> None:
        """Hold one file."""
        self._held.append(Suspect(files, entry))

    def remember_emitted(self, files: ListedFiles) -> None:
        """Remember files that the scan emits."""
        self._known.add(files.stats.file_ids)

    def remember_identities(self, identities: Sequence[int]) -> None:
        """Remember the identities of versions that the scan notes."""
        self._known.add(np.array(identities, np.int64))

    def hold_suspects(self, files: ListedFiles, view: IndexView) -> ListedFiles:
        """Hold the new files that may be known; the others are returned."""
        suspicious = np.zeros(len(files), bool)
        if not view.is_empty:
            suspicious = rotated(files.keys, lambda paths: self._known_among(files, paths, view))
        suspicious |= self._known.may_have(files.stats.file_ids) & (files.size_bytes > 0)
        suspicious &= files.size_bytes >= 0
        if not suspicious.any():
            return files
        for position in np.flatnonzero(suspicious).tolist():
            self.hold(files.slice(position, position + 1), None)
        return files.take(np.flatnonzero(~suspicious))

    def _known_among(self, files: ListedFiles, paths: Sequence[bytes], view: IndexView) -> set[bytes]:
        name_by_path = {path: files.root.index_name(path) for path in paths}
        known, beyond = view.known_near(list(name_by_path.values()))
        if lacking := [name for name in beyond if name not in self._known_names]:
            found = self._index.paths_among(lacking)
            if len(self._known_names) + len(lacking) > MAX_CACHED_NAMES:
                self._known_names.clear()
            self._known_names.update((name, name in found) for name in lacking)
            known |= {name for name in lacking if name in found}
        known |= {name for name in beyond if self._known_names.get(name)}
        return {path for path, name in name_by_path.items() if name in known}

    def resolve_held(self) -> list[Verdict]:
        """The verdicts on the files that are held, in their order; none is held afterwards."""
        suspects, self._held = self._held, []
        if not suspects:
            return []
        # Before the index is read, which has all later reports.
        current = RenameRound(self._pending, self._left, self._in_tasks)
        given = self._known.are_recent([suspect.stat.file_id for suspect in suspects])
        steady = [each for each in suspects if self._left.was_left_often(each) or each.is_still_there(given)]
        by_name = self._find_by_name(steady)
        current.add_by_name(by_name, self._find_recent(by_name))
        current.set_by_identity(self._find_by_identity(steady))
        current.fetch_evidence(steady)
        # If several files begin with a version, for example one that is only a header, the oldest is the version's
        # file.
        steady.sort(key=lambda each: each.stat.mtime_ns)
        found = {id(each): current.find_source(each) for each in steady}
        found.update(current.leave_copies([each for each in steady if found[id(each)] is None]))
        if strangers := [each for each in steady if found[id(each)] is None and farther_paths(each.path)]:
            self._look_farther(strangers, current)
            found.update((id(each), current.find_source_by_content(each)) for each in strangers)
            found.update(current.leave_copies([each for each in strangers if found[id(each)] is None]))
        # Whether a file was replaced, or moved, is known when all others have been examined.
        return [current.decide(each, found.get(id(each), Verdict(each, "again"))) for each in suspects]

    def _find_by_identity(self, suspects: Sequence[Suspect]) -> dict[int, list[Source]]:
        """The versions with the inodes of some files, or of the files that had their names before; longest first."""
        found: dict[int, list[Source]] = {}
        wanted = {suspect.stat.file_id for suspect in suspects}
        wanted |= {suspect.entry.identity for suspect in suspects if suspect.entry is not None}
        for name, entry in self._without_read_parts(self._index.with_identities(sorted(wanted))).items():
            found.setdefault(entry.identity, []).append(self._source(name, entry))
        for sources in found.values():
            sources.sort(key=lambda source: (-source.entry.size_bytes, source.is_earlier))
        return found

    def _find_by_name(
        self, suspects: Sequence[Suspect], paths_before: Callable[[bytes], list[bytes]] = earlier_paths
    ) -> dict[bytes, list[Source]]:
        """The versions under former names of files before a rotation, by their current names."""
        names = {each.name: [each.files.root.index_name(path) for path in paths_before(each.path)] for each in suspects}
        keys = {before: [before + slot for slot in SLOTS] for each in names.values() for before in each}
        entries = self._without_read_parts(self._index.find([key for each in keys.values() for key in each]))
        # For each path the longest first: a file that continues a tail continues the part read before it as well.
        known = {
            before: sorted((key for key in each if key in entries), key=lambda key: -entries[key].size_bytes)
            for before, each in keys.items()
        }
        return {
            name: [self._source(key, entries[key]) for before in each for key in known[before]]
            for name, each in names.items()
        }

    def _look_farther(self, suspects: Sequence[Suspect], current: RenameRound) -> None:
        """Add candidates for compressed files from many rotations ago."""
        farther = self._find_by_name(suspects, farther_paths)
        may_be = {
            each.name: [source for source in farther[each.name] if not each.is_older_than(source.entry)]
            for each in suspects
        }
        if any(may_be.values()):
            current.add_by_name(may_be, self._find_recent(may_be))
            current.fetch_evidence(suspects)

    def _find_recent(self, sources: Mapping[bytes, Sequence[Source]]) -> set[int]:
        """The identities among those of versions that this scan has emitted."""
        identities = [source.entry.identity for each in sources.values() for source in each]
        return self._known.are_recent(identities) if identities else set()

    def _without_read_parts(self, entries: dict[bytes, IndexEntry]) -> dict[bytes, IndexEntry]:
        """Entries without parts of versions that were read to the end after all."""
        parts = {name: name.removesuffix(PART) for name in entries if name.endswith(PART)}
        if not parts:
            return entries
        whole = self._index.find(list(parts.values()))
        done = {part for part, name in parts.items() if name not in whole or not whole[name].fate.is_gone}
        return {name: entry for name, entry in entries.items() if name not in done}

    def _source(self, name: bytes, entry: IndexEntry) -> Source:
        path = os.fsencode(self._roots.expand(os.fsdecode(name.partition(EARLIER)[0])))
        return Source(name, path, entry)
