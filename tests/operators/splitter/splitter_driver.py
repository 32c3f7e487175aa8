"""Drives a splitter from window to window, as the engine does."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagflow.api.context import OperatorContext, WindowBudget
from dagflow.storage.pending import HeldFile
from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata
from operators.splitter import FileSplitterBase, FileSplitterInput
from operators.splitter.block_cutter import DEFAULT_BUDGET
from operators.splitter.scan.listed_files import ListedFiles
from tests.manual_clock import ManualClock

WAIT_S = 30.0  # a guard for a broken scanner, never waited for by one that works


@dataclass
class InProcessServices:
    """What the engine offers to a control operator."""

    state_url: str = ""
    follow: bool = False
    budget: WindowBudget = DEFAULT_BUDGET
    operator_index: int = 0
    held_files: Sequence[HeldFile] = ()
    output_locations: Sequence[str] = ()

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply the function here."""
        return [function(item) for item in items]

    def watched(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Watch nothing."""
        return contextlib.nullcontext()


@dataclass
class EmittedWindow:
    """What was emitted in one window, and the state after it."""

    files: list[FileMetadata] = field(default_factory=list)
    blocks: list[BlockMetadata] = field(default_factory=list)
    state: Any = None

    @property
    def paths(self) -> list[str]:
        """Relative paths of the files."""
        return [file.relative_path for file in self.files]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Start and end of the blocks."""
        return [(block.start, block.end) for block in self.blocks]


class SplitterDriver:
    """Drives a splitter that was started, or restarted from a state.

    Args:
        splitter: The operator.
        services: What it may ask of the engine.
        state: A snapshot of the splitter that it goes on from.
    """

    def __init__(
        self,
        splitter: FileSplitterInput | FileSplitterBase,
        services: InProcessServices | None = None,
        state: Any = None,
    ) -> None:
        self.splitter = splitter
        self.counters: Counter[str] = Counter()
        self._window = EmittedWindow()
        self._window_id = 0
        splitter.files_metadata_output.connect(lambda file: self._window.files.append(file))
        splitter.blocks_metadata_output.connect(lambda block: self._window.blocks.append(block))
        if isinstance(splitter, FileSplitterInput) and not isinstance(self, FollowingDriver):
            splitter.use_clock(ManualClock())
        splitter.setup(OperatorContext(counters=self.counters, control=services))
        if state is not None:
            splitter.restore(pickle.loads(pickle.dumps(state)))

    def window(self, *given: FileInfo) -> EmittedWindow:
        """Run one window."""
        self._window = EmittedWindow()
        self._window_id += 1
        self.splitter.begin_window(self._window_id)
        if isinstance(self.splitter, FileSplitterInput):
            self.splitter.emit_tuples()
        else:
            for file in given:
                self.splitter.take(file)
        self.splitter.end_window()
        self._window.state = self.splitter.snapshot()
        return self._window

    def commit(self, events: Sequence[Any] = ()) -> None:
        """Commit all windows, with the events of their readers."""
        if isinstance(self.splitter, FileSplitterInput):
            self.splitter.handle_source_events(self._window_id, events)

    def windows(self) -> list[EmittedWindow]:
        """Run windows until one is empty, which is not among them."""
        found = []
        while (window := self.window()).files or window.blocks:
            found.append(window)
        return found

    def everything(self) -> EmittedWindow:
        """All that a run to completion emits, as if it were one window."""
        windows = self.windows()
        files = [file for window in windows for file in window.files]
        return EmittedWindow(files, [block for window in windows for block in window.blocks], self.splitter.snapshot())


class FollowingDriver(SplitterDriver):
    """Drives a splitter that follows, by a clock that the test moves."""

    def __init__(
        self,
        services: InProcessServices | None = None,
        state: Any = None,
        now_millis: int = 4_000_000_000_000,
        **properties: Any,
    ) -> None:
        splitter = FileSplitterInput(**{"scan_interval_millis": 1000, **properties, "follow": True})
        self.clock = ManualClock(now_millis)
        self._scans = 0
        splitter.use_clock(self.clock)
        super().__init__(splitter, services, state)
        self.following = splitter

    def __enter__(self) -> FollowingDriver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.following.teardown()

    def scanned(self) -> EmittedWindow:
        """Wait for one more scan, which must be due, and run a window with what it found."""
        self._scans += 1
        assert self.following.wait_for_scans(self._scans, WAIT_S)
        return self.window()

    def next_scan(self, *, commits: bool = True) -> EmittedWindow:
        """Commit the windows before, let the interval pass, and run a window with what the scan found."""
        if commits:
            self.commit()
        self.clock.advance(1000)
        return self.scanned()


def write(path: Path, content: bytes | str = b"x", mtime_s: int | None = None) -> Path:
    """Write a file, with its directories, and date it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))
    return path


def each(scan: Iterable[ListedFiles]) -> Iterator[ListedFiles]:
    """The files of a scan one by one."""
    return (files.slice(index, index + 1) for files in scan for index in range(len(files)))


def twelve_files(directory: Path) -> list[Path]:
    """Twelve files of 11 bytes, two records each."""
    return [write(directory / f"file{number}.txt", b"a%03d\nb%05d" % (number, number)) for number in range(12)]
