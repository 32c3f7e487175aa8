"""The runs of an index: compaction in the background, and removal of files that no snapshot needs."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from dagflow.errors import START_OVER, JournalError, StorageError
from dagflow.storage.objects import ObjectStore
from operators.splitter.index.index_view import IndexView
from operators.splitter.index.sorted_runs import Run, RunFile, compact

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
        store: The index's directory.
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
        """The runs, newest first."""
        return tuple(self._runs)

    def add(self, run: Run) -> None:
        """Add the newest run; the caller holds the lock."""
        self._runs.insert(0, run)
        names = {file.name for file in run.files}
        self._orphans = [name for name in self._orphans if name not in names]

    def keep_for(self, view: IndexView) -> None:
        """Keep the files of a view's runs as long as the view is in use."""
        self._views.add(view)

    def restore(self, runs: Sequence[Run]) -> None:
        """Replace the runs by those of a snapshot.

        Raises:
            JournalError: A file of a run is missing.
        """
        self._runs = list(runs)
        self._dropped = []
        # These are files of an attempt that died before its snapshot was durable. They are removed with the next
        # snapshot, because looking at a checkpoint must not change it.
        self._orphans = self.require_files(runs)

    def require_files(self, runs: Sequence[Run]) -> list[str]:
        """Refuse an index without a file of these runs.

        Returns:
            The files that belong to none of the runs.

        Raises:
            JournalError: A file is missing.
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
        """Compact runs and remove files; called for each snapshot.

        Args:
            horizon_millis: Entries that were taken before this may be dropped.
        """
        self._snapshots += 1
        self._compact_in_background(horizon_millis)
        self._bound_runs(horizon_millis)
        self._remove_files()

    def wait_for_compaction(self) -> None:
        """Wait until a compaction in the background is complete; the next snapshot uses it."""
        if self._compaction is not None:
            wait([self._compaction[1]])

    def close(self) -> None:
        """Wait for a compaction in the background; its result is dropped."""
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
        """Keep the number of runs bounded, even if files are taken faster than runs are compacted."""
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
        """The oldest runs of a level, as many as are compacted at once."""
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
