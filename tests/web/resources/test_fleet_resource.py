"""The rows of the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.journal.heartbeat import RunningWindow, RunProgress, RunRates
from dagflow.journal.windows import Window, WindowIntent, WindowPlan
from dagflow.plan.load import load_app
from dagflow.web.application import mark_of
from dagflow.web.resources.fleet_resource import published_until
from tests.engine.test_driver import crashing
from tests.journal.other_machine import beat_at_work
from tests.web.conftest import api_of, ask, finish


def test_the_backlog_of_a_failed_run_is_that_of_its_planned_windows(folder: Path) -> None:
    """Its blocks are those that hold its bytes; when all is read, there is neither."""
    (folder / "in" / "big.csv").write_bytes(b"name,n\n" + b"x,%d\n" * 40 % (*range(40),))
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(after=ask("apps")["apps"][0]["windows"] + 2))
    planned = [each for each in ask("windows")["windows"] if each["state"] == "planned"]
    backlog = ask("apps")["apps"][0]["backlog"]
    assert backlog["blocks"] == sum(each["blocks"] for each in planned) > 0
    assert backlog["bytes"] == sum(each["bytes"] for each in planned) > 0
    finish()
    assert ask("apps")["apps"][0]["backlog"] == {"blocks": 0, "bytes": 0, "seconds": None}


def test_an_app_whose_old_windows_are_lost_hides_no_other_app(folder: Path) -> None:
    """What is left of earlier versions cannot be looked for, and the row of the app says why."""
    for content in (b"name,n\n" + b"x,%d\n" * 400 % (*range(400),), b"name,n\nant,0\n"):
        (folder / "in" / "a.csv").unlink()
        (folder / "in" / "a.csv").write_bytes(content)
        finish()
    for archive in (folder / "out/sample.journal/archive").rglob("*-*"):
        archive.unlink()
    apps = api_of("out/sample.journal", "out/another.journal").answer("apps", {})["apps"]
    assert [app["state"] for app in apps] == ["completed", "no run yet"]
    assert "the archive of windows 1 to " in apps[0]["error"]


def test_the_rate_of_a_run_in_another_process_is_what_it_reports(folder: Path) -> None:
    """Also within a long window, before anything is committed; without that, by the newest windows."""
    beat_at_work("out/sample.journal", RunProgress(rates=RunRates(2048.0, 16.0)))
    row = ask("apps")["apps"][0]
    assert (row["state"], row["rates"]) == ("running", {"bytes_per_second": 2048.0, "records_per_second": 16.0})
    beat_at_work("out/sample.journal", None)
    assert ask("apps")["apps"][0]["rates"]["bytes_per_second"] not in (0.0, 2048.0)


def test_a_page_is_notified_that_a_running_window_has_read_more(folder: Path) -> None:
    """Although nothing was committed."""
    (checkpoint,) = api_of().checkpoints.values()
    marks = []
    for bytes_read in (1, 2):
        beat_at_work("out/sample.journal", RunProgress((RunningWindow(99, bytes_read, 9, 0, 1),)))
        marks.append(mark_of(checkpoint)[1])
    assert marks[0] != marks[1]


def test_the_time_between_two_runs_makes_no_rate_smaller() -> None:
    """A window counts from when it ran, however long ago; one that ran again later from when it was emitted."""

    def window(emitted_ms: int, started_ms: int, published_ms: int) -> Window:
        return Window(WindowPlan(1, emitted_ms=emitted_ms), WindowIntent(1, started_ms=started_ms), published_ms)

    resumed, again = window(170_000, 198_000, 199_000), window(190_000, 250_000, 199_000)
    assert published_until([resumed], 200_000) == ([resumed], 2.0)
    assert published_until([resumed, again], 200_000) == ([resumed, again], 10.0)
    assert published_until([window(0, 100_000, 150_000)], 200_000)[1] == 100.0
    assert published_until([window(1, 2, 3), window(1, 0, 0)], 200_000) == ([], 0.0)
