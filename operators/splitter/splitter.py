"""Finds files and cuts them into blocks: the head of most apps."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.control import InputEstimate, InputOperator, WindowLimits
from dagflow.api.properties import Count, Millis, PartOfPath, Paths, Size, Tuning, placeholders
from dagflow.api.regular_expressions import Pattern
from dagflow.errors import MissingError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from operators.files.metadata import NO_CONTINUATION, FileFingerprints, ReadPart
from operators.splitter.block_cutter import CutterState, OpenFile, estimated
from operators.splitter.block_splitter import BlockSplitter
from operators.splitter.changes.change_detection import ChangeDetector
from operators.splitter.changes.detection_rules import (
    ROTATED_MILLIS,
    CompletenessRules,
    DetectionRules,
    OnChange,
    SeenRetention,
    UnterminatedWait,
    wait_millis_of,
)
from operators.splitter.explanation import InputExplanation
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.pending_fingerprints import FingerprintState
from operators.splitter.index.taken_files import TakenFiles, TakenState
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import find_roots, missing_root
from operators.splitter.scan.scan_sources import Clock, SingleScan, TimeBasedDirectoryScanner, watched
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection, reads_all_in


@frozen
class SplitterState:
    """State of FileSplitterInput.

    Attributes:
        is_first_scan_done: Whether everything that the first scan found was taken.
    """

    cutter: CutterState
    taken: TakenState
    is_first_scan_done: bool


class FileSplitterInput(BlockSplitter, InputOperator):
    """Finds files and cuts them into blocks.

    Guarantee: each version of each file is announced once, and each of its blocks emitted once, even across
    restarts. A run to completion ends with one scan; a run that follows scans forever.
    """

    state_type: ClassVar[type | None] = SplitterState
    event_state_type: ClassVar[type | None] = FingerprintState

    files: Annotated[Paths, Field(description="files, directories and globs to read, or one of them")]
    recursive: Annotated[bool, Field(description="whether directories below a directory are scanned")] = True
    file_pattern: Annotated[
        Pattern | None, Field(description="regular expression for the whole name of files to read; null: any")
    ] = None
    ignore_pattern: Annotated[
        Pattern | None, Field(description="regular expression for the whole name of files and directories to skip")
    ] = None
    archives: Annotated[
        Literal["open", "whole"],
        Field(description="zip and tar archives: read their members, each as a file, or the archives as files"),
    ] = "open"
    listing: Annotated[
        Literal["driver", "sharded"],
        Tuning(),
        Field(description="what lists local directories ahead of the scan: threads of the driver, or tasks of the run"),
    ] = "driver"
    scan_interval_millis: Annotated[
        Millis, Tuning(), Field(description="while following: time from one scan to the next")
    ] = 5000
    batch_millis: Annotated[
        Millis,
        Tuning(),
        Field(description="while following: how long small files may wait for their batch to be filled"),
    ] = 0
    follow: Annotated[bool, Field(description="whether to keep watching for new files")] = False
    existing: Annotated[
        Literal["process", "ignore"],
        Field(description="while following: what to do with files that are there at the first scan"),
    ] = "process"
    settle_millis: Annotated[Millis, Field(description="how long a file must not have been modified")] = 0
    done_marker: Annotated[
        PartOfPath,
        AfterValidator(placeholders("name")),
        Field(description="name of the marker file that shows that the file {name} is complete"),
    ] = ""
    unterminated: Annotated[
        Literal["keep", "wait"] | UnterminatedWait | None,
        Field(
            description="a last record without delimiter: keep it as it is, wait for its end, or for {wait_millis: n}; "
            "null: wait for a minute if files are followed and tailed, and neither settle_millis nor done_marker shows "
            "when a file is complete"
        ),
    ] = None
    max_files_per_window: Annotated[
        Count | None, Tuning(), Field(ge=1, description="maximum files of a window; null: no limit")
    ] = None
    max_bytes_per_window: Annotated[
        Size | None, Tuning(), Field(ge=1, description="maximum bytes of a window; at least one block; null: no limit")
    ] = None
    latest_first: Annotated[bool, Field(description="newest files first; otherwise in order of path")] = False
    on_change: Annotated[OnChange, Field(description="what to do with files that change after they were taken")] = (
        OnChange()
    )
    retain_seen: Annotated[
        Literal["all"] | SeenRetention, Field(description="how long a taken file is remembered: all, or {millis: n}")
    ] = "all"

    _taken: TakenFiles
    _detector: ChangeDetector
    _source: SingleScan | TimeBasedDirectoryScanner | None
    _scan_counters: Counter[str]
    _batch_root: str
    # The first scan has ended; everything that it found was taken; versions were noted in this window.
    _has_scanned: bool
    _is_first_scan_done: bool
    _has_noted: bool
    _has_news: bool

    def check_properties(self) -> None:
        """Refuse a marker that does not name another file in the same directory."""
        if "/" in self.done_marker or self.done_marker == "{name}":
            raise ValueError(f"done_marker must name another file in the same directory, got {self.done_marker!r}")

    def begin_preview(self, file: str | None) -> None:
        """Scan once for the files that exist now; a requested file counts as complete."""
        super().begin_preview(file)
        self.unterminated = "keep"
        self.follow, self.existing = False, "process"
        if file is not None:
            self.files = [file]
            self.settle_millis, self.done_marker = 0, ""

    def use_clock(self, clock: Clock) -> None:
        self._clock = clock

    def prepare(self, run: RunPreparation) -> None:
        """Name the locations that tasks will read; a missing one is reported, or waited for, when it is scanned."""
        for named in self.files:
            is_there = True
            try:
                root = find_roots(named, run.storage)[-1]
            except MissingError:
                # The location may appear while the run follows, and be created by the run itself.
                root, is_there = missing_root(named, run.storage), False
            takes_in = functools.partial(reads_all_in, root, self._selection())
            glob = absolute(named) if root.kind == "glob" else ""
            run.reads(root.lister.url(root.base), takes_in, glob=glob, is_there=is_there)

    def setup(self, context: OperatorContext) -> None:
        control = context.control
        self._is_following = self.follow or (control is not None and control.follow)
        self._start_cutter(context, self.batch_millis, may_grow=self._may_grow)
        retain_millis = self.retain_seen.millis if isinstance(self.retain_seen, SeenRetention) else None
        index = FileIndex("" if control is None else control.state_url, retain_millis, context.storage)
        self._taken = TakenFiles(index, self.files, context.storage)
        # Separate from the context's counters, which the driver reads while the scanner's thread counts.
        self._scan_counters = Counter()
        self._detector = self._make_detector()
        self._source = None
        self._batch_root = ""
        self._has_scanned = self._is_first_scan_done = self._has_noted = self._has_news = False

    def _make_detector(self) -> ChangeDetector:
        control = self._context.control
        in_tasks = None if control is None else control.in_tasks

        scanner = Scanner(
            self.files,
            self._selection(),
            self._scan_counters,
            storage=self._context.storage,
            tolerates_missing=self._is_following,
            in_tasks=in_tasks if self.listing == "sharded" else None,
            archive_tasks=in_tasks,
            written=() if control is None else control.output_locations,
        )
        waits = self._wait_millis, ROTATED_MILLIS if self._is_following else 0
        rules = DetectionRules(self.on_change, self._completeness(), self.latest_first, *waits, self.block_size)
        taken = self._taken
        storage = self._context.storage
        names = InputExplanation(self.files, self._selection(), CompletenessRules(), storage, 0)
        counters = self._scan_counters
        return ChangeDetector(
            *(scanner, taken.index, taken.pending, rules, counters, self._clock, in_tasks, storage),
            is_selected=names.selects,
        )

    def estimate(self, within_s: float, storage: StorageContext | None = None) -> InputEstimate:
        """The input that a first run would read.

        Raises:
            StorageError: A location cannot be listed, or a file cannot be examined; MissingError if a location does not
                exist.
        """
        archives = "estimated" if self.archives == "open" else self.archives
        selection = replace(self._selection(), archives=archives)
        scanner = Scanner(self.files, selection, storage=storage, tolerates_missing=self.follow)
        return estimated(scanner.scan(), self.block_size, self._clock, within_s, self.cut_compressed)

    def explain_input(self, url: str, storage: StorageContext) -> tuple[bool, str]:
        """Whether a scan now would take a file, and which property decides."""
        rules = self._selection(), self._completeness()
        return InputExplanation(self.files, *rules, storage, self._clock.now_millis()).explain(url)

    def when_taken(self, url: str, storage: StorageContext, state: SplitterState, state_url: str) -> int:
        """When the newest version of a file was taken, by a lookup in the sorted runs."""
        index = FileIndex(state_url, storage=storage)
        index.restore(state.taken.index)
        name = os.fsencode(storage.roots.shorten(url))
        entry = index.find([name]).get(name)
        index.close()
        return 0 if entry is None else entry.taken_millis

    def window_limits(self) -> WindowLimits:
        return WindowLimits(self.blocks_threshold, self.max_files_per_window, self.max_bytes_per_window)

    def wants_to_follow(self) -> bool:
        return self.follow

    @property
    def corrects(self) -> bool:
        return self.on_change.corrects

    @property
    def _wait_millis(self) -> int | None:
        is_complete = self.settle_millis > 0 or self.done_marker != ""
        may_grow = self._is_following and self.on_change.appended == "tail" and not is_complete
        return wait_millis_of(self.unterminated, may_grow=may_grow)

    @property
    def _may_grow(self) -> bool:
        """Whether a file may grow while it is read, so that an unterminated last record waits for its end."""
        return self._wait_millis != 0

    def _completeness(self) -> CompletenessRules:
        return CompletenessRules(self.settle_millis, self.done_marker)

    def _selection(self) -> Selection:
        return Selection(self.recursive, self.file_pattern, self.ignore_pattern, self.archives)

    def begin_window(self, window_id: int) -> None:
        self._cutter.begin_window(self.window_limits())
        self._taken.pending.begin_window(window_id)
        self._has_noted = False

    def emit_tuples(self) -> None:
        """Emit files and blocks as far as the window allows; while following, only files that a scan has found by now.

        Raises:
            StorageError: A file or directory cannot be read; MissingError if a location does not exist;
                SourceChangedError where a file changed and on_change says so.
        """
        source = self._started()
        self._cutter.give_up(self._taken.pending.gone_unfinished())
        # Read first: files that a scan offered before it ended are then in the queue, or taken.
        has_scanned, was_done = self._has_scanned, self._is_first_scan_done
        while self._cutter.cut():
            files = source.peek()
            if files is None and self._may_scan_again():
                source = self._source = SingleScan(self._detector.all_changes())
                files = source.peek()
            if files is None:
                self._is_first_scan_done = self._is_first_scan_done or has_scanned
                break
            if not (count := self._take(files)):
                break
            source.pop(count)
        self._cutter.flush(may_wait=self._is_following)
        self._taken.pending.end_window(self._cutter.unfinished)
        self._context.counters.update(self._counted_since())
        self._has_news = self._has_noted
        if self._is_following and self.existing == "ignore":
            self._has_news = self._is_first_scan_done and (self._has_noted or not was_done)

    def _may_scan_again(self) -> bool:
        """Whether the scan of a run to completion has left files that can be decided now.

        What a rotated log is may show only when the windows have read what it was before.
        """
        return not self._is_following and self._detector.awaits_reports and not self._taken.pending.has_in_flight

    def unemitted_bytes(self) -> int:
        """Bytes of the rest of the file that is being cut, and of the files that a scan has found by now."""
        return super().unemitted_bytes() + (0 if self._source is None else self._source.queued_bytes)

    def has_news(self) -> bool:
        """Whether versions were noted: ignored changes, or a complete first scan whose files are not read."""
        return self._has_news

    @property
    def wants_source_events(self) -> bool:
        """Always true, whatever the policy for changes: files that could not be read are reported as well."""
        return True

    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> None:
        read = [event for event in events if isinstance(event, FileFingerprints)]
        self._taken.pending.report(window_id, read, [event for event in events if isinstance(event, ReadPart)])

    def event_state(self) -> FingerprintState:
        return self._taken.pending.reports.state()

    def restore_event_state(self, state: FingerprintState) -> None:
        self._taken.pending.reports.restore(state)

    def _started(self) -> SingleScan | TimeBasedDirectoryScanner:
        # Not in setup: which files were taken before is known only after restore.
        if self._source is not None:
            return self._source
        if not self._is_following:
            self._source = SingleScan(self._detector.all_changes())
            return self._source
        control = self._context.control
        scan = self._scan if control is None else functools.partial(watched, self._scan, control.watched)
        scanner = TimeBasedDirectoryScanner(scan, self.scan_interval_millis, self._clock, self._scan_counters)
        # The first scan of the thread may ask for the next one.
        self._source = scanner
        scanner.start()
        return scanner

    def _scan(self) -> Iterator[ListedFiles]:
        if self.existing == "ignore" and not self._has_scanned:
            yield from self._detector.existing()
        else:
            yield from self._detector.changes()
            if self._detector.has_more:
                # The next scan begins when these files are taken, and looks for the rest.
                self.scan_now()
                return
        self._has_scanned = True

    def _take(self, files: ListedFiles) -> int:
        """Take the first files; returns how many, 0 if the window is full."""
        taken: int | None = None
        if files.is_noted:
            taken = len(files)
            self._has_noted = True
        elif not files.start and files.continuation == NO_CONTINUATION:
            self._enter_root(files.root.lister.url(files.root.base))
            taken = self._cutter.begin_small_files(files, self.block_size, files.relative_path)
        count = int(self._begin(files)) if taken is None else taken
        if count:
            self._has_noted = self._has_noted or bool(files.notes)
            self._taken.record(files.slice(0, count), self._clock.now_millis())
        return count

    def _enter_root(self, url: str) -> None:
        if (root := self._context.storage.roots.name_of(url)) != self._batch_root:
            # A batch is in one named root, so that it can be found after the root was moved.
            self._cutter.flush()
            self._batch_root = root

    def _begin(self, files: ListedFiles) -> bool:
        """Begin the first file."""
        url, discovered_ms = files.url(0), files.discovered_ms
        relative_path = files.relative_path(0) if self._cutter.announces else ""
        if files.is_directory(0):
            return self._cutter.announce_directory(url, relative_path, self.block_size, discovered_ms)
        self._enter_root(url)
        version = files.stats[0]
        is_begun = files.start > 0 or files.continuation.content_start > 0
        continuation = replace(
            files.continuation,
            is_open=self._may_grow and not (version.etag or files.is_over),
            fingerprint=files.fingerprint(0),
            tail_start=files.start - files.waiting_bytes,
            resumes=is_begun and not files.begins_at_cut,
        )
        # What leaves the output is one block: nothing of it is read.
        is_retracted = continuation.is_gone and continuation.supersedes is not None
        block_size = max(version.size_bytes, 1) if is_retracted else self.block_size
        file = OpenFile(url, version, block_size, files.start, discovered_ms, continuation)
        return self._cutter.begin(file, relative_path)

    def _counted_since(self) -> Counter[str]:
        counters = self._context.counters
        return Counter({name: count - counters[name] for name, count in list(self._scan_counters.items())})

    def without_files(self) -> Sequence[str]:
        return [] if self._taken.has_any() else [redacted(location) for location in self.files]

    def scan_now(self) -> None:
        """While following, scan without waiting for the interval to pass."""
        if isinstance(self._source, TimeBasedDirectoryScanner):
            self._source.scan_now()

    def wait_for_scans(self, count: int, timeout_s: float) -> bool:
        """While following, wait until that many scans are complete; for tests."""
        source = self._started()
        return isinstance(source, TimeBasedDirectoryScanner) and source.wait_for_scans(count, timeout_s)

    def teardown(self) -> None:
        if self._source is not None:
            self._source.stop()
        self._taken.index.close()

    def snapshot(self) -> SplitterState:
        """How far files are cut, and which were taken."""
        return SplitterState(self._cutter.snapshot(), self._taken.snapshot(), self._is_first_scan_done)

    def restore(self, state: SplitterState) -> None:
        """Take back a snapshot.

        Raises:
            JournalError: A part of the index is missing, or its names of files differ from those of the app's roots.
        """
        self._cutter.restore(state.cutter)
        self._taken.restore(state.taken, self._cutter.unfinished)
        self._has_scanned = self._is_first_scan_done = state.is_first_scan_done
