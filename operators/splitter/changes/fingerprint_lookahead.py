"""Takes the fingerprints that are needed before files are read: those of a step while a scan makes the next one."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.changes.detection_rules import DetectionRules, has_changed
from operators.splitter.changes.renames.copies import MAX_REPEATS
from operators.splitter.index.fingerprinting import FilePrefix, InTasks, prefixes_of, take_fingerprints
from operators.splitter.scan.listed_files import ListedFiles


class WholeStep(list[ListedFiles]):
    """Files that must all be kept: the index entry of one depends on those before it."""


class FingerprintLookahead:
    """Adds fingerprints to the files of a scan.

    Files that were renamed or truncated before a task could examine them are left out, and another scan finds them:
    without fingerprints they would not be known under another name.

    Args:
        in_tasks: Takes the fingerprints; see take_fingerprints().
    """

    def __init__(self, rules: DetectionRules, counters: Counter[str], in_tasks: InTasks | None) -> None:
        self._rules = rules
        self._counters = counters
        self._in_tasks = in_tasks
        self._has_lost = False
        self._scans_that_lost = 0

    @property
    def has_more(self) -> bool:
        """Whether files were left out of the last scan for one that follows at once."""
        return 0 < self._scans_that_lost <= MAX_REPEATS

    def begin_scan(self) -> None:
        self._has_lost = False

    def end_scan(self) -> None:
        """End a scan: all its files have their fingerprints."""
        self._scans_that_lost = self._scans_that_lost + 1 if self._has_lost else 0

    def add_fingerprints(self, steps: Iterable[Sequence[ListedFiles]]) -> Generator[ListedFiles]:
        """The files with the fingerprints that they need; tasks take those of a step while the next one is made."""
        jobs = ThreadPoolExecutor(1, thread_name_prefix="fingerprints")
        try:
            waiting: deque[tuple[Sequence[ListedFiles], Future[list[int]]]] = deque()
            for step in steps:
                wanted = self._needed_prefixes(step)
                if not (wanted or waiting):
                    yield from step
                    continue
                waiting.append((step, jobs.submit(take_fingerprints, wanted, self._in_tasks)))
                if len(waiting) > 1:
                    yield from self._with_taken(*waiting.popleft())
            while waiting:
                yield from self._with_taken(*waiting.popleft())
        finally:
            # The garbage collector may get here, within any call: a thread that ends needs locks of that call, perhaps.
            jobs.shutdown(wait=False, cancel_futures=True)

    def add_at_once(self, step: Sequence[ListedFiles]) -> list[ListedFiles]:
        """The same for one step without lookahead, with no files in the place of those that are left out."""
        prints = iter(take_fingerprints(self._needed_prefixes(step), self._in_tasks))
        return [self._with_prints(files, prints, may_leave_out=True) for files in step]

    def _needed_prefixes(self, step: Sequence[ListedFiles]) -> list[FilePrefix]:
        needing = ((files, self._rows_to_take(files)) for files in step)
        return [prefix for files, rows in needing if len(rows) for prefix in prefixes_of(files.take(rows))]

    def _rows_to_take(self, files: ListedFiles) -> npt.NDArray[np.intp]:
        """The files to be fingerprinted before they are read; none of object stores, which replace whole objects.

        Blocks of one file are read at different times; the fingerprint shows whether it was rewritten in between.
        """
        if not files.root.is_local or files.fingerprints:
            return np.empty(0, np.intp)
        if self._rules.on_change.needs_fingerprints and (self._rules.may_grow or files.is_noted):
            return np.arange(len(files))
        return np.flatnonzero(files.size_bytes > self._rules.block_size)

    def _with_taken(self, step: Sequence[ListedFiles], taken: Future[list[int]]) -> Iterator[ListedFiles]:
        prints = iter(taken.result())
        for files in step:
            if len(marked := self._with_prints(files, prints, may_leave_out=not isinstance(step, WholeStep))):
                yield marked

    def _with_prints(self, files: ListedFiles, prints: Iterator[int], *, may_leave_out: bool) -> ListedFiles:
        rows = self._rows_to_take(files)
        if not len(rows):
            return files
        column = np.full(len(files), UNKNOWN)
        column[rows] = list(itertools.islice(prints, len(rows)))
        marked = replace(files, fingerprints=column.tolist())
        lost = self._find_lost(marked, rows) if may_leave_out else set()
        if not lost:
            return marked
        return marked.take(np.array([row for row in range(len(files)) if row not in lost], np.intp))

    def _find_lost(self, files: ListedFiles, rows: npt.NDArray[np.intp]) -> set[int]:
        """Rows of files that were renamed or truncated before a task could examine them."""
        unseen = (row for row in rows.tolist() if files.fingerprints[row] == UNKNOWN and files.size_bytes[row] > 0)
        lost = {row for row in unseen if has_changed(files.keys[row], files.stats[row])}
        self._has_lost = self._has_lost or bool(lost)
        if self._scans_that_lost >= MAX_REPEATS:
            self._counters[names.FILES_DEFERRED] += len(lost)
        return lost
