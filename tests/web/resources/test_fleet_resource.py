"""The rows of the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
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
