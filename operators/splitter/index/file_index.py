"""The index of processed files: which version of each file was taken, so that none is read twice.

Recent entries are in memory and in every snapshot; the rest is in sorted runs. So neither memory nor a snapshot
grows with the number of files, and a scan is compared with the index by a merge join.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import field

import numpy as np
import pyarrow as pa

from dagflow.errors import START_OVER, JournalError, StorageError
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import parent
from operators.splitter.index.entries import (
    EARLIER,
    NO_ENTRIES,
    IndexEntry,
    Numbers,
    decoded,
    encoded,
    entries_of,
    merged,
    without,
)
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.sorted_runs import Run, RunCursor, RunFile, RunWriter, compact

# Entries in the snapshot itself: enough that small windows write no file each, at 100 bytes an entry.
INLINE_ENTRIES = 500
# A single window that takes more than this, or files that are only noted, are written out before its snapshot.
MEMORY_ENTRIES = 100_000


@frozen
class IndexState:
    """The index at the end of a window.

    Attributes:
        recent: Entries that are in no run: an Arrow IPC stream, see entries.SCHEMA; b"" for none.
    """

    recent: bytes = b""
    runs: list[Run] = field(default_factory=list)


@frozen
class LateEntries:
    """Entries that were recorded after the snapshot of their window.

    Attributes:
        recent: The entries as in IndexState; b"" if they are a run.
        run: The run; None if they are inline.
    """

    report: int
    recent: bytes = b""
    run: Run | None = None


class FileIndex:
    """The newest version that was taken of each path.

    Guarantee: after restore() it has exactly the entries of that snapshot, regardless of what was recorded, flushed and
    compacted since.

    Args:
        url: The directory for its runs, which nothing else writes to; "" to hold everything in memory.
        retain_millis: How long an entry is kept after its file was taken; None for no limit.
        storage: Reaches the directory; None for the default context.
    """

    def __init__(self, url: str = "", retain_millis: int | None = None, storage: StorageContext | None = None) -> None:
        # Views are made in the thread that scans, and need the entries in memory and the runs of the same moment.
        self._lock = threading.Lock()
        self._run_set = None
        if url:
            store = (storage or StorageContext.default()).objects(url)
            store.require_directory(parent(parent(store.url)))  # the checkpoint, see ControlServices.state_url
            self._run_set = RunSet(store, self._lock)
        self._retain_millis = retain_millis
        # Oldest first, followed by the entries that were recorded singly.
        self._tables: list[pa.Table] = []
        self._table_rows = 0
        self._single: dict[bytes, IndexEntry] = {}
        self._newest_millis = 0

    @property
    def runs(self) -> tuple[Run, ...]:
        return () if self._run_set is None else self._run_set.runs

    def record(self, path: bytes, entry: IndexEntry) -> None:
        with self._lock:
            self._single[path] = entry
        self._newest_millis = max(self._newest_millis, entry.taken_millis)
        self._flush_beyond(MEMORY_ENTRIES - 1)

    def record_all(
        self,
        paths: Sequence[bytes],
        size_bytes: Numbers,
        mtime_ns: Numbers,
        identities: Numbers,
        taken_millis: int,
        fingerprints: Numbers,
    ) -> pa.Table:
        """Record that versions were taken; paths ascend.

        Returns:
            The entries.
        """
        taken = np.full(len(paths), taken_millis, np.int64)
        entries = entries_of(paths, [size_bytes, mtime_ns, identities, taken, fingerprints])
        self._newest_millis = max(self._newest_millis, taken_millis)
        self.record_table(entries)
        return entries

    def record_table(self, entries: pa.Table) -> None:
        """Record entries; paths ascend."""
        with self._lock:
            self._table_singles()
            self._tables.append(entries)
            self._table_rows += entries.num_rows
        self._flush_beyond(MEMORY_ENTRIES - 1)

    def record_late(self, entries: pa.Table, report: int) -> LateEntries:
        """Record entries of a report that belong to an earlier snapshot; paths ascend.

        Returns:
            The value for restore_late() after that snapshot was restored.
        """
        if self._run_set is None or entries.num_rows <= INLINE_ENTRIES or self._has_in_memory(entries):
            self.record_table(entries)
            return LateEntries(report, encoded(entries))
        writer = RunWriter(self._run_set.store, 0)
        writer.write(entries)
        run = writer.close()
        with self._lock:
            self._run_set.add(run)
        return LateEntries(report, run=run)

    def restore_late(self, late: LateEntries) -> None:
        """Record what record_late() returned, after restore()."""
        if late.run is None:
            self.record_table(decoded(late.recent))
            return
        assert self._run_set is not None
        run = late.run
        self._run_set.require_files([run])
        # Entries in memory take precedence over any run, but these are older than the run.
        cursor = RunCursor(self._run_set.store, run)
        for newer in cursor.read_range(run.files[0].first, run.files[-1].last):
            self._tables = [without(table, newer) for table in self._tables]
        with self._lock:
            self._table_rows = sum(table.num_rows for table in self._tables)
            self._run_set.add(run)

    def view(self, now_millis: int = 0) -> IndexView:
        """The index as it is now, for one pass in order of path; later records do not show."""
        horizon = 0 if self._retain_millis is None else now_millis - self._retain_millis
        with self._lock:
            self._table_singles()
            store = None if self._run_set is None else self._run_set.store
            view = IndexView(store, self._tables[::-1], self.runs, horizon)
            if self._run_set is not None:
                self._run_set.keep_for(view)
        return view

    def count_entries(self) -> int:
        """Largest possible number of its entries: a path that was taken twice may have two."""
        files = (file for run in self.runs for file in run.files)
        return self._table_rows + len(self._single) + sum(file.rows for file in files)

    def find(self, paths: Sequence[bytes]) -> dict[bytes, IndexEntry]:
        wanted = sorted(set(paths))
        entries = zip(wanted, self.view().find(wanted), strict=True)
        return {path: entry for path, entry in entries if entry is not None}

    def entries_of(self, paths: pa.ChunkedArray | pa.Array) -> pa.Table:
        entries = self.find(paths.to_pylist())
        return entries_of(list(entries), list(zip(*entries.values(), strict=True))) if entries else NO_ENTRIES

    def with_identities(self, identities: Sequence[int]) -> dict[bytes, IndexEntry]:
        wanted = set(identities)
        entries = self.find(self.view().paths_with(np.array(identities, np.int64))) if wanted else {}
        return {path: entry for path, entry in entries.items() if entry.identity in wanted}

    def waiting(self, most: int) -> dict[bytes, IndexEntry]:
        """The newest entries of paths at whose ends a record waits, up to a number."""
        paths = [path for path in self.view().paths_with_rest(most) if EARLIER not in path]
        return {path: entry for path, entry in self.find(paths).items() if entry.waiting_bytes}

    def snapshot(self) -> IndexState:
        """The runs, and the entries that are in none of them."""
        self._flush_beyond(INLINE_ENTRIES)
        with self._lock:
            self._table_singles()
            self._tables = [merged(self._tables[::-1]).combine_chunks()] if self._tables else []
            self._table_rows = sum(table.num_rows for table in self._tables)
            recent = encoded(self._tables[0]) if self._table_rows else b""
        if self._run_set is not None:
            self._run_set.maintain(self._horizon())
        return IndexState(recent, list(self.runs))

    def restore(self, state: IndexState) -> None:
        """Take back a snapshot; the next snapshot removes the runs that this one does not name."""
        self.close()
        self._tables = [decoded(state.recent)] if state.recent else []
        self._table_rows = sum(table.num_rows for table in self._tables)
        self._single = {}
        if self._run_set is not None:
            self._run_set.restore(state.runs)

    def wait_for_compaction(self) -> None:
        """Wait until a compaction in the background is complete; the next snapshot uses it."""
        if self._run_set is not None:
            self._run_set.wait_for_compaction()

    def close(self) -> None:
        if self._run_set is not None:
            self._run_set.close()

    def _has_in_memory(self, entries: pa.Table) -> bool:
        with self._lock:
            self._table_singles()
            held = [table.column("path") for table in self._tables]
        return any(pc.any(pc.is_in(paths, value_set=entries.column("path"))).as_py() for paths in held)

    def _table_singles(self) -> None:
        """Make a table of the entries that were recorded singly; the caller holds the lock."""
        if self._single:
            paths = sorted(self._single)
            columns = list(zip(*(self._single[path] for path in paths), strict=True))
            self._tables.append(entries_of(paths, columns))
            self._table_rows += len(paths)
            self._single = {}

    def _flush_beyond(self, max_entries: int) -> None:
        if self._run_set is None or self._table_rows + len(self._single) <= max_entries:
            return
        with self._lock:
            self._table_singles()
            entries = merged(self._tables[::-1])
        writer = RunWriter(self._run_set.store, 0)
        writer.write(entries)
        run = writer.close()
        with self._lock:
            self._run_set.add(run)
            self._tables, self._table_rows = [], 0

    def _horizon(self) -> int:
        return 0 if self._retain_millis is None else max(0, self._newest_millis - self._retain_millis)


logger = logging.getLogger(__name__)

FAN_IN = 10
# A scan holds memory for each run. Where files are taken faster than a large compaction ends, small ones do not wait
# for it: runs of levels below INLINE_LEVELS are compacted at once, in a second; larger ones are waited for.
MAX_RUNS = FAN_IN + 4
INLINE_LEVELS = 2
# The engine makes a window's snapshot durable long before it asks for the snapshot this many windows later.
KEPT_SNAPSHOTS = 64


class RunSet:
    """The runs of one index, newest first; levels ascend, so that the runs of a level are adjacent.

    Args:
        lock: Held while the list of runs changes, so that views see it together with the entries in memory.
    """

    def __init__(self, store: ObjectStore, lock: threading.Lock) -> None:
        self.store = store
        self._lock = lock
        self._runs: list[Run] = []
        self._views: weakref.WeakSet[IndexView] = weakref.WeakSet()
        self._thread: ThreadPoolExecutor | None = None
        self._compaction: tuple[list[Run], Future[Run]] | None = None
        self._snapshots = 0
        self._dropped: list[tuple[int, RunFile]] = []
        self._orphans: list[str] = []

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(self._runs)

    def add(self, run: Run) -> None:
        """Add the newest run; the caller holds the lock."""
        self._runs.insert(0, run)
        names = {file.name for file in run.files}
        self._orphans = [name for name in self._orphans if name not in names]

    def keep_for(self, view: IndexView) -> None:
        self._views.add(view)

    def restore(self, runs: Sequence[Run]) -> None:
        """Replace the runs by those of a snapshot."""
        self._runs = list(runs)
        self._dropped = []
        # These are files of an attempt that died before its snapshot was durable. They are removed with the next
        # snapshot, because looking at a checkpoint must not change it.
        self._orphans = self.require_files(runs)

    def require_files(self, runs: Sequence[Run]) -> list[str]:
        """Refuse an index without a file of these runs.

        Returns:
            The files that belong to none of the runs.
        """
        named = {file.name for run in runs for file in run.files}
        present = set(self.store.list(""))
        if missing := sorted(named - present):
            raise JournalError(
                f"the index of processed files lacks {missing[0]}"
                + (f" and {len(missing) - 1} more" * (len(missing) > 1)),
                url=self.store.url,
                hint=f"put the checkpoint back as it was, with its index, or {START_OVER}",
            )
        return sorted(present - named)

    def maintain(self, horizon_millis: int) -> None:
        """Compact runs and remove files; called for each snapshot."""
        self._snapshots += 1
        self._compact_in_background(horizon_millis)
        self._bound_runs(horizon_millis)
        self._remove_files()

    def wait_for_compaction(self) -> None:
        """Wait until a compaction in the background is complete; the next snapshot uses it."""
        if self._compaction is not None:
            wait([self._compaction[1]])

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._thread = self._compaction = None

    def _compact_in_background(self, horizon_millis: int) -> None:
        if self._compaction is not None:
            runs, future = self._compaction
            if not future.done():
                return
            self._compaction = None
            self._install(runs, future)
        for level in range(1 + max((run.level for run in self._runs), default=0)):
            due = self._oldest(level)
            if len(due) == FAN_IN:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="index-compaction")
                # No snapshot waits for it: compacting ten million entries takes seconds.
                self._compaction = due, self._thread.submit(compact, self.store, due, level + 1, horizon_millis)
                return

    def _bound_runs(self, horizon_millis: int) -> None:
        while True:
            counts = Counter(run.level for run in self._runs)
            level = min((level for level, count in counts.items() if count >= MAX_RUNS), default=None)
            if level is None:
                return
            running = None if self._compaction is None else self._compaction[0][0].level
            if running is not None and (level >= INLINE_LEVELS or running == level):
                self.wait_for_compaction()
                self._compact_in_background(horizon_millis)
            else:
                due = self._oldest(level)
                future: Future[Run] = Future()
                try:
                    future.set_result(compact(self.store, due, level + 1, horizon_millis))
                except StorageError as error:
                    future.set_exception(error)
                self._install(due, future)
            if len(self._runs) >= counts.total():
                return  # the compaction failed, and was logged; the next snapshot tries again

    def _oldest(self, level: int) -> list[Run]:
        return [run for run in self._runs if run.level == level][-FAN_IN:]

    def _install(self, compacted: list[Run], future: Future[Run]) -> None:
        try:
            result = future.result()
        except StorageError as error:
            # The uncompacted runs hold the same entries.
            logger.warning("index compaction failed, will try again error=%s", error)
            return
        with self._lock:
            position = self._runs.index(compacted[0])
            self._runs[position : position + len(compacted)] = [result] if result.files else []
        self._dropped += [(self._snapshots, file) for run in compacted for file in run.files]

    def _remove_files(self) -> None:
        if self._orphans:
            self.store.delete(self._orphans)
            self._orphans = []
        with self._lock:
            used = {file.name for view in self._views for run in view.runs for file in run.files}
        due = {
            file.name
            for snapshot, file in self._dropped
            if snapshot + KEPT_SNAPSHOTS <= self._snapshots and file.name not in used
        }
        if due:
            self.store.delete(sorted(due))
            self._dropped = [(snapshot, file) for snapshot, file in self._dropped if file.name not in due]
