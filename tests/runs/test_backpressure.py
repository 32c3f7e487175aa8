"""A slow writer slows the splitter, and what waits in between is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.window_runner import WINDOWS_IN_FLIGHT
from dagflow.engine.window_sizing import UNMEASURED_WINDOWS, WINDOWS_AHEAD
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.execution.program import Program
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.inline import InlineRuntime
from tests.engine.sample_app import Source, app_of, published, words
from tests.execution.sample_operators import Total
from tests.memory import in_own_process


def test_a_window_does_not_wait_until_later_ones_are_emitted(tmp_path: Path) -> None:
    """However much input there is, a window is submitted as soon as it is emitted, and the next ones follow it."""
    texts = [b"%d" % number for number in range(200)]
    app = app_of(tmp_path, texts, per_window=2)
    source = app.operators["source"].operator
    assert isinstance(source, Source)
    ahead: list[int] = []

    def look(window: WindowJob) -> None:
        ahead.append(source.position - 2 * (window.window_id - 1))

    run(app, runtime=lambda program: InlineRuntime(program, before=look))
    assert published(tmp_path) == words(texts)
    assert len(ahead) == 100
    assert max(ahead) <= 2 * (WINDOWS_AHEAD + WINDOWS_IN_FLIGHT)
    assert ahead[:3] == [2, 2, 2]


class Patient(InlineRuntime):
    """A runtime whose windows run when they are told to."""

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

    def run_oldest(self) -> None:
        """Run the oldest window that was not run."""
        if self.waiting:
            window, future = self.waiting.popleft()
            future.set_result(super().submit(window).result())


class Looking:
    """Lets a window run whenever the driver waits, and remembers how much was emitted by then."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.runtimes: list[Patient] = []
        self.emitted: list[tuple[int, int]] = []

    def start(self, program: Program) -> Patient:
        """The runtime of the run."""
        self.runtimes.append(Patient(program))
        return self.runtimes[0]

    def progress(self, snapshot: RunSnapshot) -> None:
        """See Observer."""
        is_waiting = snapshot.windows == (self.emitted[-1][0] if self.emitted else 0)
        self.emitted.append((snapshot.windows, self.source.position))
        for runtime in self.runtimes if is_waiting else ():
            runtime.run_oldest()

    def notice(self, text: str) -> None:
        """See Observer."""


def test_few_windows_are_emitted_before_the_first_is_measured(tmp_path: Path) -> None:
    """Until a window is committed nothing shows how large they should be; from then on slots have work at hand."""
    texts = [b"%d" % number for number in range(40)]
    app = app_of(tmp_path, texts, per_window=1)
    source = app.operators["source"].operator
    assert isinstance(source, Source)
    looking = Looking(source)
    run(app, runtime=looking.start, observer=looking)
    assert published(tmp_path) == words(texts)
    assert looking.emitted[0] == (0, UNMEASURED_WINDOWS)
    ahead = [emitted - committed for committed, emitted in looking.emitted if committed]
    assert max(ahead) == WINDOWS_AHEAD + WINDOWS_IN_FLIGHT


def test_nothing_is_emitted_while_a_window_waits_for_idle_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With state one window runs at a time: the next one is submitted first, and runs while later ones are emitted."""
    texts = [b"%d" % number for number in range(20)]
    app = app_of(tmp_path, texts, per_window=1, middle=Total())
    source = app.operators["source"].operator
    assert isinstance(source, Source)
    looking = Looking(source)
    emit, idle = Source.emit_tuples, []

    def emit_tuples(self: Source) -> None:
        submitted = sum(runtime.submitted for runtime in looking.runtimes)
        is_idle = not any(runtime.waiting for runtime in looking.runtimes)
        idle.append(self.position - submitted if is_idle else 0)
        emit(self)

    monkeypatch.setattr(Source, "emit_tuples", emit_tuples)
    run(app, runtime=looking.start, observer=looking)
    assert len(idle) > 20
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


def test_memory_does_not_grow_with_the_number_of_windows(tmp_path: Path) -> None:
    """Four times the windows leave the same behind in memory, to within 64 KiB."""
    few, many = in_own_process(bytes_of_runs, tmp_path)
    assert many < few + (64 << 10), (few, many)
