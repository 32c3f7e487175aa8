"""A slow writer slows the splitter, and what waits in between is bounded."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.driver import WINDOWS_AHEAD, WINDOWS_IN_FLIGHT
from dagflow.engine.run import run
from dagflow.runtime.inline import InlineRuntime
from dagflow.worker.results import WindowTask
from tests.engine.sample_app import Source, app_of, published, words


def test_a_source_is_asked_for_a_bounded_number_of_windows_ahead(tmp_path: Path) -> None:
    """However much input there is, no more is emitted than a few windows beyond the one that runs."""
    texts = [b"%d" % number for number in range(400)]
    app = app_of(tmp_path, texts, per_window=2)
    source = app.operators["source"].operator
    assert isinstance(source, Source)
    ahead: list[int] = []

    def look(window: WindowTask) -> None:
        ahead.append(source.position - 2 * (window.window_id - 1))

    run(app, runtime=lambda program: InlineRuntime(program, before=look))
    assert published(tmp_path) == words(texts)
    assert len(ahead) == 200
    assert max(ahead) <= 2 * (WINDOWS_AHEAD + WINDOWS_IN_FLIGHT)
