"""A slow writer slows the splitter, and what waits in between is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import pytest

from dagflow.api.operator import Operator
from dagflow.engine.run import run
from dagflow.engine.window_runner import MAX_IN_FLIGHT, WINDOWS_IN_FLIGHT
from dagflow.engine.window_sizing import UNMEASURED_WINDOWS, WINDOWS_AHEAD
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.engine.sample_app import TextSource, app_of, published, words
from tests.execution.sample_operators import Total
from tests.memory import in_own_process


def test_a_window_does_not_wait_until_later_ones_are_emitted(tmp_path: Path) -> None:
    """However much input there is, a window is submitted as soon as it is emitted, and the next ones follow it."""
    texts = [b"%d" % number for number in range(200)]
    app = app_of(tmp_path, texts, per_window=2)
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    ahead: list[int] = []

    def look(window: WindowJob) -> None:
        ahead.append(source.position - 2 * (window.window_id - 1))

    run(app, runtime=lambda program: InlineRuntime(program, before=look))
    assert published(tmp_path) == words(texts)
    assert len(ahead) == 100
    assert max(ahead) <= 2 * (WINDOWS_AHEAD + WINDOWS_IN_FLIGHT)
    assert ahead[:3] == [2, 2, 2]


class ManualRuntime(InlineRuntime):
    """A runtime whose windows run when the test calls run_next()."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.submitted = 0
        self.waiting: deque[tuple[WindowJob, Future[list[TaskResult]]]] = deque()

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Begin a window."""
        future: Future[list[TaskResult]] = Future()
        self.waiting.append((window, future))
        self.submitted += 1
        return future

    def run_next(self, slow_windows: int) -> None:
        """Run the oldest window that was not run; the first ones when all others were."""
        if self.waiting:
            at = min(slow_windows, len(self.waiting) - 1) if self.submitted < MAX_IN_FLIGHT else 0
            window, future = self.waiting[at]
            del self.waiting[at]
            future.set_result(super().submit(window).result())


class ReleasesWindows:
    """Lets a window run whenever the driver waits, and remembers how much was emitted by then."""

    def __init__(self, source: TextSource, slow_windows: int = 0) -> None:
        self.source = source
        self.slow_windows = slow_windows
        self.runtimes: list[ManualRuntime] = []
        self.emitted: list[tuple[int, int]] = []

    def start(self, program: Program) -> ManualRuntime:
        """The runtime of the run."""
        self.runtimes.append(ManualRuntime(program))
        return self.runtimes[0]

    def progress(self, snapshot: RunSnapshot) -> None:
        """See Observer."""
        is_waiting = snapshot.windows == (self.emitted[-1][0] if self.emitted else 0)
        self.emitted.append((snapshot.windows, self.source.position))
        for runtime in self.runtimes if is_waiting else ():
            runtime.run_next(self.slow_windows)

    def notice(self, text: str) -> None:
        """See Observer."""


def test_few_windows_are_emitted_before_the_first_is_measured(tmp_path: Path) -> None:
    """Until a window is committed nothing shows how large they should be; from then on slots have work at hand."""
    texts = [b"%d" % number for number in range(12)]
    app = app_of(tmp_path, texts, per_window=1)
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    looking = ReleasesWindows(source)
    run(app, runtime=looking.start, observer=looking)
    assert published(tmp_path) == words(texts)
    assert looking.emitted[0] == (0, UNMEASURED_WINDOWS)
    ahead = [emitted - committed for committed, emitted in looking.emitted if committed]
    assert max(ahead) == WINDOWS_AHEAD + WINDOWS_IN_FLIGHT


@pytest.mark.parametrize(
    "middle",
    [
        pytest.param(Total(), id="one window at a time", marks=pytest.mark.nightly),
        pytest.param(None, id="a slow first task"),
    ],
)
def test_nothing_is_emitted_while_a_window_waits_for_idle_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, middle: Operator | None
) -> None:
    """What waits is submitted first, and runs while later windows are emitted."""
    texts = [b"%d" % number for number in range(14)]
    app = app_of(tmp_path, texts, per_window=1, middle=middle)
    source = app.operators["source"].operator
    assert isinstance(source, TextSource)
    looking = ReleasesWindows(source, slow_windows=0 if middle else 1)
    emit, idle = TextSource.emit_tuples, []

    def emit_tuples(self: TextSource) -> None:
        submitted = sum(runtime.submitted for runtime in looking.runtimes)
        running = sum(len(runtime.waiting) for runtime in looking.runtimes)
        has_slots = running <= looking.slow_windows and submitted < MAX_IN_FLIGHT
        idle.append(self.position - submitted if has_slots else 0)
        emit(self)

    monkeypatch.setattr(TextSource, "emit_tuples", emit_tuples)
    run(app, runtime=looking.start, observer=looking)
    assert published(tmp_path) == words(texts) or middle
    assert len(idle) > 14
    assert set(idle) == {0}


def bytes_at_the_end(root: Path, windows: int) -> int:
    """The memory that Python's objects take up before the last window of a run."""
    held: list[int] = []

    def look(window: WindowJob) -> None:
        if window.window_id == windows:
            # Futures and errors refer to each other; when the interpreter gets round to that is not the law here.
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])

    app = app_of(root, [b"word"] * 2 * windows, per_window=2)
    tracemalloc.start()
    try:
        run(app, runtime=lambda program: InlineRuntime(program, before=look))
    finally:
        tracemalloc.stop()
    return held[0]


def bytes_of_runs(root: Path) -> tuple[int, int]:
    """The same for 60 and for 240 windows."""
    # The first run pays for imports and caches.
    bytes_at_the_end(root / "warm", 10)
    return bytes_at_the_end(root / "few", 60), bytes_at_the_end(root / "many", 240)


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_windows(tmp_path: Path) -> None:
    """Four times the windows leave the same behind in memory, to within 64 KiB."""
    few, many = in_own_process(bytes_of_runs, tmp_path)
    assert many < few + (64 << 10), (few, many)
