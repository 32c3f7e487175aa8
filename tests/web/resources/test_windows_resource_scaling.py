"""The points and decisions of scaling."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.web.conftest import ask, finish


def test_scaling_counts_what_was_planned_and_not_committed(folder: Path) -> None:
    """There is a point for each window, and the decisions have their reasons."""
    found = ask("scaling")
    assert [each["window"] for each in found["points"]] == [each["window"] for each in ask("windows")["windows"]][::-1]
    assert all(each["backlog_blocks"] > 0 and each["partitions"] == {"reader": 2} for each in found["points"][:1])
    assert found["decisions"][0]["reason"] == "start"


def test_a_replay_leaves_the_backlog_of_before_as_it_was(folder: Path) -> None:
    """Although the journal has only the last commit of a window that ran again."""
    (folder / "in" / "d.csv").write_bytes(b"name,n\nx,1\n")
    finish()
    before = ask("scaling")["points"]
    replay_windows(load_app("app.yaml"), RunOptions(), [1, 2], runtime=InlineRuntime)
    assert ask("scaling")["points"] == before
    assert before[-1]["backlog_blocks"] == 1
