"""Pending fingerprints: entries of the index whose head and tail fingerprints the readers will report."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import binary_column, bool_column, int64_column, numbers_of, positions_in
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.location import Roots
from operators.files.metadata import Fate, FileFingerprints, ReadPart
from operators.splitter.index.entries import (
    NO_ENTRIES,
    PART,
    SCHEMA,
    IndexEntry,
    Numbers,
    decoded,
    encoded,
    entries_of,
    first_and_last,
    merged,
    newest,
    number_column,
    without,
)
from operators.splitter.index.file_index import FileIndex, LateEntries

_REPORTED = ("fingerprint", "rest_bytes", "fate")
"""The columns of an entry that readers report."""


class _PendingWindow(NamedTuple):
    """Pending entries of one window, encoded: there are some for each file of all windows in flight."""

    window_id: int
    first: bytes
    last: bytes
    data: bytes

    @classmethod
    def of(cls, window_id: int, entries: pa.Table) -> _PendingWindow:
        return cls(window_id, *first_and_last(entries), encoded(entries))

    def may_have_any(self, first: bytes, last: bytes) -> bool:
        return self.first <= last and first <= self.last

    def entries(self) -> pa.Table:
        return decoded(self.data)


class InFlightFiles:
    """Files of windows that were not committed at one moment; whether their versions can be read is not known yet."""

    def __init__(self, windows: Sequence[_PendingWindow], unfinished: pa.Table) -> None:
        self._windows = windows
        self._unfinished = unfinished

    def has(self, paths: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """For each path whether its file is one of them; at least one path, ascending."""
        return _are_pending(paths, self._windows, self._unfinished)

    def among(self, paths: Iterable[bytes]) -> set[bytes]:
        """The paths among some whose files belong to windows that are not committed."""
        ordered = sorted(set(paths))
        return {path for path, is_one in zip(ordered, self.has(ordered), strict=True) if is_one} if ordered else set()


class PendingFingerprints:
    """Completes entries of the index when readers report the fingerprints of files.

    A later scan takes a fingerprint that is never reported. Reports of a window that an earlier run planned are about
    entries that the index has.

    Args:
        roots: The app's named roots; None for none.
        max_late: Number of files of committed windows that stay pending: large ones, and batches that wait.

    Attributes:
        reports: Entries that reports have completed, as long as no durable snapshot of the index has them.
    """

    def __init__(self, index: FileIndex, roots: Roots | None = None, max_late: int = 20_000) -> None:
        self._index = index
        self.reports = ReportLog(index)
        self._roots = roots or Roots()
        self._max_late = max_late
        # The thread that scans calls this class, too.
        self._lock = threading.Lock()
        self.window_id = self._earlier_runs_window = 0
        # By window, each sorted by path; single entries of the newest window are encoded together.
        self._pending: deque[_PendingWindow] = deque()
        self._single: list[tuple[bytes, IndexEntry]] = []
        self._may_be_gone = False
        self._unfinished = self._late = NO_ENTRIES

    def begin_window(self, window_id: int) -> None:
        """Assign later entries to a window, which may begin again as long as nothing was emitted in it."""
        with self._lock:
            self._encode_singles()
            self.window_id = window_id

    def end_window(self, unfinished: Sequence[str]) -> None:
        """End the window, and hold the entries of files that are not completely emitted."""
        with self._lock:
            if not unfinished and not self._unfinished.num_rows:
                return
            self._encode_singles()
            entries = self._entries_of([os.fsencode(self._roots.shorten(url)) for url in unfinished])
            finished = without(self._unfinished, entries)
            if finished.num_rows:
                self._pending.append(_PendingWindow.of(self.window_id, finished))
            self._unfinished = entries

    def _entries_of(self, paths: list[bytes]) -> pa.Table:
        if not paths:
            return NO_ENTRIES
        paths.sort()
        near = [window.entries() for window in reversed(self._pending) if window.may_have_any(paths[0], paths[-1])]
        wanted, known = binary_column(paths), [*near, self._unfinished, self._late]
        return merged([table.filter(pc.is_in(table.column("path"), value_set=wanted)) for table in known])

    def add(self, entries: pa.Table, *, is_read: bool = True) -> None:
        """Make entries of the index pending; they are newer than all that were added before.

        Directories and empty files are not read: their entries only supersede older versions.

        Args:
            is_read: Whether readers report them; otherwise they only supersede older versions, whose reports come too
                late.
        """
        with self._lock:
            self._encode_singles()
            if not is_read:
                if not (self._pending or self._late.num_rows):
                    return
                entries = _with_columns(entries, {"size_bytes": np.zeros(entries.num_rows, np.int64)})
            if entries.num_rows:
                self._pending.append(_PendingWindow.of(self.window_id, entries))

    def add_one(self, path: bytes, entry: IndexEntry, *, is_read: bool = True) -> None:
        """As add(), for one entry; for a file that may grow, only to learn whether it was skipped."""
        with self._lock:
            if is_read:
                self._single.append((path, entry))
            elif self._single or self._pending or self._late.num_rows:
                self._single.append((path, entry._replace(size_bytes=0)))

    def are_pending(self, paths: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """For each path whether its file is pending; at least one path, ascending."""
        with self._lock:
            self._encode_singles()
            late, pending = pa.concat_tables([self._unfinished, self._late]), list(self._pending)
        return _are_pending(paths, pending, late)

    @property
    def has_in_flight(self) -> bool:
        """Whether windows with files are not committed, or a file is not completely emitted."""
        with self._lock:
            return bool(self._single or self._pending or self._unfinished.num_rows)

    def in_flight(self) -> InFlightFiles:
        """The files of windows that are not committed; the index has all reports of other files."""
        with self._lock:
            self._encode_singles()
            return InFlightFiles(list(self._pending), self._unfinished)

    def _encode_singles(self) -> None:
        if self._single:
            # The newest first: a file may be taken twice in a window.
            paths, entries = zip(*reversed(self._single), strict=True)
            table = newest(entries_of(paths, list(zip(*entries, strict=True))))
            self._pending.append(_PendingWindow.of(self.window_id, table))
            self._single = []

    def gone_unfinished(self) -> set[bytes]:
        """The files that are not completely emitted and whose versions were found gone."""
        with self._lock:
            if not self._may_be_gone:
                return set()
            self._may_be_gone = False
            known = self._index.find(self._unfinished.column("path").to_pylist())
        return {path for path, entry in known.items() if entry.fate.is_gone}

    def report(self, window_id: int, events: Sequence[FileFingerprints], parts: Sequence[ReadPart] = ()) -> None:
        """Complete the entries of the files that were read in a window; a call counts as one report."""
        self.reports.begin(window_id)
        with self._lock:
            self._encode_singles()
            reported = self._with_first_ranges(_entries_in(events, self._roots))
            if window_id <= self._earlier_runs_window:
                completed, _ = _completed(self._index.entries_of(reported.column("path")), reported)
            else:
                completed = self._completed_by(reported, self._take_due(window_id))
            completed = merged([completed, self._parts_of(window_id, parts)])
            # Recorded under the lock: a scan that does not find the files in flight finds them in the index.
            self.reports.record(completed)

    def _with_first_ranges(self, reported: pa.Table) -> pa.Table:
        """Reports in which a version that was found gone before keeps the offset from which it was gone.

        A later block of it reports a higher one.
        """
        columns = {name: numbers_of(reported.column(name)).copy() for name in ("fate", "rest_bytes")}
        rows = np.flatnonzero(columns["fate"] >= Fate.GONE).tolist()
        if not rows:
            return reported
        self._may_be_gone = True
        paths = reported.column("path").take(int64_column(np.array(rows))).to_pylist()
        known = self._index.find(paths)
        for row, path in zip(rows, paths, strict=True):
            entry = known.get(path)
            version = reported.column("size_bytes")[row].as_py(), reported.column("mtime_ns")[row].as_py()
            if entry is not None and entry.fate.is_gone and (entry.size_bytes, entry.mtime_ns) == version:
                columns["fate"][row], columns["rest_bytes"][row] = entry.fate, entry.rest_bytes
        return _with_columns(reported, columns)

    def _parts_of(self, window_id: int, parts: Sequence[ReadPart]) -> pa.Table:
        """Entries for versions whose rest later windows read; each says how far the version was read."""
        farthest: dict[bytes, ReadPart] = {}
        for part in sorted(parts, key=lambda part: part.end):
            farthest[os.fsencode(self._roots.shorten(part.url))] = part
        if not farthest:
            return NO_ENTRIES
        wanted = binary_column(sorted(farthest))
        if window_id <= self._earlier_runs_window:
            entries = self._index.entries_of(wanted)
        else:
            later = [*(window.entries() for window in reversed(self._pending)), self._unfinished]
            entries = merged([table.filter(pc.is_in(table.column("path"), value_set=wanted)) for table in later])
        known = []
        for row in entries.to_pylist():
            part = farthest[row["path"]]
            if (row["size_bytes"], row["mtime_ns"]) == (part.size_bytes, part.mtime_ns):
                version = part.end, part.mtime_ns, row["identity"]
                entry = IndexEntry(*version, row["taken_millis"], part.fingerprint, is_part=True)
                known.append((row["path"] + PART, entry))
        if not known:
            return NO_ENTRIES
        paths, parts_read = zip(*known, strict=True)
        return entries_of(paths, list(zip(*parts_read, strict=True)))

    def _completed_by(self, reported: pa.Table, entries: pa.Table) -> pa.Table:
        """The entries with the fingerprints that readers have reported; entries without one stay pending."""
        # If a file was taken again since, the index has a newer version.
        for later in self._pending:
            if entries.num_rows and later.may_have_any(*first_and_last(entries)):
                entries = without(entries, later.entries())
        completed, rest = _completed(entries, reported)
        # Entries with a fingerprint were pending only in case their files were left out.
        is_lacking = numbers_of(rest.column("fingerprint")) == UNKNOWN
        self._late = _last_taken(rest.filter(bool_column(is_lacking)), self._max_late)
        return merged([completed, *self._skipped(reported)])

    def _take_due(self, window_id: int) -> pa.Table:
        """Remove the late entries and those of windows up to a given one; returns the newest of each file."""
        due = [self._late]
        while self._pending and self._pending[0].window_id <= window_id:
            due.append(self._pending.popleft().entries())
        return _with_content(merged(due[::-1]))

    def _skipped(self, reported: pa.Table) -> list[pa.Table]:
        """Entries of files whose first blocks were skipped, and whose last blocks are in later windows."""
        reported = reported.filter(bool_column(numbers_of(reported.column("fate")) != Fate.READ))
        if not reported.num_rows:
            return []
        near = [window.entries() for window in self._pending if window.may_have_any(*first_and_last(reported))]
        return [
            completed
            for entries in [*near, self._unfinished]
            if (completed := _completed(_with_content(entries), reported)[0]).num_rows
        ]

    def resume(self, window_id: int, reports: int, unfinished: Sequence[str]) -> None:
        """Continue after the windows that earlier runs planned; called after the index was restored."""
        self._earlier_runs_window = window_id
        self.reports.resume(reports)
        paths = sorted(os.fsencode(self._roots.shorten(url)) for url in unfinished)
        self._unfinished = self._index.entries_of(binary_column(paths))
        self._may_be_gone = bool(paths)


def _are_pending(paths: Sequence[bytes], windows: Sequence[_PendingWindow], late: pa.Table) -> npt.NDArray[np.bool_]:
    near = [window for window in windows if window.may_have_any(paths[0], paths[-1])]
    tables = [late, *(_with_content(window.entries()) for window in near)]
    known = pa.chunked_array([chunk for table in tables for chunk in table.column("path").chunks], pa.binary())
    return positions_in(binary_column(paths), known)[0]


def _with_content(entries: pa.Table) -> pa.Table:
    is_read = numbers_of(entries.column("size_bytes")) > 0
    return entries if is_read.all() else entries.filter(bool_column(is_read))


def _entries_in(events: Sequence[FileFingerprints], roots: Roots) -> pa.Table:
    parts = [event for event in events if len(event.sizes)]
    # Batches are read in any order, but the files in each ascend, and most batches follow each other.
    # A fingerprint of a file's end takes precedence over the report that its first block was skipped.
    # For a gone version, the report of its first block counts.
    parts.sort(key=lambda event: (event.fate != Fate.READ, _first_path(event, roots), event.read_bytes))
    by_base = itertools.groupby(parts, lambda event: event.base)
    paths = pa.chunked_array([_paths_of(base, [*group], roots) for base, group in by_base], pa.binary())
    nothing = np.empty(0, np.int64)
    sizes = np.concatenate([nothing, *(event.sizes for event in parts)])
    mtimes = np.concatenate([nothing, *(event.mtimes for event in parts)])
    prints = np.concatenate([nothing, *(event.fingerprints for event in parts)])
    waiting = np.concatenate([nothing, *(event.waiting for event in parts)])
    fates = np.repeat([int(event.fate) for event in parts], [len(event.sizes) for event in parts]).astype(np.int64)
    read = np.repeat([event.read_bytes for event in parts], [len(event.sizes) for event in parts]).astype(np.int64)
    rest = np.where(fates == Fate.READ, waiting, sizes - read)
    unknown = np.zeros(len(paths), np.int64)
    columns = sizes, mtimes, unknown, unknown, prints, rest, fates, unknown, unknown
    numbers = map(number_column, SCHEMA.types[1:], columns)
    return newest(pa.Table.from_arrays([paths, *numbers], schema=SCHEMA))


def _first_path(event: FileFingerprints, roots: Roots) -> bytes:
    name = event.names.partition(b"\0")[0]
    return os.fsencode(roots.shorten(event.base)) + name if event.base else _shortened(name, roots)


def _paths_of(base: str, events: Sequence[FileFingerprints], roots: Roots) -> pa.BinaryArray:
    # Columns throughout, with as many files as possible: single names would take three times the memory and time.
    names = pc.split_pattern(binary_column([b"\0".join(event.names for event in events)]), "\0").flatten()
    if base:
        return pc.binary_replace_slice(names, 0, 0, os.fsencode(roots.shorten(base)))
    if not roots.pairs:
        return names
    return binary_column([_shortened(name, roots) for name in names.to_pylist()])


def _shortened(path: bytes, roots: Roots) -> bytes:
    return os.fsencode(roots.shorten(os.fsdecode(path)))


def _completed(entries: pa.Table, reported: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The entries whose versions were reported, with what was reported; and the others, both sorted by path."""
    if entries.column("path").equals(reported.column("path")):  # the usual case, which needs no lookup
        is_reported, positions = np.ones(entries.num_rows, bool), np.arange(entries.num_rows, dtype=np.int32)
    else:
        is_reported, positions = positions_in(entries.column("path"), reported.column("path"))
    is_same = np.ones(len(positions), bool)
    for name in ("size_bytes", "mtime_ns"):
        is_same &= numbers_of(entries.column(name))[is_reported] == numbers_of(reported.column(name))[positions]
    is_reported[is_reported] = is_same
    rest = NO_ENTRIES
    if not is_reported.all():
        rest, entries = entries.filter(bool_column(~is_reported)), entries.filter(bool_column(is_reported))
    columns = {name: numbers_of(reported.column(name))[positions[is_same]] for name in _REPORTED}
    # A version that was left out keeps the fingerprint by which it is found elsewhere.
    prints = columns["fingerprint"]
    columns["fingerprint"] = np.where(prints == UNKNOWN, numbers_of(entries.column("fingerprint")), prints)
    return _with_columns(entries, columns), rest


def _with_columns(entries: pa.Table, columns: Mapping[str, Numbers]) -> pa.Table:
    for name, values in columns.items():
        index = SCHEMA.get_field_index(name)
        field = SCHEMA.field(index)
        entries = entries.set_column(index, field, number_column(field.type, values))
    return entries


def _last_taken(entries: pa.Table, max_entries: int) -> pa.Table:
    if entries.num_rows > max_entries:
        last = np.argsort(numbers_of(entries.column("taken_millis")), kind="stable")[-max_entries:]
        entries = entries.take(int64_column(np.sort(last)))
    return entries.combine_chunks()


@frozen
class FingerprintState:
    """Fingerprints that readers reported, and that no durable snapshot of the index may have yet."""

    late: list[LateEntries] = field(default_factory=list)

    def __len__(self) -> int:
        """Number of reports; an empty state can be lost without harm."""
        return len(self.late)


class ReportLog:
    """Keeps the entries that reports have completed after the newest snapshot, until a later one has them.

    See InputOperator.
    """

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        # Windows that a run emitted ahead and dropped have passed their ids to others, so reports are counted instead.
        self._count = 0
        self._snapshots: deque[tuple[int, int]] = deque()
        self._reported: deque[LateEntries] = deque()

    def note_snapshot(self, window_id: int) -> int:
        """Remember how many reports are in the snapshot of a window, and return that."""
        self._snapshots.append((window_id, self._count))
        return self._count

    def begin(self, window_id: int) -> None:
        """Count a report, and drop those in the snapshot of its window, which is about to be committed.

        Later runs restore this snapshot, or a newer one.
        """
        has = 0
        while self._snapshots and self._snapshots[0][0] <= window_id:
            has = self._snapshots.popleft()[1]
        while self._reported and self._reported[0].report <= has:
            self._reported.popleft()
        self._count += 1

    def record(self, completed: pa.Table) -> None:
        """Record in the index the entries that the last report has completed."""
        if completed.num_rows:
            self._reported.append(self._index.record_late(completed, self._count))

    def state(self) -> FingerprintState:
        return FingerprintState(list(self._reported))

    def resume(self, count: int) -> None:
        """Continue after a snapshot that was restored."""
        self._count = count
        self._snapshots.clear()

    def restore(self, state: FingerprintState) -> None:
        """Take back a state, after resume(): the reports that the snapshot does not have."""
        self._reported = deque(late for late in state.late if late.report > self._count)
        for late in self._reported:
            self._index.restore_late(late)
            self._count = late.report
