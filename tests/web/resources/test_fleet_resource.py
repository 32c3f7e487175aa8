"""The rows of the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.journal.windows import Window, WindowIntent, WindowPlan
from dagflow.plan.load import load_app
from dagflow.web.resources.fleet_resource import published_until
from tests.engine.test_driver import crashing
from tests.web.conftest import ask, finish


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


def test_the_time_between_two_runs_makes_no_rate_smaller() -> None:
    """A window counts from when it ran, however long ago; one that ran again later from when it was emitted."""

    def window(emitted_ms: int, started_ms: int, published_ms: int) -> Window:
        return Window(WindowPlan(1, emitted_ms=emitted_ms), WindowIntent(1, started_ms=started_ms), published_ms)

    resumed, again = window(170_000, 198_000, 199_000), window(190_000, 250_000, 199_000)
    assert published_until([resumed], 200_000) == ([resumed], 2.0)
    assert published_until([resumed, again], 200_000) == ([resumed, again], 10.0)
    assert published_until([window(0, 100_000, 150_000)], 200_000)[1] == 100.0
    assert published_until([window(1, 2, 3), window(1, 0, 0)], 200_000) == ([], 0.0)
