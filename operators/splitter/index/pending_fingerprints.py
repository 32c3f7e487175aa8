"""Files that were taken and whose fingerprints are told by those who read them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.storage.columns import binary_column, bool_column, int64_column, numbers_of, positions_in
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.roots import shortened
from operators.files.source_events import FileFingerprints
from operators.splitter.index.file_index import Apart, FileIndex, Seen
from operators.splitter.index.sorted_runs import NOTHING, SCHEMA, ends, entries_of, merged, newest, packed, unpacked

Heard = list[tuple[int, Apart]]
"""Entries of the index, each with the first window after whose snapshot they need not be kept apart."""


class _Expected(NamedTuple):
    """Entries of one window, packed: there are some for each file of all windows that are under way.

    Attributes:
        window_id: The window.
        first: Their first path.
        last: Their last path.
        data: They.
    """

    window_id: int
    first: bytes
    last: bytes
    data: bytes

    @classmethod
    def of(cls, window_id: int, entries: pa.Table) -> _Expected:
        return cls(window_id, *ends(entries), packed(entries))

    def may_have_any(self, first: bytes, last: bytes) -> bool:
        """Whether paths in [first, last] may be among them."""
        return self.first <= last and first <= self.last

    def entries(self) -> pa.Table:
        return unpacked(self.data)


class UnderWay:
    """Files of which readers will tell before their windows are committed, as it was at one moment.

    Args:
        windows: What is expected of each window.
    """

    def __init__(self, windows: Sequence[_Expected]) -> None:
        self._windows = windows

    def has(self, paths: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """For each path whether its file is one of them; at least one, ascending."""
        return _are_expected(paths, self._windows, NOTHING)


class PendingFingerprints:
    """Completes entries of the index when it is told what their files begin and end with.

    What was told after the newest snapshot is kept here until a later one holds it; see SourceEventListener. What
    is never told, because a file was left out or a run died, is looked at by the scan that finds it lacking.

    Args:
        index: The index.
        most_late: Files of committed windows of which nobody has told, and that are waited for: large ones, and packs
            that wait.

    Attributes:
        window_id: The window that is being emitted: what is expected now is of it.
        kept_id: The window whose snapshot of the index is the newest.
    """

    def __init__(self, index: FileIndex, most_late: int = 20_000) -> None:
        self._index = index
        self._most_late = most_late
        # A scan asks from its own thread.
        self._lock = threading.Lock()
        self.window_id = self.kept_id = 0
        # Of windows in order, each by path; of the newest also single ones, which are cheaper to put together.
        self._awaited: deque[_Expected] = deque()
        self._single: list[tuple[bytes, Seen]] = []
        self._late = NOTHING
        self._heard: deque[tuple[int, Apart]] = deque()

    def begin_window(self, window_id: int, held: Sequence[str] = ()) -> None:
        """What is expected from now on is of that window.

        Args:
            window_id: The window; it may begin again, as long as nothing was emitted in it.
            held: Files that were taken and are not emitted to their ends: they are expected of no earlier window.
        """
        with self._lock:
            self._put_together()
            if held and window_id > self.window_id:
                entries = self._entries_of([os.fsencode(shortened(url)) for url in held])
                if entries.num_rows:
                    self._awaited.append(_Expected.of(window_id, entries))
            self.window_id = window_id

    def _entries_of(self, paths: list[bytes]) -> pa.Table:
        """The newest that is expected of some files."""
        paths.sort()
        near = [each.entries() for each in reversed(self._awaited) if each.may_have_any(paths[0], paths[-1])]
        wanted = binary_column(paths)
        return merged([table.filter(pc.is_in(table.column("path"), value_set=wanted)) for table in [*near, self._late]])

    def expect(self, entries: pa.Table) -> None:
        """Wait for what readers tell of files; each entry is in the index as it is, and comes after those before.

        Nobody reads a directory or an empty file: what their entries say is that older versions are past.
        """
        with self._lock:
            self._put_together()
            if entries.num_rows:
                self._awaited.append(_Expected.of(self.window_id, entries))

    def expect_one(self, path: bytes, seen: Seen) -> None:
        """Wait for what a reader tells of one file: of one that may grow, that it was left out."""
        with self._lock:
            self._single.append((path, seen))

    def expect_nothing(self, path: bytes, seen: Seen) -> None:
        """Hear that the index has a version of which nobody will tell: what is told of an older one is too late."""
        with self._lock:
            if self._single or self._awaited or self._late.num_rows:
                self._single.append((path, seen._replace(size_bytes=0)))

    def expected(self, paths: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """For each path whether its file is waited for; at least one, ascending."""
        with self._lock:
            self._put_together()
            late, awaited = self._late, list(self._awaited)
        return _are_expected(paths, awaited, late)

    def under_way(self) -> UnderWay:
        """Those of windows that are not committed; of all others the index says by now what was told."""
        with self._lock:
            self._put_together()
            return UnderWay(list(self._awaited))

    def _put_together(self) -> None:
        """Make one table of the single files."""
        if self._single:
            # The newest first: a file may be taken twice in a window.
            paths, seen = zip(*reversed(self._single), strict=True)
            table = newest(entries_of(paths, list(zip(*seen, strict=True))))
            self._awaited.append(_Expected.of(self.window_id, table))
            self._single = []

    def hear(self, window_id: int, events: Sequence[FileFingerprints]) -> None:
        """Complete the entries of the files that were read in a window."""
        while self._heard and self._heard[0][0] <= window_id:
            self._heard.popleft()
        with self._lock:
            self._put_together()
            entries = self._take_due(window_id)
            # Of a file that was taken again since, the index has a newer version.
            for later in self._awaited:
                entries = _without(entries, later)
            told = _told_by(events)
            completed, rest = _completed(entries, told)
            # Of those with a fingerprint no more is awaited than that they were left out.
            is_lacking = numbers_of(rest.column("fingerprint")) == UNKNOWN
            self._late = _last_taken(rest.filter(bool_column(is_lacking)), self._most_late)
            completed = merged([completed, *self._left_out(told)])
            # A scan that does not find them under way any more finds in the index what was told of them.
            if completed.num_rows:
                self._heard.append((self.kept_id + 1, self._index.record_apart(completed)))

    def _take_due(self, window_id: int) -> pa.Table:
        """What is late, and what is expected of windows up to one, the newest of each file; it is awaited no more."""
        due = [self._late]
        while self._awaited and self._awaited[0].window_id <= window_id:
            due.append(self._awaited.popleft().entries())
        return _read(merged(due[::-1]))

    def _left_out(self, told: pa.Table) -> list[pa.Table]:
        """Entries of files whose first blocks were left out, and whose last ones come in later windows."""
        told = told.filter(bool_column(numbers_of(told.column("fingerprint")) < UNKNOWN))
        if not told.num_rows:
            return []
        near = [each.entries() for each in self._awaited if each.may_have_any(*ends(told))]
        return [completed for entries in near if (completed := _completed(_read(entries), told)[0]).num_rows]

    def event_state(self) -> Heard:
        """What no durable snapshot of the index may hold yet."""
        return list(self._heard)

    def restore_event_state(self, heard: Heard) -> None:
        """Take back what heard gave, after kept_id and the index were."""
        self._heard = deque((first, entries) for first, entries in heard if first > self.kept_id)
        for _, entries in self._heard:
            self._index.restore_apart(entries)


def _are_expected(paths: Sequence[bytes], windows: Sequence[_Expected], late: pa.Table) -> npt.NDArray[np.bool_]:
    near = [each for each in windows if each.may_have_any(paths[0], paths[-1])]
    tables = [late, *(_read(each.entries()) for each in near)]
    known = pa.chunked_array([chunk for table in tables for chunk in table.column("path").chunks], pa.binary())
    return positions_in(binary_column(paths), known)[0]


def _read(entries: pa.Table) -> pa.Table:
    """Those of files that readers read."""
    is_read = numbers_of(entries.column("size_bytes")) > 0
    return entries if is_read.all() else entries.filter(bool_column(is_read))


def _told_by(events: Sequence[FileFingerprints]) -> pa.Table:
    """Entries with what was told, and nothing else, by path."""
    told = [(_paths_of(event), event) for event in events if len(event.sizes)]
    # Packs are read in any order, but in each files ascend, and mostly one comes after the other.
    # What was seen at a file's end counts more than that its first block was left out.
    told.sort(key=lambda each: (each[1].fingerprints[0] < UNKNOWN, each[0][0].as_py()))
    paths = pa.chunked_array([each for each, _ in told], pa.binary())
    nothing = np.empty(0, np.int64)
    sizes = np.concatenate([nothing, *(event.sizes for _, event in told)])
    mtimes = np.concatenate([nothing, *(event.mtimes for _, event in told)])
    prints = np.concatenate([nothing, *(event.fingerprints for _, event in told)])
    unknown = np.zeros(len(paths), np.int64)
    numbers = map(int64_column, (sizes, mtimes, unknown, unknown, prints))
    return newest(pa.Table.from_arrays([paths, *numbers], schema=SCHEMA))


def _paths_of(event: FileFingerprints) -> pa.BinaryArray:
    # As columns throughout: as objects the names would take three times the room and the time.
    names = pc.split_pattern(binary_column([event.names]), "\0").flatten()
    if event.base:
        return pc.binary_replace_slice(names, 0, 0, os.fsencode(shortened(event.base)))
    return binary_column([os.fsencode(shortened(os.fsdecode(name))) for name in names.to_pylist()])


def _completed(entries: pa.Table, told: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The entries of which was told, with fingerprints; and the others. Both tables are by path."""
    if entries.column("path").equals(told.column("path")):  # as a rule, and then nothing is looked up
        found, positions = np.ones(entries.num_rows, bool), np.arange(entries.num_rows, dtype=np.int32)
    else:
        found, positions = positions_in(entries.column("path"), told.column("path"))
    is_same = np.ones(len(positions), bool)
    for name in ("size_bytes", "mtime_ns"):
        is_same &= numbers_of(entries.column(name))[found] == numbers_of(told.column(name))[positions]
    found[found] = is_same
    prints = numbers_of(told.column("fingerprint"))[positions[is_same]]
    rest = NOTHING
    if not found.all():
        rest, entries = entries.filter(bool_column(~found)), entries.filter(bool_column(found))
    index = SCHEMA.get_field_index("fingerprint")
    return entries.set_column(index, SCHEMA.field(index), int64_column(prints)), rest


def _without(entries: pa.Table, others: _Expected) -> pa.Table:
    """The entries whose paths the others do not have; both by path."""
    if not (entries.num_rows and others.may_have_any(*ends(entries))):
        return entries
    shared = pc.is_in(entries.column("path"), value_set=others.entries().column("path"))
    return entries.filter(pc.invert(shared))


def _last_taken(entries: pa.Table, most: int) -> pa.Table:
    """So many entries at most, those that were taken last, in their order."""
    if entries.num_rows > most:
        last = np.argsort(numbers_of(entries.column("taken_millis")), kind="stable")[-most:]
        entries = entries.take(int64_column(np.sort(last)))
    return entries.combine_chunks()
