"""What a heartbeat tells of the windows that run."""

from __future__ import annotations

import json
from dataclasses import replace

from dagflow.journal.frames import decode, from_json, to_json
from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity, RunningWindow, RunProgress, RunRates, beating
from dagflow.metrics.counters import OperatorReport

BEAT = Heartbeat(ProcessIdentity("mill7", "ann", 7), "n", "run", "app", "/app.yaml", 0, "running")
WINDOW = RunningWindow(
    3, 16, 54, 1, 4, (), {"reader": OperatorReport(1.25, {"messages": 5, "errors": 1})}, records_read=5, seconds=6.0
)
PROGRESS = RunProgress((WINDOW, replace(WINDOW, window_id=4)), RunRates(2.5, 0.5, 12.0), {"reader": 3})


def test_a_heartbeat_carries_the_progress_under_names() -> None:
    """Any program can read it, and what is read is what was written."""
    said = decode(beating(replace(BEAT, progress=PROGRESS)), "heartbeat/1")
    assert from_json(Heartbeat, said, "heartbeat/1").progress == PROGRESS
    assert said["progress"]["rates"] == {"bytes_per_second": 2.5, "records_per_second": 0.5, "remaining_s": 12.0}
    window = said["progress"]["windows"][0]
    assert (window["bytes_read"], window["records_read"], window["seconds"]) == (16, 5, 6.0)
    assert window["operators"] == {"reader": {"busy_s": 1.25, "records": {"messages": 5, "errors": 1}}}


def test_a_heartbeat_without_progress_is_read() -> None:
    """As a run writes it that has just begun, or a replay."""
    said = to_json(BEAT)
    assert said.pop("progress") is None
    assert from_json(Heartbeat, said, "heartbeat/1").progress is None


def test_a_heartbeat_stays_small() -> None:
    """Also with as many windows as may run at once, and with many operators in each."""
    operators = {f"operator-{n}": OperatorReport(n * 1.23456789, {"output": 987_654_321 * n}) for n in range(40)}
    windows = tuple(replace(WINDOW, window_id=n, operators=operators) for n in range(12))
    assert len(beating(replace(BEAT, progress=replace(PROGRESS, windows=windows)))) < 8192


def test_progress_is_json_with_whole_words_for_units() -> None:
    """What the command line prints under `running`."""
    assert json.loads(json.dumps(PROGRESS.to_json())) == {
        "windows": [
            {
                "window": window_id,
                "bytes_read": 16,
                "bytes": 54,
                "records_read": 5,
                "tasks_done": 1,
                "tasks": 4,
                "seconds": 6.0,
                "operators": {"reader": {"records": {"messages": 5, "errors": 1}, "busy_seconds": 1.25}},
            }
            for window_id in (3, 4)
        ],
        "rates": {"bytes_per_second": 2.5, "records_per_second": 0.5, "remaining_seconds": 12.0},
        "backlog": {"reader": 3},
    }


def test_operators_of_all_running_windows_add_up() -> None:
    """By name and port; a window that was committed since does not count any more."""
    assert PROGRESS.operators == {"reader": OperatorReport(2.5, {"messages": 10, "errors": 2})}
    assert PROGRESS.after(3).operators == {"reader": OperatorReport(1.25, {"messages": 5, "errors": 1})}
    assert PROGRESS.after(4) == replace(PROGRESS, windows=())
