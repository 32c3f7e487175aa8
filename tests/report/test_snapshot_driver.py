"""What is known of the newest driver, and what follows for all runs together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity, Standing
from dagflow.report.snapshot import DriverReport, state_of_all

BEAT = Heartbeat(ProcessIdentity("mill7", "ann", 7), "n", "run", "app", "", 0, "running", 60_000)
REPORT = DriverReport(
    Heartbeat(ProcessIdentity("mill7", "ann", 7), "n", "run", "app", "", 0, "running", 60_000),
    "running",
    1.0,
    is_same_machine=True,
)


@pytest.mark.parametrize(
    ("state", "finished", "unfinished"),
    [
        ("starting", "running", "running"),
        ("running", "running", "running"),
        ("waiting", "running", "running"),
        ("stopping", "running", "running"),
        ("stalled", "stalled", "stalled"),
        ("failed", "failed", "failed"),
        ("killed", "stopped", "stopped"),
        ("stopped", "stopped", "stopped"),
        ("completed", "completed", "stopped"),
    ],
)
def test_the_state_of_all_runs_is_that_of_the_newest_driver(state: Standing, finished: str, unfinished: str) -> None:
    """Nothing is called completed while a driver is at work, or while a window is open."""
    driver = replace(REPORT, state=state)
    assert state_of_all(driver, is_unfinished=False) == finished
    assert state_of_all(driver, is_unfinished=True) == unfinished


def test_without_a_heartbeat_the_journal_has_the_state() -> None:
    """As for a checkpoint of an older program."""
    assert state_of_all(None, is_unfinished=False) == "completed"
    assert state_of_all(None, is_unfinished=True) == "stopped"


def test_a_report_is_json_with_the_process_and_its_times() -> None:
    """For other programs, which compare the times themselves."""
    process = ProcessIdentity("mill7", "ann", 7)
    beat = Heartbeat(process, "n", "run", "app", "/app.yaml", 10, "failed", 20, 0, error="no disk", stalls=["window 3"])
    report = DriverReport.of(beat)
    assert report is not None
    said = json.loads(json.dumps(report.to_json()))
    assert said.pop("beat_age_seconds") > 0
    assert said == {
        "state": "failed",
        "command": "run",
        "host": "mill7",
        "user": "ann",
        "pid": 7,
        "since_ms": 10,
        "last_beat_ms": 20,
        "app_file": "/app.yaml",
        "error": "no disk",
        "stalls": ["window 3"],
    }
