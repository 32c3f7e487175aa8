"""Change detection: compares scans with the index and selects what is to be read, each version once."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN, is_gone
from dagflow.storage.location import redacted
from operators.splitter.changed_files import ChangedFiles, as_rewritten, is_rewritten
from operators.splitter.comparison import (
    has_changed,
    in_larger_steps,
    is_other_file,
    is_tail,
    is_unchanged,
    noted,
    prefix,
)
from operators.splitter.detection_rules import DetectionRules, looks_appended
from operators.splitter.growth_notes import GrowthNotes
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.fingerprinting import Prefix, prefixes_of, take_fingerprints
from operators.splitter.index.index_view import IndexEntries, IndexView
from operators.splitter.index.pending_fingerprints import InFlightFiles, PendingFingerprints
from operators.splitter.index.version_slots import SHORTER, ReadVersion, is_part
from operators.splitter.renames.index_notes import IndexNotes, names_to_know
from operators.splitter.renames.rename_detector import COPY_GRACE_S, MAX_REPEATS, RenameDetector
from operators.splitter.renames.verdicts import Verdict
from operators.splitter.scan.clock import Clock
from operators.splitter.scan.listed_files import FileRow, ListedFiles
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.walk import LAST_STEP
from operators.splitter.scan.workers import InTasks

logger = logging.getLogger(__name__)

MAX_NEWEST = 100_000
"""Files in memory where the newest are read first, 300 bytes each; the tree is scanned again for the rest."""

MAX_HELD = 4096
"""Files that are held until a scan ends; those of a directory that was moved are looked at in larger numbers."""

_Due = tuple[ListedFiles, IndexEntry | None]
"""New files; or one file that is new or changed, with its entry."""

_Restored = tuple[ListedFiles, IndexEntries]
"""Files with the sizes and times of those that were taken, whose entries these are, and with other inodes."""


class _Resolved(list[ListedFiles]):
    """A step with files that were held: in an order that must be kept."""


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
        renames: Recognises files that were taken under another name.

    Attributes:
        has_more: Whether the last scan of changes() left files for one that follows at once.
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
        renames: RenameDetector,
    ) -> None:
        self._scanner = scanner
        self._index = index
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._in_tasks = in_tasks
        self._pending = pending
        self._renames = renames
        self._growth = GrowthNotes(clock)
        self._changed = ChangedFiles(rules.on_change, index, counters, self._growth)
        self._incomplete = self._incomplete_scans = 0
        self.has_more = self._is_incomplete_scan = False

    def changes(self) -> Generator[ListedFiles]:
        """Scan once for files to be read, and for versions to be noted.

        New files come in a row where the order allows it; a changed file comes alone. The index must have what one
        scan gave before the next begins. Files that may be known under another name come last.

        Raises:
            StorageError: Something cannot be listed or examined; SourceChangedError where the policy says so.
        """
        self.has_more = self._is_incomplete_scan = False
        self._renames.begin_scan()
        yield from self._newest() if self._rules.latest_first else self._with_fingerprints(self._compared(self._rules))
        yield from self._with_fingerprints([self._resolved()])
        self._renames.end_scan()
        self._growth.tell()
        self._incomplete_scans = self._incomplete_scans + 1 if self._is_incomplete_scan else 0
        self.has_more |= self._renames.has_more or 0 < self._incomplete_scans <= MAX_REPEATS

    def all_changes(self) -> Generator[ListedFiles]:
        """Scan as often as it takes to give everything; see changes()."""
        yield from self.changes()
        while self.has_more or self._renames.has_waiting:
            if not self.has_more:
                with (pause := threading.Condition()):
                    self._clock.wait_until(pause, self._clock.elapsed_s() + COPY_GRACE_S / 4)
            yield from self.changes()

    def existing(self) -> Generator[ListedFiles]:
        """Scan once, only to note the files that were not taken, however recently they were modified."""
        rules = replace(self._rules, completeness=replace(self._rules.completeness, min_age_millis=0))
        steps = self._compared(rules, holds=False)
        return self._with_fingerprints([replace(files, start=0, is_noted=True) for files in step] for step in steps)

    def _newest(self) -> Generator[ListedFiles]:
        """Scan once, for the MAX_NEWEST newest files."""
        count = 0
        # Rows, because columns of one file each would take twice the memory; keys are unique and decide ties.
        newest: list[tuple[int, bytes, FileRow]] = []
        for is_resolved, files in (
            (isinstance(step, _Resolved), files) for step in self._compared(self._rules) for files in step
        ):
            if files.is_noted or is_resolved:
                yield from self._with_fingerprints([[files]])
                continue
            count += len(files)
            for row in files.rows():
                dated = row.stat.mtime_ns, row.key, row
                if len(newest) < MAX_NEWEST:
                    heapq.heappush(newest, dated)
                else:
                    heapq.heappushpop(newest, dated)
        newest.sort(reverse=True)
        self._give(row.listed() for *_, row in newest)
        yield from self._with_fingerprints(
            [row.listed() for *_, row in newest[at : at + LAST_STEP]] for at in range(0, len(newest), LAST_STEP)
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
        needing = self._needing(files)
        return prefixes_of(files.take(needing)) if len(needing) else []

    def _marked(self, step: Sequence[ListedFiles], taken: Future[list[int]]) -> Iterator[ListedFiles]:
        prints = iter(taken.result())
        for files in step:
            needing = self._needing(files)
            if not len(needing):
                yield files
                continue
            own = np.full(len(files), UNKNOWN)
            own[needing] = list(itertools.islice(prints, len(needing)))
            marked = replace(files, fingerprints=own.tolist())
            lost = set() if isinstance(step, _Resolved) else self._lost(marked, needing)
            if lost:
                marked = marked.take(np.array([row for row in range(len(files)) if row not in lost], np.intp))
            if len(marked):
                yield marked

    def _lost(self, files: ListedFiles, needing: npt.NDArray[np.intp]) -> set[int]:
        """Rows of files that were renamed or truncated before a task could look at them: another scan finds them.

        Without fingerprints they would not be known under another name.
        """
        unseen = (row for row in needing.tolist() if files.fingerprints[row] == UNKNOWN and files.size_bytes[row] > 0)
        lost = {row for row in unseen if has_changed(files.keys[row], files.stats[row])}
        self._is_incomplete_scan = self._is_incomplete_scan or bool(lost)
        if self._incomplete_scans >= MAX_REPEATS:
            self._counters[names.UNSETTLED] += len(lost)
        return lost

    def _compared(self, rules: DetectionRules, *, holds: bool = True) -> Iterator[list[ListedFiles]]:
        now_millis = self._clock.now_millis()
        # Before the view: the view lacks what readers report after it.
        in_flight = self._pending.in_flight()
        view = self._index.view(now_millis)
        self._incomplete = 0
        for step in in_larger_steps(self._scanner.scan()):
            entries = view.look_up(
                step[0].index_names if len(step) == 1 else [name for files in step for name in files.index_names]
            )
            start = 0
            due: list[_Due] = []
            lacking: list[ListedFiles] = []
            restored: list[_Restored] = []
            for files in step:
                end = start + len(files)
                own = entries.slice(start, end)
                unchanged = is_unchanged(files, own)
                lacking += self._lacking(files, own, unchanged)
                if self._rules.on_change.needs_fingerprints and files.root.is_local:
                    is_other = unchanged & is_other_file(files, own)
                    if is_other.any():
                        is_other &= ~in_flight.has(files.index_names)
                    if (others := np.flatnonzero(is_other & (own.fingerprint > UNKNOWN))).size:
                        restored.append((files.take(others), own.take(others)))
                    unchanged &= ~(is_other & (own.fingerprint < UNKNOWN))
                due += self._due(files, own, unchanged, rules, now_millis)
                start = end
            if due or lacking or restored:
                discovered_ms = self._clock.now_millis()
                judged = list(self._judged(due, lacking, restored, in_flight, view if holds else None))
                if not rules.latest_first:
                    self._give(judged)
                yield [replace(each, discovered_ms=discovered_ms) for each in judged]
            if self._renames.held_count >= MAX_HELD:
                yield self._resolved()
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
        if not rules.completeness.is_checked:
            # New files in a row stay together, which is the usual case.
            known = entries.known[positions]
            for part in np.split(positions, np.flatnonzero(known[1:] | known[:-1]) + 1) if len(positions) else ():
                yield files.take(part), entries[int(part[0])]
            return
        for position in positions.tolist():
            if rules.completeness.is_marker(files, position):
                continue
            if rules.completeness.is_complete(files, position, now_millis):
                yield rules.completeness.as_complete(files, position), entries[position]
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

    def _judged(
        self,
        due: list[_Due],
        lacking: list[ListedFiles],
        restored: list[_Restored],
        in_flight: InFlightFiles,
        view: IndexView | None,
    ) -> Iterator[ListedFiles]:
        """The files that are to be read or noted; those that may be known under another name are held.

        Args:
            due: Files that are not as they were taken.
            lacking: Files that have no fingerprint.
            restored: Other files with the sizes and times of those that were taken.
            in_flight: Files whose readers have not reported yet.
            view: The index; None where nothing is held.
        """
        # What becomes of the version that was taken decides what is read of this one.
        too_early = in_flight.among(files.index_names[0] for files, entry in due if entry is not None)
        self._incomplete += len(too_early)
        due = [(files, entry) for files, entry in due if entry is None or files.index_names[0] not in too_early]
        changed = [(files, entry) for files, entry in due if entry is not None]
        begun = self._changed.begun(changed)
        wanted = [prefix(files, entry) for files, entry in changed if looks_appended(entry, files.stats[0])]
        wanted += [prefix for prefix, _ in begun.values()]
        wanted += [prefix for files in lacking for prefix in prefixes_of(files)]
        wanted += [prefix for files, _ in restored for prefix in prefixes_of(files)]
        prints = dict(zip(wanted, take_fingerprints(wanted, self._in_tasks), strict=True))
        for files in lacking:
            own = [prints[prefix] for prefix in prefixes_of(files)]
            # A file that cannot be opened has no fingerprint, and nothing is noted of it.
            known = np.flatnonzero(np.array(own) != UNKNOWN)
            if len(known):
                yield replace(files, fingerprints=own, is_noted=True).take(known)
        for files, entries in restored:
            own = [prints[prefix] for prefix in prefixes_of(files)]
            is_same = np.array(own) == entries.fingerprint
            if is_same.any():
                yield replace(files, fingerprints=own, is_noted=True).take(np.flatnonzero(is_same))
            others = np.flatnonzero(~is_same).tolist()
            due += [(files.slice(position, position + 1), entries[position]) for position in others]
        yield from self._given(due, begun, prints, view)

    def _given(
        self,
        due: list[_Due],
        begun: Mapping[bytes, tuple[Prefix, int]],
        prints: Mapping[Prefix, int],
        view: IndexView | None,
    ) -> Iterator[ListedFiles]:
        """The files that are not as they were taken, as far as they are not held; see _judged() and begun()."""
        for files, entry in due:
            name = files.root.index_name(files.keys[0])
            if entry is not None and is_rewritten(name, begun, prints):
                entry = as_rewritten(entry)
            elif entry is not None and (back := self._changed.put_back(files, entry)) is not None:
                yield back
                continue
            if entry is not None and (view is None or not files.root.is_local):
                yield self._changed.judge(files, entry, prints.get(prefix(files, entry), UNKNOWN))
            elif view is None or not files.root.is_local:
                yield files
            elif entry is None:
                if len(given := self._renames.divided(files, view)):
                    yield given
            elif files.is_directory(0):
                yield files
            elif is_tail(files, entry, prints):
                if entry.fingerprint >= UNKNOWN:
                    yield noted(files, name + SHORTER, entry)
                yield self._changed.judge(files, entry, entry.fingerprint)
            else:
                self._renames.hold(files, entry)

    def _resolved(self) -> _Resolved:
        """What became of the files that were held, each with what the index must know from then on."""
        verdicts = self._renames.resolved()
        step = _Resolved()
        decided = self._there([each for each in verdicts if each.outcome not in ("later", "again")])
        self._incomplete += len(verdicts) - len(decided)
        read = self._read_of(decided)
        index_notes = IndexNotes(decided, read, self._index.find(names_to_know(read)) if read else {})
        discovered_ms = self._clock.now_millis()
        for verdict in sorted(decided, key=lambda each: each.outcome != "moved"):
            files = self._decided(verdict)
            notes = index_notes.of(verdict, replaces=verdict.source is not None or not files.content_start)
            self._give(notes)
            step.append(replace(files, notes=notes, discovered_ms=discovered_ms))
        self._give(step)
        return step

    def _there(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """The verdicts on files that are still there, with the fingerprints that are needed before they are read."""
        wanted = [each.suspect.files if not each.is_read else None for each in verdicts]
        prefixes = [[] if files is None else self._prefixes(files) for files in wanted]
        prints = iter(take_fingerprints([prefix for each in prefixes for prefix in each], self._in_tasks))
        found = []
        for verdict, own in zip(verdicts, [[next(prints) for _ in each] for each in prefixes], strict=True):
            suspect = verdict.suspect
            if own:
                marked = replace(suspect.files, fingerprints=own)
                if self._lost(marked, np.array([0])):
                    continue
                verdict = replace(verdict, suspect=replace(suspect, files=marked))
            found.append(verdict)
        return found

    def _read_of(self, verdicts: Sequence[Verdict]) -> dict[bytes, ReadVersion]:
        """What was read of versions that are replaced or have moved, by name: of a gone tail what was before it."""
        taken = {each.suspect.name: each.suspect.entry for each in verdicts if each.suspect.entry is not None}
        taken |= {each.source.name: each.source.entry for each in verdicts if each.source is not None}
        before = self._changed.read_before({name: entry for name, entry in taken.items() if is_gone(entry.fingerprint)})
        return {name: before.get(name, ReadVersion(entry, is_part(name))) for name, entry in taken.items()}

    def _give(self, given: Iterable[ListedFiles]) -> None:
        """Note which files the scan gives: under another name they are no new files."""
        for files in given:
            if files.root.is_local:
                self._renames.give(files)

    def _decided(self, verdict: Verdict) -> ListedFiles:
        """A file that was held, as it is to be read or noted."""
        suspect, source = verdict.suspect, verdict.source
        if verdict.outcome == "changed":
            assert suspect.entry is not None
            return self._changed.judge(suspect.files, suspect.entry, UNKNOWN)
        if source is None:
            return suspect.files
        self._counters[names.changed("renamed")] += 1
        logger.info(
            "file was taken before, and has moved since url=%s before=%s bytes=%d",
            redacted(suspect.files.url(0)),
            redacted(os.fsdecode(source.path)),
            verdict.start,
        )
        if verdict.is_read:
            prints = [] if verdict.is_content else [source.entry.fingerprint]
            return replace(suspect.files, is_noted=True, fingerprints=prints)
        files = replace(suspect.files, moved_from=os.fsdecode(source.path))
        tail = self._changed.treat(files, source.name, source.entry, "appended")
        return replace(tail, start=0, content_start=tail.start) if verdict.is_content and tail.start else tail
