"""Which versions of which files were taken: what keeps a file from being read twice.

What was taken lately is held in memory and in every snapshot; the rest lies in sorted runs, so that
neither memory nor a snapshot grows with the number of files, and a scan is checked by a merge join.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.errors import JournalError, StorageError
from dagflow.storage.columns import binary_column, numbers_of, positions_in
from dagflow.storage.store import Store, open_store
from operators.splitter.index.sorted_runs import (
    SCHEMA,
    Numbers,
    Run,
    RunCursor,
    RunFile,
    RunWriter,
    entries_of,
    merge,
    merged,
    packed,
    unpacked,
    within,
)

logger = logging.getLogger(__name__)

FAN_IN = 10
# A scan holds memory for each run. Where files are taken faster than a large merge ends, small merges do not wait
# for it: runs of the levels below INLINE_LEVELS are merged at once, in a second, and for the others one waits.
MOST_RUNS = FAN_IN + 4
INLINE_LEVELS = 2
# What a snapshot holds inline: enough that small windows write no file each, at 100 bytes an entry.
INLINE_ENTRIES = 500
# A single window that takes more than this, or files that are only noted, are written out before its snapshot.
MEMORY_ENTRIES = 100_000
# The engine makes a window's snapshot durable before it asks for the one this much later: its pipeline is far shorter.
KEPT_SNAPSHOTS = 64


Apart = bytes | list[tuple[str, bytes, bytes, int]]
"""Entries by themselves: encoded, or the files of a run."""


class Seen(NamedTuple):
    """The version of a file that was taken.

    Attributes:
        size_bytes: Its length; -1 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970.
        identity: Its identity on its file system, or a hash of its etag.
        taken_millis: When it was taken, in milliseconds since 1970.
        fingerprint: Of its first and last bytes; 0 where they were not looked at.
    """

    size_bytes: int
    mtime_ns: int
    identity: int
    taken_millis: int = 0
    fingerprint: int = 0


class FileIndex:
    """The newest version that was taken of each path.

    Guarantee: after restore() it says exactly what it said when that snapshot was taken, whatever was
    recorded, flushed and merged since.

    Args:
        url: The directory for its runs, which nobody else writes to; "" to hold everything in memory.
        retain_millis: How long an entry is held after its file was taken; None for ever.
    """

    def __init__(self, url: str = "", retain_millis: int | None = None) -> None:
        self._store: Store | None = open_store(url) if url else None
        self._retain_millis = retain_millis
        # Views are made in the thread that scans. Whoever changes more than one entry of what a view is made of, or
        # where it stands, holds the lock: Arrow lets other threads run while it compares.
        self._lock = threading.Lock()
        self._recent: dict[bytes, Seen] = {}
        # What was recorded in columns, after all that _recent holds of the same paths.
        self._columns: list[pa.Table] = []
        self._rows = 0
        # Newest first; levels ascend, so that the runs of a level stand together.
        self._runs: list[Run] = []
        self._views: weakref.WeakSet[IndexView] = weakref.WeakSet()
        self._merger: ThreadPoolExecutor | None = None
        self._merging: tuple[list[Run], Future[Run]] | None = None
        self._snapshots = 0
        self._dropped: list[tuple[int, RunFile]] = []
        self._orphans: list[str] = []
        self._newest_millis = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, newest first."""
        return tuple(self._runs)

    def record(self, path: bytes, seen: Seen) -> None:
        """Note that a version was taken."""
        if self._columns:
            self._unfold()
        self._recent[path] = seen
        self._newest_millis = max(self._newest_millis, seen.taken_millis)
        if len(self._recent) >= MEMORY_ENTRIES:
            self._flush()

    def record_all(
        self,
        paths: Sequence[bytes],
        size_bytes: Numbers,
        mtime_ns: Numbers,
        identities: Numbers,
        taken_millis: int,
        fingerprints: Numbers,
    ) -> pa.Table:
        """Note that versions were taken, as record() does; paths ascend.

        Returns:
            The entries.
        """
        taken = np.full(len(paths), taken_millis, np.int64)
        entries = entries_of(paths, [size_bytes, mtime_ns, identities, taken, fingerprints])
        self._newest_millis = max(self._newest_millis, taken_millis)
        self.record_table(entries)
        return entries

    def record_table(self, entries: pa.Table) -> None:
        """Note entries; paths ascend."""
        with self._lock:
            self._columns.append(entries)
            self._rows += entries.num_rows
        if len(self._recent) + self._rows >= MEMORY_ENTRIES:
            self._flush()

    def record_apart(self, entries: pa.Table) -> Apart:
        """Note entries, as record_table() does; what it returns gives them back to an index without them.

        Raises:
            StorageError: They cannot be written.
        """
        is_small = self._store is None or entries.num_rows <= INLINE_ENTRIES
        if is_small or (self._recent and _has_any(entries, list(self._recent))):
            self.record_table(entries)
            return packed(entries)
        assert self._store is not None
        writer = RunWriter(self._store, 0)
        writer.write(entries)
        run = writer.close()
        with self._lock:
            self._runs.insert(0, run)
        return [(file.name, file.first, file.last, file.rows) for file in run.files]

    def restore_apart(self, apart: Apart) -> None:
        """Note what record_apart() returned, after restore().

        Raises:
            StorageError: A part of it is not there.
        """
        if isinstance(apart, bytes):
            self.record_table(unpacked(apart))
            return
        assert self._store is not None
        run = Run(0, tuple(RunFile(*file) for file in apart))
        names = {file.name for file in run.files}
        self._orphans = [name for name in self._orphans if name not in names]
        cursor = RunCursor(self._store, run)
        # What a snapshot holds inline counts more than any run, and here is older than this one.
        for table in cursor.read_range(run.files[0].first, run.files[-1].last):
            for path in table.column("path").to_pylist():
                self._recent.pop(path, None)
        with self._lock:
            self._runs.insert(0, run)

    def _held_in_columns(self) -> set[bytes]:
        """Which of the recent paths were recorded in columns too."""
        recent = binary_column(list(self._recent))
        found = [recent.filter(pc.is_in(recent, value_set=table.column("path"))) for table in self._columns]
        return {path for each in found for path in each.to_pylist()}

    def _unfold(self) -> None:
        """Make entries of what was recorded in columns."""
        with self._lock:
            for table in self._columns:
                columns = (column.to_pylist() for column in table.columns)
                self._recent.update((path, Seen(*version)) for path, *version in zip(*columns, strict=True))
            self._columns, self._rows = [], 0

    def view(self, now_millis: int = 0) -> IndexView:
        """What the index says now, for one pass in order of path; what is recorded later does not show."""
        horizon = 0 if self._retain_millis is None else now_millis - self._retain_millis
        with self._lock:
            # What was recorded in columns is newer than what stands beside it.
            older = self._recent.keys() - (self._held_in_columns() if self._recent and self._columns else ())
            recent = {path: self._recent[path] for path in older}
            view = IndexView(self._store, recent, tuple(self._runs), horizon, tuple(self._columns[::-1]))
            self._views.add(view)
        return view

    def snapshot(self) -> dict[str, Any]:
        """The names of the runs, and what is in none of them.

        Raises:
            StorageError: A run cannot be written.
        """
        self._snapshots += 1
        if len(self._recent) + self._rows > INLINE_ENTRIES:
            self._flush()
        self._unfold()
        self._merge_in_background()
        self._catch_up()
        self._delete_dropped()
        runs = [
            (run.level, [(file.name, file.first, file.last, file.rows) for file in run.files]) for run in self._runs
        ]
        return {"recent": [(path, *seen) for path, seen in self._recent.items()], "runs": runs}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave; the next snapshot removes the runs that this one does not name.

        Raises:
            JournalError: A run is not there.
        """
        self.close()
        self._columns, self._rows = [], 0
        self._recent = {entry[0]: Seen(*entry[1:]) for entry in state["recent"]}
        self._runs = [Run(level, tuple(RunFile(*file) for file in files)) for level, files in state["runs"]]
        self._dropped = []
        if self._store is None:
            return
        named = {file.name for run in self._runs for file in run.files}
        present = set(self._store.list(""))
        if missing := sorted(named - present):
            raise JournalError(
                f"the index of processed files lacks {missing[0]}"
                + (f" and {len(missing) - 1} more" * (len(missing) > 1)),
                url=self._store.url,
                hint="put the checkpoint back as it was, with its index, or start over with --fresh",
            )
        # Left by an attempt that died before its snapshot was durable. Not removed at once, because looking
        # at a checkpoint must not change it.
        self._orphans = sorted(present - named)

    def wait_for_merge(self) -> None:
        """Wait until a merge that is under way is complete; the next snapshot makes use of it."""
        if self._merging is not None:
            wait([self._merging[1]])

    def close(self) -> None:
        """Wait for a merge that is under way; its result is not used."""
        if self._merger is not None:
            self._merger.shutdown(wait=True, cancel_futures=True)
        self._merger = self._merging = None

    def _flush(self) -> None:
        if self._store is None:
            return
        writer = RunWriter(self._store, 0)
        writer.write(self._entries())
        run = writer.close()
        with self._lock:
            self._runs.insert(0, run)
            self._recent = {}
            self._columns, self._rows = [], 0

    def _entries(self) -> pa.Table:
        """What is in no run, by path."""
        tables = list(self._columns)
        if self._recent:
            paths = sorted(self._recent)
            columns = zip(*(self._recent[path] for path in paths), strict=True)
            tables.insert(0, entries_of(paths, list(columns)))
        return merged(tables[::-1])

    def _merge_in_background(self) -> None:
        if self._store is None:
            return
        if self._merging is not None:
            merged, future = self._merging
            if not future.done():
                return
            self._merging = None
            self._install(merged, future)
        for level in range(1 + max((run.level for run in self._runs), default=0)):
            due = self._oldest(level)
            if len(due) == FAN_IN:
                if self._merger is None:
                    self._merger = ThreadPoolExecutor(1, thread_name_prefix="file-index-merge")
                # No snapshot waits for a merge: ten million entries take seconds.
                self._merging = due, self._merger.submit(merge, self._store, due, level + 1, self._horizon())
                return

    def _catch_up(self) -> None:
        """Keep the number of runs bounded, also where files are taken faster than they are merged."""
        while self._store is not None:
            counts = Counter(run.level for run in self._runs)
            level = min((level for level, count in counts.items() if count >= MOST_RUNS), default=None)
            if level is None:
                return
            if self._merging is not None and (level >= INLINE_LEVELS or self._merging[0][0].level == level):
                self.wait_for_merge()
                self._merge_in_background()
            else:
                due = self._oldest(level)
                future: Future[Run] = Future()
                try:
                    future.set_result(merge(self._store, due, level + 1, self._horizon()))
                except StorageError as error:
                    future.set_exception(error)
                self._install(due, future)
            if len(self._runs) >= counts.total():
                return  # the merge failed, and was logged; the next snapshot tries again

    def _oldest(self, level: int) -> list[Run]:
        """The oldest runs of a level, as many as are merged at once."""
        return [run for run in self._runs if run.level == level][-FAN_IN:]

    def _horizon(self) -> int:
        return 0 if self._retain_millis is None else max(0, self._newest_millis - self._retain_millis)

    def _install(self, merged: list[Run], future: Future[Run]) -> None:
        try:
            result = future.result()
        except StorageError as error:
            # The parts are as good as the whole; the merge is tried again at a later snapshot.
            logger.warning("index merge failed, will try again error=%s", error)
            return
        with self._lock:
            position = self._runs.index(merged[0])
            self._runs[position : position + len(merged)] = [result] if result.files else []
        self._dropped += [(self._snapshots, file) for run in merged for file in run.files]

    def _delete_dropped(self) -> None:
        if self._orphans and self._store is not None:
            self._store.delete(self._orphans)
            self._orphans = []
        with self._lock:
            used = {file.name for view in self._views for run in view.runs for file in run.files}
        due = [
            file.name
            for snapshot, file in self._dropped
            if snapshot + KEPT_SNAPSHOTS <= self._snapshots and file.name not in used
        ]
        if due and self._store is not None:
            self._store.delete(due)
            self._dropped = [(snapshot, file) for snapshot, file in self._dropped if file.name not in set(due)]


class IndexView:
    """What an index said at one moment; answers once, for paths in ascending order.

    Args:
        store: The directory of the runs; None where there are none.
        recent: Entries that are newer than all runs.
        runs: The runs, newest first.
        horizon_millis: Entries that were taken before this have been forgotten.
        tables: Entries that are newer than the runs, and of other paths than recent; newest first, each by path.
    """

    def __init__(
        self,
        store: Store | None,
        recent: dict[bytes, Seen],
        runs: tuple[Run, ...],
        horizon_millis: int,
        tables: tuple[pa.Table, ...] = (),
    ) -> None:
        self._recent = recent
        self._tables = tables
        self.runs = runs
        self._horizon_millis = horizon_millis
        self._cursors = [RunCursor(store, run) for run in runs] if store is not None else []

    def look_up(self, paths: Sequence[bytes]) -> Answers:
        """What was taken of each path.

        Args:
            paths: Ascending, each once, and after all that were asked for before.
        """
        tables: list[pa.Table] = []
        if paths:
            ranges = (within(table, paths[0], paths[-1]) for table in self._tables)
            tables = [table for table in ranges if table.num_rows]
            tables += [table for cursor in self._cursors for table in cursor.read_range(paths[0], paths[-1])]
        known, columns = _joined(paths, tables)
        if self._recent:
            for position, path in enumerate(paths):
                if (seen := self._recent.get(path)) is not None:
                    columns[:, position] = seen
                    known[position] = True
        if self._horizon_millis > 0:
            known &= columns[3] >= self._horizon_millis
        return Answers(known, columns)


def _joined(paths: Sequence[bytes], tables: Sequence[pa.Table]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each path whether a table has it, and what the first that has says of it, attribute by attribute."""
    count = len(paths)
    if not tables:
        return np.zeros(count, bool), np.zeros((len(Seen._fields), count), np.int64)
    wanted = binary_column(paths)
    if sum(table.num_rows for table in tables) == count:
        # Where nothing has changed, and that is the rule, the tables say exactly this.
        entries = pa.concat_tables(sorted(tables, key=lambda table: table.column("path")[0].as_py()))
        if entries.column("path").equals(pa.chunked_array([wanted])):
            return np.ones(count, bool), np.stack([numbers_of(entries.column(name)) for name in SCHEMA.names[1:]])
    entries = pa.concat_tables(tables)
    # The first of several equal paths is found, and newer runs stand first.
    known, chosen = positions_in(wanted, entries.column("path"))
    columns = np.zeros((len(Seen._fields), count), np.int64)
    for column, name in zip(columns, SCHEMA.names[1:], strict=True):
        column[known] = numbers_of(entries.column(name))[chosen]
    return known, columns


def _has_any(entries: pa.Table, paths: Sequence[bytes]) -> bool:
    return bool(pc.any(pc.is_in(binary_column(paths), value_set=entries.column("path"))).as_py())


class Answers:
    """What an index says of several paths, column by column.

    Args:
        known: For each path, whether a version was taken.
        columns: For those what Seen says, attribute by attribute.
    """

    def __init__(self, known: npt.NDArray[np.bool_], columns: npt.NDArray[np.int64]) -> None:
        self.known = known
        self.size_bytes, self.mtime_ns, self.identity, self.fingerprint = columns[0], columns[1], columns[2], columns[4]
        self._columns = columns

    def slice(self, start: int, end: int) -> Answers:
        """What it says of the paths [start, end)."""
        return Answers(self.known[start:end], self._columns[:, start:end])

    def __iter__(self) -> Iterator[Seen | None]:
        return (self[position] for position in range(len(self.known)))

    def __getitem__(self, position: int) -> Seen | None:
        """The version that was taken of one path, or None."""
        return Seen(*map(int, self._columns[:, position])) if self.known[position] else None
