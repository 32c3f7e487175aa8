"""What the graph says of time: how long operators worked, and how much passes in a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError
from dagflow.journal.journal import now_ms
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.engine.test_driver import crashing
from tests.web.conftest import ask, finish


def replay_all() -> None:
    """Run all windows of the checkpoint again."""
    ids = [each["window"] for each in ask("windows")["windows"]]
    replay_windows(load_app("app.yaml"), RunOptions(), ids, runtime=InlineRuntime)


def test_operators_work_in_a_replay_too(folder: Path) -> None:
    """The time of tasks is theirs, and not taken for waiting."""
    replay_all()
    found = ask("graph")
    assert {each["name"]: each["seconds"]["reading"] > 0 for each in found["nodes"]}["reader"]
    assert found["bottleneck"] is not None
    for each in ask("windows")["windows"]:
        assert each["busy_seconds"].keys() == {"reader", "filter", "writer", "refused"}


def test_rates_do_not_count_the_time_between_two_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run that died has emitted, a later one has run, and the rate is that of the later one."""
    (folder / "in" / "big.csv").write_bytes(b"name,n\n" + b"x,%d\n" * 40 % (*range(40),))
    before = ask("windows")["windows"][0]["window"]
    with monkeypatch.context() as earlier:
        earlier.setattr("dagflow.engine.control_graph.now_ms", lambda: now_ms() - 40_000)
        with pytest.raises(DagflowError, match="the lights went out"):
            run(load_app("app.yaml"), RunOptions(), runtime=crashing(after=before + 1))
    finish()
    windows = ask("windows")["windows"]
    assert any(each["times"]["emitted_ms"] < each["times"]["planned_ms"] - 30_000 for each in windows)
    edge = next(each for each in ask("graph")["edges"] if each["from"] == "reader.messages")
    begun_ms = min(each["times"]["started_ms"] for each in windows)
    seconds = (max(each["times"]["published_ms"] for each in windows) - begun_ms) / 1000
    assert edge["rows_per_second"] == round(edge["records"] / seconds, 1)


def test_a_graph_is_laid_out_in_both_directions(folder: Path) -> None:
    """Each operator is within the frame of its stage, and each stream has a line."""
    found = ask("graph")
    assert len(found["layouts"]) == 2
    for layout in found["layouts"]:
        assert layout["nodes"].keys() == {node["name"] for node in found["nodes"]}
        assert len(layout["edges"]) == len(found["edges"]) > 2
        for stage in found["stages"]:
            left, top, width, height = layout["stages"][stage["name"]]
            for name in stage["operators"]:
                x, y, card_width, card_height = layout["nodes"][name]
                assert left < x and x + card_width < left + width
                assert top < y and y + card_height < top + height
        for edge in layout["edges"]:
            x, y = edge["label"]
            assert edge["path"].startswith("M") and 0 < x < layout["width"] and 0 < y < layout["height"]
    across, down = found["layouts"]
    assert across["width"] > across["height"] and down["width"] < down["height"]
