"""Change detection: compares scans with the index and selects what is to be read, each version once."""

from __future__ import annotations

import heapq
import itertools
import logging
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.errors import SourceChangedError
from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN, read_until
from dagflow.storage.location import redacted
from operators.splitter.detection_rules import DetectionRules, change_of, looks_appended
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.fingerprinting import Prefix, take_fingerprints
from operators.splitter.index.index_view import IndexEntries
from operators.splitter.index.pending_fingerprints import InFlightFiles, PendingFingerprints
from operators.splitter.scan.clock import Clock
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listed_stats import ListedStat
from operators.splitter.scan.scan_roots import Root
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.walk import FIRST_STEP, LAST_STEP
from operators.splitter.scan.workers import InTasks

logger = logging.getLogger(__name__)

MAX_NEWEST = 100_000
"""Files in memory where the newest are read first, 300 bytes each; the tree is scanned again for the rest."""

_Due = tuple[ListedFiles, IndexEntry | None]
"""New files; or one file that is new or changed, with its entry."""


class ChangeDetector:
    """Compares scans with the index.

    Args:
        scanner: Lists the files.
        index: The versions that were taken.
        rules: Which files are read.
        counters: Where changes are counted.
        clock: The time.
        in_tasks: Takes fingerprints that no reader will report; see take_fingerprints().
        pending: Files whose fingerprints readers will report.

    Attributes:
        has_more: Whether the last scan of changes() found more new files than it gave.
    """

    def __init__(
        self,
        scanner: Scanner,
        index: FileIndex,
        rules: DetectionRules,
        counters: Counter[str],
        clock: Clock,
        in_tasks: InTasks | None,
        pending: PendingFingerprints,
    ) -> None:
        self._scanner = scanner
        self._index = index
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._in_tasks = in_tasks
        self._pending = pending
        self._incomplete = 0
        self.has_more = False

    def changes(self) -> Generator[ListedFiles]:
        """Scan once for files to be read, and for versions to be noted.

        New files come in a row where the order allows it; a changed file comes alone. The index must have what one
        scan gave before the next begins. With latest_first has_more says at the end whether files were left for that.

        Raises:
            StorageError: Something cannot be listed or examined; SourceChangedError where the policy says so.
        """
        return self._newest() if self._rules.latest_first else self._with_fingerprints(self._compared(self._rules))

    def all_changes(self) -> Generator[ListedFiles]:
        """Scan as often as it takes to give everything; see changes()."""
        yield from self.changes()
        while self.has_more:
            yield from self.changes()

    def existing(self) -> Generator[ListedFiles]:
        """Scan once, only to note the files that were not taken, however recently they were modified."""
        rules = replace(self._rules, completeness=replace(self._rules.completeness, min_age_millis=0))
        noted = ([replace(files, start=0, is_noted=True) for files in step] for step in self._compared(rules))
        return self._with_fingerprints(noted)

    def _newest(self) -> Generator[ListedFiles]:
        """Scan once, for the MAX_NEWEST newest files."""
        self.has_more = False
        count = 0
        # Rows, because columns of one file each would take twice the memory; keys are unique and decide ties.
        newest: list[tuple[int, bytes, Root, ListedStat, int, int]] = []
        for files in (files for step in self._compared(self._rules) for files in step):
            if files.is_noted:
                yield from self._with_fingerprints([[files]])
                continue
            count += len(files)
            for key, stat in zip(files.keys, files.stats, strict=True):
                row = (stat.mtime_ns, key, files.root, stat, files.start, files.discovered_ms)
                if len(newest) < MAX_NEWEST:
                    heapq.heappush(newest, row)
                else:
                    heapq.heappushpop(newest, row)
        newest.sort(reverse=True)
        yield from self._with_fingerprints(
            [
                replace(ListedFiles.single(root, key, stat), start=start, discovered_ms=discovered_ms)
                for _, key, root, stat, start, discovered_ms in newest[at : at + LAST_STEP]
            ]
            for at in range(0, len(newest), LAST_STEP)
        )
        self.has_more = count > MAX_NEWEST

    def _with_fingerprints(self, steps: Iterable[Sequence[ListedFiles]]) -> Generator[ListedFiles]:
        """Add the fingerprints that are needed before files are read; one step ahead, because tasks take them."""
        with ThreadPoolExecutor(1, thread_name_prefix="fingerprints") as jobs:
            waiting: deque[tuple[Sequence[ListedFiles], Future[list[int]]]] = deque()
            for step in steps:
                wanted = [prefix for files in step for prefix in self._prefixes(files)]
                if not (wanted or waiting):
                    yield from step
                    continue
                waiting.append((step, jobs.submit(take_fingerprints, wanted, self._in_tasks)))
                if len(waiting) > 1:
                    yield from self._marked(*waiting.popleft())
            while waiting:
                yield from self._marked(*waiting.popleft())

    def _needing(self, files: ListedFiles) -> npt.NDArray[np.intp]:
        """The files to be fingerprinted before they are read: none of object stores, which replace whole objects.

        Blocks of one file are read at different times, and a fingerprint tells them whether it was rewritten.
        """
        if not files.root.is_local or files.fingerprints:
            return np.empty(0, np.intp)
        if self._rules.on_change.needs_fingerprints and (self._rules.may_grow or files.is_noted):
            return np.arange(len(files))
        return np.flatnonzero(files.size_bytes > self._rules.block_size)

    def _prefixes(self, files: ListedFiles) -> list[Prefix]:
        sizes = files.size_bytes
        return [(files.keys[row], int(sizes[row])) for row in self._needing(files).tolist()]

    def _marked(self, step: Sequence[ListedFiles], taken: Future[list[int]]) -> Iterator[ListedFiles]:
        prints = iter(taken.result())
        for files in step:
            needing = self._needing(files)
            if not len(needing):
                yield files
                continue
            own = np.full(len(files), UNKNOWN)
            own[needing] = list(itertools.islice(prints, len(needing)))
            yield replace(files, fingerprints=own.tolist())

    def _compared(self, rules: DetectionRules) -> Iterator[list[ListedFiles]]:
        now_millis = self._clock.now_millis()
        # Before the view: the view lacks what readers report after it.
        in_flight = self._pending.in_flight()
        view = self._index.view(now_millis)
        self._incomplete = 0
        for step in _in_larger_steps(self._scanner.scan()):
            entries = view.look_up(
                step[0].index_names if len(step) == 1 else [name for files in step for name in files.index_names]
            )
            start = 0
            due: list[_Due] = []
            lacking: list[ListedFiles] = []
            for files in step:
                end = start + len(files)
                own = entries.slice(start, end)
                unchanged = _unchanged(files, own)
                due += self._due(files, own, unchanged, rules, now_millis)
                lacking += self._lacking(files, own, unchanged)
                start = end
            if due or lacking:
                discovered_ms = self._clock.now_millis()
                yield [replace(each, discovered_ms=discovered_ms) for each in self._judged(due, lacking, in_flight)]
        if self._incomplete:
            self._counters[names.UNSETTLED] += self._incomplete
            logger.info("files left for later, as they are not complete yet files=%d", self._incomplete)

    def _due(
        self,
        files: ListedFiles,
        entries: IndexEntries,
        unchanged: npt.NDArray[np.bool_],
        rules: DetectionRules,
        now_millis: int,
    ) -> Iterator[_Due]:
        """The files that are not as they were taken, as far as they are complete."""
        positions = np.flatnonzero(~unchanged)
        if not len(positions):
            return
        if not (rules.completeness.is_checked or entries.known[positions].any()):
            yield files.take(positions), None
            return
        for position in positions.tolist():
            if rules.completeness.is_marker(files, position):
                continue
            if rules.completeness.is_complete(files, position, now_millis):
                yield files.slice(position, position + 1), entries[position]
            else:
                self._incomplete += 1

    def _lacking(
        self, files: ListedFiles, entries: IndexEntries, unchanged: npt.NDArray[np.bool_]
    ) -> Iterator[ListedFiles]:
        """The files that are as they were taken, and have no fingerprint although no reader will report one."""
        if not (self._rules.on_change.needs_fingerprints and files.root.is_local):
            return
        positions = np.flatnonzero(unchanged & (entries.fingerprint == UNKNOWN) & (files.size_bytes > 0))
        if len(positions):
            lacking = files.take(positions)
            rest = np.flatnonzero(~self._pending.are_pending(lacking.index_names))
            if len(rest):
                yield lacking.take(rest)

    def _judged(self, due: list[_Due], lacking: list[ListedFiles], in_flight: InFlightFiles) -> Iterator[ListedFiles]:
        """The files that are to be read or noted."""
        longer = [(files, entry) for files, entry in due if entry is not None and looks_appended(entry, files.stats[0])]
        too_early = _unreported(longer, in_flight)
        self._incomplete += len(too_early)
        wanted = [(files.keys[0], entry.size_bytes) for files, entry in longer if files.keys[0] not in too_early]
        wanted += [prefix for files in lacking for prefix in zip(files.keys, files.size_bytes.tolist(), strict=True)]
        prints = dict(zip(wanted, take_fingerprints(wanted, self._in_tasks), strict=True))
        for files in lacking:
            own = [prints[prefix] for prefix in zip(files.keys, files.size_bytes.tolist(), strict=True)]
            # A file that cannot be opened has no fingerprint, and nothing is noted of it.
            known = np.flatnonzero(np.array(own) != UNKNOWN)
            if len(known):
                yield replace(files, fingerprints=own, is_noted=True).take(known)
        for files, entry in due:
            if entry is None:
                yield files
            elif files.keys[0] not in too_early:
                yield self._judge(files, entry, prints)

    def _judge(self, files: ListedFiles, entry: IndexEntry, prints: Mapping[Prefix, int]) -> ListedFiles:
        """One changed file, as the policy says."""
        if files.is_directory(0):
            return files
        stat = files.stats[0]
        change = change_of(entry, stat, prints.get((files.keys[0], entry.size_bytes), UNKNOWN))
        action = self._rules.on_change.action(change)
        self._counters[names.changed(change)] += 1
        url = redacted(files.url(0))
        logger.warning("file changed after it was taken change=%s action=%s url=%s", change, action, url)
        if action == "fail":
            raise SourceChangedError(
                f"it was {change} after it was read: {entry.size_bytes} bytes then, {stat.size_bytes} now",
                url=url,
                hint=f"say what to do about it, for example on_change: {{{change}: reread}} or {{{change}: ignore}}",
            )
        start = read_until(entry.fingerprint, entry.size_bytes) if action == "tail" else 0
        return replace(files, start=start, is_noted=action == "ignore")


def _unreported(longer: list[tuple[ListedFiles, IndexEntry]], in_flight: InFlightFiles) -> set[bytes]:
    """Keys of files whose append cannot be distinguished from a rewrite until their readers report."""
    unsure = [files for files, entry in longer if entry.fingerprint == UNKNOWN]
    is_pending = in_flight.has([files.index_names[0] for files in unsure]) if unsure else ()
    return {files.keys[0] for files, pending in zip(unsure, is_pending, strict=True) if pending}


def _in_larger_steps(found: Iterable[ListedFiles]) -> Iterator[list[ListedFiles]]:
    """Gather the files of many small roots: a join in larger steps costs less."""
    step: list[ListedFiles] = []
    count, size = 0, FIRST_STEP
    for files in found:
        step.append(files)
        count += len(files)
        if count >= size:
            yield step
            step, count, size = [], 0, min(2 * size, LAST_STEP)
    if step:
        yield step


def _unchanged(files: ListedFiles, entries: IndexEntries) -> npt.NDArray[np.bool_]:
    """For each file, whether the version that was taken is the listed one."""
    if not entries.known.any():
        return entries.known
    same: npt.NDArray[np.bool_] = entries.known & (files.size_bytes == entries.size_bytes)
    has_etag, stats = files.stats.has_etag, files.stats
    if not has_etag.any():
        same &= stats.mtime_ns == entries.mtime_ns
        return same
    same &= np.where(has_etag, stats.identities == entries.identity, stats.mtime_ns == entries.mtime_ns)
    return same
