"""The splitters: operators that say which bytes of which files are to be read."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.control import (
    ControlOperator,
    Estimator,
    InputEstimate,
    InputOperator,
    SourceEventListener,
    WindowLimits,
)
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Millis, PartOfPath, Paths, Size
from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.roots import expanded, root_of, shortened
from operators.files.compression import CUT_SUFFIXES, UnitSuffix
from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion
from operators.files.source_events import FileFingerprints
from operators.splitter.batching import (
    DEFAULT_PACK_BYTES,
    DEFAULT_PACK_FILES,
    BatchRules,
    PackBytes,
    PackFiles,
    PackMillis,
    Packs,
    SmallFileBatcher,
)
from operators.splitter.block_cutter import DEFAULT_BUDGET, BlockCutter, WindowQuota, estimated
from operators.splitter.change_detection import Candidate, ChangeDetector, OneScan, Rules
from operators.splitter.change_policy import OnChange
from operators.splitter.clock import Clock, SystemClock
from operators.splitter.index.file_index import FileIndex, Seen
from operators.splitter.index.fingerprinter import EMPTY, Fingerprinter
from operators.splitter.index.index_locations import IndexLocations, require_same_names
from operators.splitter.index.pending_fingerprints import Heard, PendingFingerprints
from operators.splitter.scan.listed_files import FoundFiles
from operators.splitter.scan.periodic_scan import TimeBasedDirectoryScanner
from operators.splitter.scan.roots import find_root
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.sharding import ShardedLister

BlockSize = Annotated[Size, Field(ge=1, description="cut interval; blocks begin at its multiples")]
CutCompressed = Annotated[
    tuple[UnitSuffix, ...],
    Field(description="how names of compressed files end that are cut where they consist of several units"),
]
Threshold = Annotated[Count | None, Field(ge=1, description="blocks per window at most; null: the engine's choice")]


class FileSplitterBase(ControlOperator):
    """Cuts the files that an upstream operator names into blocks.

    Guarantee: each tuple is cut exactly once, as the version that the file has when its turn comes. A name
    that arrives twice is cut twice.
    """

    block_size: BlockSize = 64 << 20
    blocks_threshold: Threshold = None
    pack_bytes: PackBytes = DEFAULT_PACK_BYTES
    pack_files: PackFiles = DEFAULT_PACK_FILES
    packs: Packs = "divided"
    cut_compressed: CutCompressed = CUT_SUFFIXES

    input = InputPort(FileInfo)
    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _context: OperatorContext
    _cutter: BlockCutter
    _waiting: deque[FileInfo]

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        packer = SmallFileBatcher(BatchRules(self.pack_bytes, self.pack_files, 0, self.packs == "whole"), SystemClock())
        outputs = self.files_metadata_output, self.blocks_metadata_output
        self._cutter = BlockCutter(*outputs, context, packer, self.cut_compressed)
        self._waiting = deque()

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives."""
        self._cutter.allowance = _allowance(self._context, self.blocks_threshold)

    @input.each
    def take(self, file: FileInfo) -> None:
        """Remember a file; it is cut at the end of this window or of a later one."""
        self._waiting.append(file)

    def end_window(self) -> None:
        """Cut what waits, as far as the window allows.

        Raises:
            StorageError: A file cannot be examined; MissingError where there is none.
        """
        while self._cutter.cut() and self._waiting:
            if not self._begin(self._waiting[0]):
                break
            self._waiting.popleft()
        self._cutter.flush()

    def _begin(self, file: FileInfo) -> bool:
        # The location is taken literally: what an operator names is no glob.
        root = find_root(file.url, is_literal=True)
        url = root.lister.url(root.base)
        name = file.relative_path or url.rsplit("/", 1)[-1]
        if root.kind == "directory":
            return self._cutter.announce_directory(url, name, self.block_size)
        stat = root.lister.stat(root.base)
        version = FileVersion(0) if stat is None else FileVersion(stat.size_bytes, stat.mtime_ns, stat.etag)
        return self._cutter.begin(url, name, version, self.block_size)

    def unemitted_bytes(self) -> int:
        """The rest of the file that is being cut; how long those are that wait is not known."""
        return self._cutter.rest_bytes

    def snapshot(self) -> dict[str, Any]:
        """What is cut, and what waits to be cut."""
        return {
            "cut": self._cutter.snapshot(),
            "waiting": [(shortened(file.url), file.relative_path) for file in self._waiting],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._cutter.restore(state["cut"])
        self._waiting = deque(FileInfo(expanded(url), name) for url, name in state["waiting"])


class Retention(BaseModel):
    """For how long it is remembered that a file was taken.

    A file that still lies there after that is read again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    millis: Annotated[Millis, Field(description="time since the file was taken")]


class FileSplitterInput(InputOperator, Estimator, SourceEventListener):
    """Finds files and cuts them into blocks.

    Guarantee: each version of each file is announced once, and each of its blocks emitted once, whatever
    restarts come between. A run to completion ends with one scan; a run that follows scans for ever.
    """

    files: Annotated[Paths, Field(description="files, directories and globs to read, or one of them")]
    recursive: Annotated[bool, Field(description="whether directories below a directory are scanned")] = True
    file_pattern: Annotated[
        re.Pattern[str] | None, Field(description="regular expression for the whole name of files to read; null: any")
    ] = None
    ignore_pattern: Annotated[
        re.Pattern[str] | None, Field(description="regular expression for the whole name of what is passed over")
    ] = None
    listing: Annotated[
        Literal["driver", "sharded"],
        Field(description="who lists local directories: the driver, or tasks, several directories at a time"),
    ] = "driver"
    scan_interval_millis: Annotated[Millis, Field(description="while following: time from one scan to the next")] = 5000
    block_size: BlockSize = 64 << 20
    blocks_threshold: Threshold = None
    pack_bytes: PackBytes = DEFAULT_PACK_BYTES
    pack_files: PackFiles = DEFAULT_PACK_FILES
    packs: Packs = "divided"
    cut_compressed: CutCompressed = CUT_SUFFIXES
    pack_millis: PackMillis = 0
    follow: Annotated[bool, Field(description="whether to go on watching for new files")] = False
    existing: Annotated[
        Literal["process", "ignore"],
        Field(description="while following: what to do with files that are there at first"),
    ] = "process"
    settle_millis: Annotated[Millis, Field(description="how long a file must not have been modified")] = 0
    done_marker: Annotated[
        PartOfPath, Field(description="name of the file that says that one is complete; {name} is the name of that one")
    ] = ""
    unterminated: Annotated[
        Literal["keep", "wait"] | None,
        Field(
            description="a last record without delimiter: keep it as it is, or wait for its end; null: wait where "
            "files are followed and tailed, and neither settle_millis nor done_marker says when one is complete"
        ),
    ] = None
    max_files_per_window: Annotated[Count | None, Field(ge=1, description="files per window; null: no limit")] = None
    max_bytes_per_window: Annotated[
        Size | None, Field(ge=1, description="bytes per window, but one block always; null: no limit")
    ] = None
    latest_first: Annotated[bool, Field(description="newest files first; otherwise in order of path")] = False
    on_change: Annotated[OnChange, Field(description="what to do with files that change after they were taken")] = (
        OnChange()
    )
    retain_seen: Annotated[
        Literal["all"] | Retention, Field(description="how long a taken file is remembered: all, or {millis: n}")
    ] = "all"

    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _clock: Clock = SystemClock()
    _context: OperatorContext
    _cutter: BlockCutter
    _index: FileIndex
    _places: IndexLocations
    _awaited: PendingFingerprints
    _discovery: ChangeDetector
    _source: OneScan | TimeBasedDirectoryScanner | None
    _scanned: Counter[str]
    _has_begun: bool
    _is_noted: bool
    _has_noted: bool
    _has_news: bool
    _root: str

    def check_properties(self) -> None:
        """Refuse a marker that is no name."""
        if "/" in self.done_marker or self.done_marker == "{name}":
            raise ValueError(f"done_marker must name another file in the same directory, got {self.done_marker!r}")

    def use_clock(self, clock: Clock) -> None:
        """Tell the time by another clock; called before setup."""
        self._clock = clock

    def prepare(self, run: RunPreparation) -> None:
        """Name what tasks will read; what is not there by now is complained of, or waited for, when it is scanned."""
        for named in self.files:
            with contextlib.suppress(MissingError):
                root = find_root(named)
                run.reads(root.lister.url(root.base), functools.partial(self._selection().takes_all_in, root))

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        control = context.control
        self._is_following = self.follow or (control is not None and control.follow)
        full = BatchRules(self.pack_bytes, self.pack_files, self.pack_millis, self.packs == "whole")
        packer = SmallFileBatcher(full, self._clock, waits=self._waits)
        outputs = self.files_metadata_output, self.blocks_metadata_output
        self._cutter = BlockCutter(*outputs, context, packer, self.cut_compressed)
        self._is_noted = self._has_noted = self._has_news = False
        self._root = ""
        self._places = IndexLocations.of(self.files)
        retain_millis = self.retain_seen.millis if isinstance(self.retain_seen, Retention) else None
        self._index = FileIndex("" if control is None else control.state_url, retain_millis)
        # Counted apart, because the scanner's thread must not touch what the driver is reading.
        self._scanned = Counter()
        in_tasks = None if control is None else control.in_tasks
        sharded = None
        if in_tasks is not None and self.listing == "sharded":
            sharded = functools.partial(ShardedLister, in_tasks)  # one for each root
        scanner = Scanner(
            self.files, self._selection(), self._scanned, tolerates_missing=self._is_following, sharded=sharded
        )
        self._awaited = PendingFingerprints(self._index)
        rules = Rules(self.on_change, self.settle_millis, self.done_marker, self.latest_first, self._waits)
        looked = Fingerprinter(in_tasks)
        self._discovery = ChangeDetector(scanner, self._index, rules, self._scanned, self._clock, looked, self._awaited)
        self._source = None
        self._has_begun = False

    def estimate(self, within_s: float, storage: StorageContext | None = None) -> InputEstimate:
        """What there is to be read, as if nothing had been; see Estimator.

        Raises:
            StorageError: Something cannot be listed or examined; MissingError where a location does not exist.
        """
        found = Scanner(self.files, self._selection(), tolerates_missing=self.follow).scan()
        return estimated(found, self.block_size, self._clock, within_s, self.cut_compressed)

    def window_limits(self) -> WindowLimits:
        """The limits that the app sets to a window."""
        return WindowLimits(self.blocks_threshold, self.max_files_per_window, self.max_bytes_per_window)

    def wants_to_follow(self) -> bool:
        """Whether the app says so."""
        return self.follow

    @property
    def _waits(self) -> bool:
        if self.unterminated is not None:
            return self.unterminated == "wait"
        is_told = self.settle_millis > 0 or self.done_marker != ""
        return self._is_following and self.on_change.appended == "tail" and not is_told

    def _selection(self) -> Selection:
        return Selection(self.recursive, self.file_pattern, self.ignore_pattern)

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives."""
        self._cutter.allowance = _allowance(
            self._context, self.blocks_threshold, self.max_files_per_window, self.max_bytes_per_window
        )
        self._awaited.begin_window(window_id, self._cutter.held)
        self._has_noted = False

    def emit_tuples(self) -> None:
        """Emit files and blocks as far as the window allows; while following only what a scan has found by now.

        Raises:
            StorageError: Something cannot be listed or examined; MissingError where a location does not exist;
                SourceChangedError where a file changed and on_change says so.
        """
        source = self._started()
        # Asked first: what the first scan offered before it ended is then in the queue, or taken.
        has_begun, was_noted = self._has_begun, self._is_noted
        while self._cutter.cut():
            found = source.peek()
            if found is None:
                self._is_noted = self._is_noted or has_begun
                break
            if not (taken := self._take(found)):
                break
            source.pop(taken)
        self._cutter.flush(may_wait=self._is_following)
        self._context.counters.update(self._scanned_since())
        passes_over = self._is_following and self.existing == "ignore"
        self._has_news = self._is_noted and (self._has_noted or not was_noted) if passes_over else self._has_noted

    def unemitted_bytes(self) -> int:
        """The rest of the file that is being cut, and the files that a scan has found by now."""
        return self._cutter.rest_bytes + (0 if self._source is None else self._source.found_bytes)

    def has_news(self) -> bool:
        """Whether files were noted: changes to be reported once, or a first scan, complete now, that is never read."""
        return self._has_news

    @property
    def wants_source_events(self) -> bool:
        """Whether it matters what files begin and end with."""
        return self.on_change.tells_appends

    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> None:
        """Remember what readers saw at the ends of files."""
        self._awaited.hear(window_id, [event for event in events if isinstance(event, FileFingerprints)])

    def event_state(self) -> Heard:
        """What no snapshot may hold yet of what readers told."""
        return self._awaited.event_state()

    def restore_event_state(self, state: Heard) -> None:
        """Take back what heard gave."""
        self._awaited.restore_event_state(state)

    def _started(self) -> OneScan | TimeBasedDirectoryScanner:
        # Not in setup: what was taken before is known only when restore has been called.
        if self._source is not None:
            return self._source
        if not self._is_following:
            self._source = OneScan(self._discovery.stretches())
            return self._source
        scanner = TimeBasedDirectoryScanner(self._scan, self.scan_interval_millis, self._clock, self._scanned)
        # Its first scan may ask for the next one.
        self._source = scanner
        scanner.start()
        return scanner

    def _scan(self) -> Iterator[Candidate]:
        if self.existing == "ignore" and not self._has_begun:
            yield from self._discovery.everything()
        else:
            yield from self._discovery.candidates()
            if self._discovery.has_more:
                # What was offered waits to be taken; the index knows it when the next scan looks for the rest.
                self.scan_now()
                return
        self._has_begun = True

    def _take(self, found: Candidate | FoundFiles) -> int:
        """How many files, or directories, were taken, the first ones; 0 where the window is full."""
        if isinstance(found, Candidate):
            return int(self._begin(found))
        if self._cutter.announces or self._waits:
            return int(self._begin(Candidate.of(found, 0)))
        self._enter(found.root.lister.url(found.root.base))
        tells = self.on_change.tells_appends and found.root.is_local
        count = self._cutter.pack_files(found, self.block_size)
        if not count:
            # The window is full, or the next file is none of the small ones.
            return int(self._begin(Candidate.of(found, 0)))
        taken = found.slice(0, count)
        columns = taken.size_bytes, taken.mtime_ns, taken.identities
        empty = np.where(taken.size_bytes == 0, EMPTY, UNKNOWN) if tells else np.full(count, UNKNOWN)
        entries = self._index.record_all(taken.names, *columns, self._clock.now_millis(), empty)
        if tells:
            self._awaited.expect(entries)
        return count

    def _enter(self, url: str) -> None:
        if (root := root_of(url)) != self._root:
            # A pack lies in one root, so that it can be found where that has been moved to.
            self._cutter.flush()
            self._root = root

    def _begin(self, candidate: Candidate) -> bool:
        found = candidate.found
        stat = found.stat
        if not candidate.is_noted and not self._announce(candidate):
            return False
        tells = self.on_change.tells_appends and found.root.is_local
        fingerprint = EMPTY if tells and not stat.size_bytes else candidate.fingerprint
        seen = Seen(stat.size_bytes, stat.mtime_ns, stat.identity, self._clock.now_millis(), fingerprint)
        self._index.record(found.name, seen)
        self._has_noted |= candidate.is_noted
        if tells and stat.size_bytes > 0 and not candidate.is_noted:
            self._awaited.expect_one(found.name, seen)
        else:
            self._awaited.expect_nothing(found.name, seen)
        return True

    def _announce(self, candidate: Candidate) -> bool:
        found = candidate.found
        if found.is_directory:
            return self._cutter.announce_directory(found.url, found.relative_path, self.block_size)
        version = FileVersion(found.stat.size_bytes, found.stat.mtime_ns, found.stat.etag)
        relative_path = found.relative_path if self._cutter.announces else ""
        self._enter(found.url)
        is_open = self._waits and not version.etag
        place = found.url, relative_path, version, self.block_size, candidate.start
        return self._cutter.begin(*place, is_open=is_open, fingerprint=candidate.fingerprint if is_open else UNKNOWN)

    def _scanned_since(self) -> Counter[str]:
        """What the scans counted since this was last asked for."""
        counters = self._context.counters
        return Counter({name: count - counters[name] for name, count in list(self._scanned.items())})

    def scan_now(self) -> None:
        """While following, scan without waiting for the interval to pass."""
        if isinstance(self._source, TimeBasedDirectoryScanner):
            self._source.scan_now()

    def wait_for_scans(self, count: int, timeout_s: float) -> bool:
        """While following, wait until that many scans are complete; for tests."""
        source = self._started()
        return isinstance(source, TimeBasedDirectoryScanner) and source.wait_for_scans(count, timeout_s)

    def teardown(self) -> None:
        """Called once at the end."""
        if self._source is not None:
            self._source.stop()
        self._index.close()

    def snapshot(self) -> dict[str, Any]:
        """How far the open file is cut, and which files were taken.

        Raises:
            StorageError: The index cannot be written.
        """
        window_id = self._awaited.kept_id = self._awaited.window_id
        index, places = self._index.snapshot(), (self._places.roots, self._places.names)
        parts = {"cut": self._cutter.snapshot(), "index": index, "places": places}
        return {**parts, "has_begun": self._is_noted, "window_id": window_id}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave.

        Raises:
            JournalError: A part of the index is gone, or the index calls files otherwise than the app's roots do.
        """
        if "places" in state:  # not in a checkpoint of before they were kept
            require_same_names(IndexLocations(*state["places"]), self.files)
        self._cutter.restore(state["cut"])
        self._index.restore(state["index"])
        self._has_begun = self._is_noted = state["has_begun"]
        # A checkpoint of before windows were named has nothing that was heard.
        self._awaited.kept_id = state.get("window_id", 0)


def _allowance(
    context: OperatorContext, blocks: int | None, files: int | None = None, size_bytes: int | None = None
) -> WindowQuota:
    budget = DEFAULT_BUDGET if context.control is None else context.control.budget
    return WindowQuota(budget, blocks, files, size_bytes)
