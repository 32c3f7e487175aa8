"""What a committed window says of itself."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from dagflow.engine.run import run
from dagflow.report.manifest import manifests
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.execution.sample_operators import Total


def test_the_times_of_a_window_are_in_order(tmp_path: Path) -> None:
    """Emitted, planned, started, finished, committed, published; windows are committed one after the other."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"]), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), StorageContext.default()))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        times = astuple(window.times)
        assert times[0] > 0
        assert sorted(times) == list(times)
    assert windows[0].times.committed_ms <= windows[1].times.committed_ms


def test_a_window_knows_how_long_each_operator_worked(tmp_path: Path) -> None:
    """In its tasks, all partitions together, and in the driver."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"], middle=Total()), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), StorageContext.default()))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        assert window.busy_s.keys() == {"source", "lines", "middle", "writer"}
        assert all(seconds > 0 for name, seconds in window.busy_s.items() if name != "source")
