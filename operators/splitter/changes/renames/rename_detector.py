"""Recognises files that were taken under another name, by inode or, after a log rotation, by content."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dagflow.storage.location import Roots
from operators.files.rotation_names import earlier_paths, farther_paths, rotated
from operators.splitter.changes.renames.cases import NAME_CASES, PAIR_CASES, Continuing, decide
from operators.splitter.changes.renames.copies import Beginnings, LeftFiles, copy_graces
from operators.splitter.changes.renames.found_files import FileDecision, FoundFile, TakenVersion
from operators.splitter.changes.renames.pair_facts import KnownVersions, OwnName, Pair
from operators.splitter.index.entries import EARLIER, PART, SHORTER, SLOTS, IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import InTasks, ListedFiles
from operators.splitter.scan.scan_sources import Clock

MAX_CACHED_NAMES = 10_000


class RenameDetector:
    """Holds files back that may be known, and decides at the end of a scan what they are.

    A version that was taken is recognised under another name by its inode, whatever the names, if the file has the
    first and last bytes that were taken. It is recognised by these bytes alone if the names are those of a log rotation
    and the file of the old name has lost them, or is another one.

    Attributes:
        left: The files that are left for later scans.
        known: The inodes of versions that were taken, or that this scan emits or notes.
        held: The files that are held.
        awaits_reports: Whether the scan has left files that can be decided when windows in flight are committed.
    """

    def __init__(
        self, index: FileIndex, pending: PendingFingerprints, roots: Roots, in_tasks: InTasks | None, clock: Clock
    ) -> None:
        self._index = index
        self._pending = pending
        self._roots = roots
        self._in_tasks = in_tasks
        self.left = LeftFiles(clock)
        self.known = KnownIdentities(index)
        self._known_names: dict[bytes, bool] = {}
        self.held: list[FoundFile] = []
        self.awaits_reports = False

    def begin_scan(self) -> None:
        """Begin a scan; the index has all files that earlier ones emitted."""
        self.known.begin_scan()
        self._known_names.clear()
        self.held.clear()
        self.awaits_reports = False
        self.left.begin_scan()

    def hold_known(self, files: ListedFiles, view: IndexView) -> ListedFiles:
        """Hold the new files that may be known; the others are returned."""
        may_be_known = np.zeros(len(files), bool)
        if not view.is_empty:
            may_be_known = rotated(files.keys, lambda paths: self._known_among(files, paths, view))
        may_be_known |= self.known.may_have(files.stats.file_ids) & (files.size_bytes > 0)
        may_be_known &= files.size_bytes >= 0
        if not may_be_known.any():
            return files
        for position in np.flatnonzero(may_be_known).tolist():
            self.held.append(FoundFile(files.slice(position, position + 1), None))
        return files.take(np.flatnonzero(~may_be_known))

    def _known_among(self, files: ListedFiles, paths: Sequence[bytes], view: IndexView) -> set[bytes]:
        name_by_path = {path: files.root.index_name(path) for path in paths}
        known, beyond = view.known_near(list(name_by_path.values()))
        if lacking := [name for name in beyond if name not in self._known_names]:
            taken = self._index.view().paths_among(sorted(set(lacking)))
            if len(self._known_names) + len(lacking) > MAX_CACHED_NAMES:
                self._known_names.clear()
            self._known_names.update((name, name in taken) for name in lacking)
            known |= {name for name in lacking if name in taken}
        known |= {name for name in beyond if self._known_names.get(name)}
        return {path for path, name in name_by_path.items() if name in known}

    def decide_held(self) -> list[FileDecision]:
        """What the files are that are held, in their order; none is held afterwards."""
        files, self.held = self.held, []
        if not files:
            return []
        known = KnownVersions(self._pending, self.left, Beginnings(self._in_tasks), self.known.are_recent)
        emitted = self.known.are_recent([file.stat.file_id for file in files])
        steady = [file for file in files if self.left.was_left_often(file.name) or file.is_still_there(emitted)]
        known.add(self._find_by_name(steady), self._find_by_inode(steady))
        known.fetch(steady)
        # If several files begin with a version, for example one that is only a header, the oldest is the version's
        # file.
        steady.sort(key=lambda file: file.stat.mtime_ns)
        decisions = self._examine(steady, known.versions_of, known)
        if strangers := [file for file in steady if id(file) not in decisions and farther_paths(file.path)]:
            self._look_farther(strangers, known)
            decisions |= self._examine(strangers, known.named_before, known)
        # Whether a file was replaced, or moved, is known when all others have been examined.
        is_steady = set(map(id, steady))
        return [self._decide(file, decisions.get(id(file)), known, was_there=id(file) in is_steady) for file in files]

    def _examine(
        self, files: Sequence[FoundFile], versions_of: Callable[[FoundFile], Iterable[Pair]], known: KnownVersions
    ) -> dict[int, FileDecision]:
        """What files are that continue versions, or are left for later scans, as copies in progress are."""
        decisions = {id(file): decision for file in files if (decision := _decision(versions_of(file), known))}
        self.awaits_reports |= any(decision.answer is Continuing.LATER for decision in decisions.values())
        strangers = [file for file in files if id(file) not in decisions]
        for file, grace_s in copy_graces(strangers, known.beginnings, known.copies):
            if self.left.leave_new_copy(file, grace_s):
                decisions[id(file)] = FileDecision(file, Continuing.LATER)
        return decisions

    def _decide(
        self, file: FoundFile, decision: FileDecision | None, known: KnownVersions, *, was_there: bool
    ) -> FileDecision:
        if decision is None:
            decision = FileDecision(file, decide(NAME_CASES, OwnName(file, known, was_there=was_there)))
        if decision.answer is Continuing.AGAIN:
            self.left.leave_for_next_scan(file.name)
        return decision

    def _find_by_inode(self, files: Sequence[FoundFile]) -> dict[int, list[TakenVersion]]:
        """The versions with the inodes of some files, or of the files that had their names before; longest first."""
        by_inode: dict[int, list[TakenVersion]] = {}
        wanted = {file.stat.file_id for file in files}
        wanted |= {file.entry.identity for file in files if file.entry is not None}
        for name, entry in self._without_read_parts(self._index.with_identities(sorted(wanted))).items():
            by_inode.setdefault(entry.identity, []).append(self._version(name, entry))
        for versions in by_inode.values():
            versions.sort(key=lambda version: (-version.entry.size_bytes, version.is_earlier))
        return by_inode

    def _find_by_name(
        self, files: Sequence[FoundFile], paths_before: Callable[[bytes], list[bytes]] = earlier_paths
    ) -> dict[bytes, list[TakenVersion]]:
        """The versions under former names of files before a rotation, by their current names."""
        names = {file.name: [file.files.root.index_name(path) for path in paths_before(file.path)] for file in files}
        keys = {before: [before + slot for slot in SLOTS] for befores in names.values() for before in befores}
        entries = self._without_read_parts(self._index.find([key for slots in keys.values() for key in slots]))
        # For each path the longest first: a file that continues a tail continues the part read before it as well.
        known = {
            before: sorted((key for key in slots if key in entries), key=lambda key: -entries[key].size_bytes)
            for before, slots in keys.items()
        }
        return {
            name: [self._version(key, entries[key]) for before in befores for key in known[before]]
            for name, befores in names.items()
        }

    def _look_farther(self, files: Sequence[FoundFile], known: KnownVersions) -> None:
        """Add the versions that compressed files from many rotations ago may continue."""
        farther = self._find_by_name(files, farther_paths)
        may_be = {
            file.name: [version for version in farther[file.name] if not file.is_older_than(version.entry)]
            for file in files
        }
        if any(may_be.values()):
            known.add(may_be, {})
            known.fetch(files)

    def _without_read_parts(self, entries: dict[bytes, IndexEntry]) -> dict[bytes, IndexEntry]:
        """Entries without the parts of versions that were read to the end after all."""
        parts = {name: name.removesuffix(slot) for slot in (PART, SHORTER) for name in entries if name.endswith(slot)}
        if not parts:
            return entries
        whole = self._index.find(list(parts.values()))
        done = {part for part, name in parts.items() if name not in whole or not whole[name].fate.is_gone}
        return {name: entry for name, entry in entries.items() if name not in done}

    def _version(self, name: bytes, entry: IndexEntry) -> TakenVersion:
        path = os.fsencode(self._roots.expand(os.fsdecode(name.partition(EARLIER)[0])))
        return TakenVersion(name, path, entry)


def _decision(pairs: Iterable[Pair], known: KnownVersions) -> FileDecision | None:
    """What a file is by the first version that it continues, or that leaves it undecided; None if there is none."""
    for pair in pairs:
        answer = decide(PAIR_CASES, pair)
        if answer is Continuing.CONTINUES:
            known.moved.add(pair.version.taken_name)
            is_copy = not pair.same_inode
            return FileDecision(pair.file, answer, pair.version, pair.has_more, pair.is_content, is_copy)
        if answer in (Continuing.LATER, Continuing.AGAIN):
            return FileDecision(pair.file, answer)
        if answer is Continuing.COPY:
            pair.is_copy = True
            known.copies.add(pair.file.name)
    return None


BITS_EACH = 16
"""Bits of the filter for each file that it is made for."""

MOST_BITS = 28
"""Largest size of the filter, as a power of two: 32 MiB, for any number of files."""

RECENT_FILES = 1 << 16
"""Number of files of a running scan that are remembered singly: more than can wait to be taken."""

ROOM = 200_000
"""New files that a filter has room for, besides as many as the index has: half a MiB. A full filter is made anew."""

_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
"""One for each bit that a file sets. With four of them, a full filter takes at most three of a thousand unknown files
for known. They are odd, so that different numbers have different products.
"""


class IdentityFilter:
    """A Bloom filter of 64-bit numbers.

    Guarantee: it has every number that was added; it may seem to have a few others.

    Args:
        expected: How many numbers it is made for, at least 1.
    """

    def __init__(self, expected: int) -> None:
        bits = min((BITS_EACH * expected).bit_length(), MOST_BITS)
        self._shift = np.uint64(64 - bits)
        self._bytes = np.zeros(1 << (bits - 3), np.uint8)
        self.room = expected

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        self.room -= len(numbers)
        for index, bit in self._bits_of(numbers):
            np.bitwise_or.at(self._bytes, index, bit)

    def may_have(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        may_have = np.ones(len(numbers), bool)
        for index, bit in self._bits_of(numbers):
            may_have &= (self._bytes[index] & bit) != 0
        return may_have

    def _bits_of(
        self, numbers: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]]:
        one, seven, three = np.uint8(1), np.uint64(7), np.uint64(3)
        for factor in _FACTORS:
            hashed = (numbers.astype(np.uint64) * np.uint64(factor)) >> self._shift
            yield hashed >> three, one << (hashed & seven).astype(np.uint8)


class KnownIdentities:
    """The identities of the files in an index, and of those that a scan emits."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        self._filter: IdentityFilter | None = None
        self._recent: deque[npt.NDArray[np.int64]] = deque()
        self._recent_count = 0

    def begin_scan(self) -> None:
        """Begin a scan, when the index has all files of earlier scans."""
        self._recent.clear()
        self._recent_count = 0

    def may_have(self, identities: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each identity whether a file with it may have been taken, or emitted by this scan."""
        return self._made().may_have(identities)

    def add(self, identities: npt.NDArray[np.int64]) -> None:
        self._made().add(identities)
        self._recent.append(identities)
        self._recent_count += len(identities)
        while self._recent_count - len(self._recent[0]) > RECENT_FILES:
            self._recent_count -= len(self._recent.popleft())

    def are_recent(self, identities: Sequence[int]) -> set[int]:
        """The identities among some that this scan has emitted and the index may not have yet."""
        if not self._recent:
            return set()
        # There may be tens of thousands of entries with one file each: one lookup in all, not one in each.
        recent = np.concatenate(self._recent)
        return set(recent[np.isin(recent, np.array(identities, np.int64))].tolist())

    def _made(self) -> IdentityFilter:
        if self._filter is None or self._filter.room < 0:
            count = self._index.count_entries()
            made = IdentityFilter(2 * count + ROOM)
            for part in [*self._index.view().identities(), *self._recent]:
                made.add(part)
            self._filter = made
        return self._filter
