"""Change detection: compares scans with the index and selects the files to be read, each version once."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.metrics import names
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.location import redacted
from operators.files.metadata import Fate
from operators.files.rotation_names import uncompressed
from operators.splitter.changes.deleted_files import GoneFiles
from operators.splitter.changes.detection_rules import (
    ChangedFiles,
    CompletenessRules,
    DetectionRules,
    GrowthNotes,
    closing,
    gone_version,
    in_larger_steps,
    is_other_file,
    is_tail,
    is_unchanged,
    looks_appended,
    taken_prefix,
)
from operators.splitter.changes.needed_fingerprints import NeededFingerprints
from operators.splitter.changes.renames.cases import Continuing
from operators.splitter.changes.renames.copies import COPY_GRACE_S
from operators.splitter.changes.renames.files_beside import FilesBeside
from operators.splitter.changes.renames.found_files import FileDecision, FoundFile, IndexNotes, names_to_know
from operators.splitter.changes.renames.rename_detector import RenameDetector
from operators.splitter.index.entries import SHORTER, IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexEntries, IndexView
from operators.splitter.index.pending_fingerprints import InFlightFiles, PendingFingerprints
from operators.splitter.scan.listed_files import (
    FilePrefix,
    FileRow,
    InTasks,
    ListedFiles,
    prefixes_of,
    take_fingerprints,
)
from operators.splitter.scan.scan_sources import Clock
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.walk import LAST_STEP

logger = logging.getLogger(__name__)

MAX_NEWEST = 100_000
"""Largest number of files in memory where the newest are read first, 300 bytes each; the rest needs further scans."""

MAX_HELD = 4096
"""Number of files that are held until a scan ends; files of a moved directory are examined in larger numbers."""

_NewOrChanged = tuple[ListedFiles, IndexEntry | None]
"""New files; or a single file that is new or changed, with its entry."""

_Unproven = tuple[ListedFiles, IndexEntries]
"""Files with the sizes and times of versions that were taken, and the entries of these, whose bytes are to be seen."""


class HeldStep(list[ListedFiles]):
    """Files that were held, in the order in which they are taken: the index entry of one depends on those before it."""


class ChangeDetector:
    """Compares scans with the index.

    Args:
        in_tasks: Takes fingerprints that no reader will report; see take_fingerprints().
        is_selected: Whether a location takes the name of a file.

    Attributes:
        has_more: Whether the last scan of changes() left files for one that follows at once.
    """

    def __init__(
        self,
        scanner: Scanner,
        index: FileIndex,
        pending: PendingFingerprints,
        rules: DetectionRules,
        counters: Counter[str],
        clock: Clock,
        in_tasks: InTasks | None,
        storage: StorageContext,
        is_selected: Callable[[str], bool],
    ) -> None:
        roots = storage.roots
        self._scanner = scanner
        self._index = index
        self._rules = rules
        self._counters = counters
        self._clock = clock
        self._in_tasks = in_tasks
        self._pending = pending
        self._renames = RenameDetector(index, pending, roots, in_tasks, clock)
        self._growth = GrowthNotes(clock)
        self._changed = ChangedFiles(rules.on_change, index, counters, self._growth)
        self._fingerprints = NeededFingerprints(rules, counters, in_tasks, self._renames.left)
        self._gone = GoneFiles(index, pending, storage, is_selected, retracts=rules.on_change.deleted == "retract")
        self._beside = FilesBeside(index, is_selected, scanner.read_whole, roots)
        self._moved: set[bytes] = set()
        self._incomplete = 0
        self.has_more = False

    @property
    def awaits_reports(self) -> bool:
        """Whether the newest scan has left files that can be decided when all windows are committed."""
        return self._renames.awaits_reports

    def changes(self) -> Generator[ListedFiles]:
        """Scan once for files to be read, and for versions to be noted.

        New files come in a row where the order allows it; a changed file comes alone. The index must have what one
        scan gave before the next begins. Files that may be known under another name come last.

        Raises:
            StorageError: A file or directory cannot be read; SourceChangedError if the policy fails on a change.
        """
        yield from self._scan_once()
        if not self.has_more:
            self._count_incomplete()

    def _scan_once(self) -> Generator[ListedFiles]:
        """Scan once without counting the files that are left for later scans: the next one may follow at once."""
        self.has_more = False
        self._moved.clear()
        self._gone.begin_scan()
        self._renames.begin_scan()
        self._beside.begin_scan()
        if self._rules.latest_first:
            yield from self._scan_newest()
        else:
            yield from self._completed(self._compare_scan(self._rules))
        yield from self._resolve_held()
        if not (self._incomplete or self._renames.left.has_more):
            # What a file that is left for later was before is not known yet.
            yield from self._gone.left(self._moved)
        self._renames.left.end_scan()
        self._growth.report()
        self.has_more |= self._renames.left.has_more

    def all_changes(self) -> Generator[ListedFiles]:
        """Scan as often as needed to find all changes; see changes()."""
        yield from self._scan_once()
        while self.has_more or self._renames.left.has_waiting:
            if not self.has_more:
                with (pause := threading.Condition()):
                    self._clock.wait_until(pause, self._clock.elapsed_s() + COPY_GRACE_S / 4)
            yield from self._scan_once()
        self._count_incomplete()

    def existing(self) -> Generator[ListedFiles]:
        """Scan once, only to note the files that were not taken, even if they were modified recently."""
        rules = replace(self._rules, completeness=replace(self._rules.completeness, min_age_millis=0))
        steps = self._compare_scan(rules, holds=False)
        yield from self._completed([replace(files, start=0, is_noted=True) for files in step] for step in steps)
        self._count_incomplete()

    def _completed(self, steps: Iterable[Sequence[ListedFiles]]) -> Generator[ListedFiles]:
        """The files of some steps with the fingerprints that they need."""
        for step in steps:
            yield from filter(len, self._fingerprints.complete(step))

    def _count_incomplete(self) -> None:
        if self._incomplete:
            self._counters[names.FILES_DEFERRED] += self._incomplete
            logger.info("files left for later, as they are not complete or not known yet files=%d", self._incomplete)

    def _scan_newest(self) -> Generator[ListedFiles]:
        count = 0
        # Rows, because columns of single files would take twice the memory; keys are unique and decide ties.
        newest: list[tuple[int, bytes, FileRow]] = []
        for step in self._compare_scan(self._rules):
            if isinstance(step, HeldStep):
                yield from step
                continue
            yield from self._completed([[files for files in step if files.is_noted]])
            for row in itertools.chain.from_iterable(files.rows() for files in step if not files.is_noted):
                count += 1
                dated = row.stat.mtime_ns, row.key, row
                if len(newest) < MAX_NEWEST:
                    heapq.heappush(newest, dated)
                else:
                    heapq.heappushpop(newest, dated)
        newest.sort(reverse=True)
        self._remember_emitted(row.listed() for *_, row in newest)
        yield from self._completed(
            [row.listed() for *_, row in newest[at : at + LAST_STEP]] for at in range(0, len(newest), LAST_STEP)
        )
        self.has_more = count > MAX_NEWEST

    def _compare_scan(self, rules: DetectionRules, *, holds: bool = True) -> Iterator[list[ListedFiles]]:
        self._incomplete = 0
        compared = self._comparison(rules, holds=holds)
        for step in in_larger_steps(self._scanner.scan()):
            yield from compared(step)
            if len(self._renames.held) >= MAX_HELD:
                yield from self._compare_beside(rules)
                yield self._resolve_held()
        if holds:
            yield from self._compare_beside(rules, self._gone.found())

    def _compare_beside(
        self, rules: DetectionRules, gone: Iterable[tuple[bytes, bytes, IndexEntry]] = ()
    ) -> Iterator[list[ListedFiles]]:
        """Hold what the held files may have been before a rotation, where no location takes its name."""
        changed = [(file.path, file.name, file.entry) for file in self._renames.held if file.entry is not None]
        if step := self._beside.found([*changed, *gone]):
            yield from self._comparison(replace(rules, completeness=CompletenessRules()))(step)

    def _comparison(
        self, rules: DetectionRules, *, holds: bool = True
    ) -> Callable[[Sequence[ListedFiles]], Iterator[list[ListedFiles]]]:
        """Compares steps, in ascending order, with the index as it is now."""
        now_millis = self._clock.now_millis()
        # Before the view: the view lacks what readers report after it.
        in_flight = self._pending.in_flight()
        view = self._index.view(now_millis)

        def compared(step: Sequence[ListedFiles]) -> Iterator[list[ListedFiles]]:
            index_names = (
                step[0].index_names if len(step) == 1 else [name for files in step for name in files.index_names]
            )
            entries = view.look_up(index_names)
            self._gone.listed(step)
            start = 0
            due: list[_NewOrChanged] = []
            unproven: list[_Unproven] = []
            over: list[ListedFiles] = []
            for files in step:
                end = start + len(files)
                taken = entries.slice(start, end)
                if (moved := np.flatnonzero(taken.fate == Fate.MOVED)).size and holds and files.root.is_local:
                    self._beside.came_back(files.take(moved))
                unchanged = is_unchanged(files, taken)
                over += self._find_over(files, taken, unchanged, now_millis)
                if self._rules.on_change.needs_fingerprints and files.root.is_local:
                    is_other = unchanged & ~taken.waits & is_other_file(files, taken)
                    if is_other.any():
                        is_other &= ~in_flight.has(files.index_names)
                    unproven += self._find_unproven(files, taken, unchanged, is_other)
                    # Of other files that were left out, nothing is known.
                    unchanged &= ~is_other | (taken.fate == Fate.READ)
                due += self._select_changed(files, taken, unchanged, rules, now_millis)
                start = end
            if due or unproven or over:
                discovered_ms = self._clock.now_millis()
                emitted = list(self._compare_contents(due, unproven, in_flight, view if holds else None))
                emitted += over
                if not rules.latest_first:
                    self._remember_emitted(emitted)
                yield [replace(files, discovered_ms=discovered_ms) for files in emitted]

        return compared

    def _select_changed(
        self,
        files: ListedFiles,
        entries: IndexEntries,
        unchanged: npt.NDArray[np.bool_],
        rules: DetectionRules,
        now_millis: int,
    ) -> Iterator[_NewOrChanged]:
        positions = np.flatnonzero(~unchanged)
        if not rules.completeness.is_checked:
            # New files in a row stay together, which is the usual case, unless their names had others.
            known = entries.known[positions] | (entries.fate[positions] == Fate.MOVED)
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

    def _find_over(
        self, files: ListedFiles, entries: IndexEntries, unchanged: npt.NDArray[np.bool_], now_millis: int
    ) -> Iterator[ListedFiles]:
        """The files whose last records have waited for their ends long enough, and are read; with notes."""
        if not (is_over := unchanged & entries.waits).any():
            return
        self._gone.see_waiting([files.index_names[position] for position in np.flatnonzero(is_over)])
        rules, age_millis = self._rules, abs(now_millis - entries.taken_millis)
        is_quiet = (entries.is_rotated != 0) & (age_millis >= rules.rotated_millis)
        is_over &= is_quiet if rules.wait_millis is None else is_quiet | (age_millis >= rules.wait_millis)
        for position in np.flatnonzero(is_over).tolist():
            file, entry = files.slice(position, position + 1), entries[position]
            assert entry is not None
            before = file.index_names[0] + SHORTER
            # What waits after that as well is a part of a compressed file, which only its writer can complete.
            tried = self._index.find([before]).get(before)
            if tried is None or tried.version != entry.version or uncompressed(file.keys[0]) == file.keys[0]:
                yield replace(closing(file, entry), notes=[(before, entry)])

    def _find_unproven(
        self,
        files: ListedFiles,
        entries: IndexEntries,
        unchanged: npt.NDArray[np.bool_],
        is_other: npt.NDArray[np.bool_],
    ) -> Iterator[_Unproven]:
        """The unchanged files that have no fingerprint, and no reader will report one, or that have other inodes."""
        is_read, is_known = entries.fate == Fate.READ, entries.fingerprint != UNKNOWN
        rows = np.flatnonzero(unchanged & ~entries.waits & is_read & ~is_known & (files.size_bytes > 0))
        if len(rows):
            rows = rows[~self._pending.are_pending(files.take(rows).index_names)]
        rows = np.sort(np.concatenate([rows, np.flatnonzero(is_other & is_read & is_known)]))
        if len(rows):
            yield files.take(rows), entries.take(rows)

    def _compare_contents(
        self, due: list[_NewOrChanged], unproven: list[_Unproven], in_flight: InFlightFiles, view: IndexView | None
    ) -> Iterator[ListedFiles]:
        """The files to be read or noted; those that may be known under another name are held.

        Args:
            due: Files that differ from the versions that were taken.
            view: The index; None where nothing is held.
        """
        # What happened to the version that was taken decides how much is read of this one.
        too_early = in_flight.among(files.index_names[0] for files, entry in due if entry is not None)
        self._incomplete += len(too_early)
        due = [(files, entry) for files, entry in due if entry is None or files.index_names[0] not in too_early]
        changed = [(files, entry) for files, entry in due if entry is not None]
        begun = self._changed.begun(changed)
        wanted = [taken_prefix(files, entry) for files, entry in changed if looks_appended(entry, files.stats[0])]
        wanted += [prefix for prefix, _ in begun.values()]
        wanted += [prefix for files, _ in unproven for prefix in prefixes_of(files)]
        prints = dict(zip(wanted, take_fingerprints(wanted, self._in_tasks), strict=True))
        for files, entries in unproven:
            current = np.array([prints[prefix] for prefix in prefixes_of(files)])
            is_same = (current == entries.fingerprint) | (entries.fingerprint == UNKNOWN)
            # A file that cannot be opened has no fingerprint, and nothing is noted for it.
            if len(noted := np.flatnonzero(is_same & (current != UNKNOWN))):
                yield replace(files, fingerprints=current.tolist(), is_noted=True).take(noted)
            due += self._select_changed(files, entries, is_same, self._rules, self._clock.now_millis())
        rewritten = {name for name, (prefix, fingerprint) in begun.items() if prints[prefix] != fingerprint}
        yield from self._emit_or_hold(due, rewritten, prints, view)

    def _emit_or_hold(
        self, due: list[_NewOrChanged], rewritten: set[bytes], prints: Mapping[FilePrefix, int], view: IndexView | None
    ) -> Iterator[ListedFiles]:
        """The files of due that are not held; see _compare_contents().

        Args:
            rewritten: Names of files that no longer begin with the bytes that were read of them.
        """
        for files, entry in due:
            name = files.root.index_name(files.keys[0])
            if entry is not None and name in rewritten:
                entry = entry._replace(fate=Fate.REWRITTEN)
            elif entry is not None and (back := self._changed.put_back(files, entry)) is not None:
                yield back
                continue
            if entry is not None and (view is None or not files.root.is_local):
                yield self._changed.judge(files, entry, prints.get(taken_prefix(files, entry), UNKNOWN))
            elif view is None or not files.root.is_local:
                yield files
            elif entry is None:
                if self._beside.waits_for(name):
                    self._renames.held.append(FoundFile(files, None))
                elif len(unknown := self._renames.hold_known(files, view)):
                    yield unknown
            elif files.is_directory(0):
                yield files
            elif is_tail(files, entry, prints):
                notes = [(name + SHORTER, entry)] if entry.fate is Fate.READ else []
                yield replace(self._changed.judge(files, entry, entry.fingerprint), notes=notes)
            else:
                self._renames.held.append(FoundFile(files, entry))

    def _resolve_held(self) -> HeldStep:
        decisions = self._beside.decided(self._renames.decide_held())
        step: list[ListedFiles] = []
        known = [decision for decision in decisions if decision.answer not in (Continuing.LATER, Continuing.AGAIN)]
        self._incomplete += len(decisions) - len(known)
        decided = self._still_present(known)
        read = self._find_read_versions(decided)
        index_notes = IndexNotes(decided, read, self._index.find(names_to_know(read)) if read else {})
        discovered_ms = self._clock.now_millis()

        def rank(decision: FileDecision) -> tuple[bool, bool]:
            # A log comes after those beside it: nothing is looked for there once it is taken, as where a run dies then.
            return decision.answer is not Continuing.CONTINUES, not self._beside.is_beside(decision.file.name)

        for decision in sorted(decided, key=rank):
            files = self._apply(decision)
            entry, version = decision.file.entry, decision.version
            self._moved |= set() if version is None else {version.taken_name}
            replaced = entry if decision.answer is Continuing.CHANGED else None
            is_out = replaced is not None and self._changed.takes_out(files, replaced)
            if replaced is not None and not is_out and replaced.waiting_bytes:
                lost = closing(gone_version(files.root, files.keys[0], replaced), replaced)
                step.append(replace(lost, discovered_ms=discovered_ms))
            replaces = version is not None or not files.continuation.content_start
            notes = index_notes.of(decision, replaces=replaces, is_out=is_out)
            self._renames.known.add(np.array([entry.identity for _, entry in notes], np.int64))
            step.append(replace(files, notes=notes, discovered_ms=discovered_ms))
        self._remember_emitted(step)
        return HeldStep(step)

    def _still_present(self, decisions: Sequence[FileDecision]) -> list[FileDecision]:
        """The decisions about files that still exist, with the fingerprints that are needed before they are taken."""
        step = []
        for decision in decisions:
            files, version = decision.file.files, decision.version
            if version is not None and decision.is_read:
                prints = [] if decision.is_content else [version.entry.fingerprint]
                files = replace(files, is_noted=True, fingerprints=prints)
            step.append(files)
        marked = zip(decisions, self._fingerprints.complete(step), strict=True)
        return [replace(decision, file=replace(decision.file, files=files)) for decision, files in marked if len(files)]

    def _find_read_versions(self, decisions: Sequence[FileDecision]) -> dict[bytes, IndexEntry]:
        """The parts read of versions that are replaced or have moved, by name; for a gone tail, the part before it."""
        taken = {decision.file.name: decision.file.entry for decision in decisions if decision.file.entry is not None}
        taken |= {
            decision.version.name: decision.version.entry for decision in decisions if decision.version is not None
        }
        before = self._changed.read_before({name: entry for name, entry in taken.items() if entry.fate.is_gone})
        return taken | before

    def _remember_emitted(self, emitted: Iterable[ListedFiles]) -> None:
        for files in emitted:
            if files.root.is_local:
                self._renames.known.add(files.stats.file_ids)

    def _apply(self, decision: FileDecision) -> ListedFiles:
        file, version = decision.file, decision.version
        if decision.answer is Continuing.CHANGED:
            assert file.entry is not None
            return self._changed.judge(file.files, file.entry, UNKNOWN)
        if version is None:
            # It has the name of a rotation; nothing is appended for long to what is compressed, or beside a later log.
            return replace(file.files, is_rotated=file.is_compressed or self._beside.is_beside(file.name))
        self._counters[names.changed("renamed")] += 1
        logger.info(
            "file was taken before, and has moved since url=%s before=%s bytes=%d",
            redacted(file.files.url(0)),
            redacted(os.fsdecode(version.path)),
            version.entry.read_until,
        )
        files, entry = replace(file.files, is_rotated=True), version.entry
        if decision.is_read:
            return files
        moved = files.continued(moved_from=os.fsdecode(version.path))
        if decision.has_more:
            # A renamed file may still be written to: if its last record waits, a later scan finds it unchanged. A
            # compressed file may be incomplete: its reader knows whether the log in it is over.
            is_quiet = decision.is_copy or self._is_quiet(file.stat.mtime_ns // 1_000_000)
            moved = replace(moved, is_over=is_quiet and not decision.is_content)
            return self._changed.treat(moved, version.name, entry, "appended", is_content=decision.is_content)
        if decision.is_copy or entry.fate is not Fate.READ or self._is_quiet(entry.taken_millis):
            return self._changed.rest(moved, version.name, entry, is_content=decision.is_content)
        return replace(files, is_noted=True, fingerprints=[entry.fingerprint], waiting_bytes=entry.waiting_bytes)

    def _is_quiet(self, since_millis: int) -> bool:
        return abs(self._clock.now_millis() - since_millis) >= self._rules.rotated_millis
