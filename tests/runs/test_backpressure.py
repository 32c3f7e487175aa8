"""A slow writer slows the splitter, and what waits in between is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

from dagflow.engine.run import run
from dagflow.engine.window_runner import WINDOWS_IN_FLIGHT
from dagflow.engine.window_sizing import WINDOWS_AHEAD
from dagflow.execution.messages import WindowJob
from dagflow.runtime.inline import InlineRuntime
from tests.engine.sample_app import Source, app_of, published, words
from tests.memory import in_own_process


def test_a_source_is_asked_for_a_bounded_number_of_windows_ahead(tmp_path: Path) -> None:
    """However much input there is, no more is emitted than a few windows beyond the one that runs."""
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
    assert ahead[0] == 2, "the first window waited for the next ones to be emitted"


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
