"""Tables, and what waits for them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from tests.engine.test_driver import crashing
from tests.web.conftest import APP, ROWS, ask, finish, with_table


def test_windows_that_wait_are_in_the_table_when_their_group_is_due(folder: Path) -> None:
    """The time of the first of them, and what the app gives a group; none waits after the run."""
    (folder / "app.yaml").write_text(with_table(APP))
    (folder / "in" / "c.csv").write_bytes(ROWS)
    windows = ask("apps")["apps"][0]["windows"]
    before_ms = time.time_ns() // 1_000_000
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(after=windows + 2))
    (table,) = ask("tables")["tables"]
    assert table["waiting_windows"] > 0
    assert before_ms <= table["due_ms"] - 600_000 <= time.time_ns() // 1_000_000
    finish()
    (table,) = ask("tables")["tables"]
    assert (table["waiting_windows"], table["due_ms"]) == (0, None)


def test_the_row_of_an_app_says_what_must_not_pass_in_silence(folder: Path) -> None:
    """As the summary of its run."""
    assert ask("apps")["apps"][0]["concerns"] == []
    (folder / "in" / "a.csv").write_bytes(ROWS)
    finish()
    (concern,) = ask("apps")["apps"][0]["concerns"]
    assert "a.csv was read again: " in concern and "old rows stay beside the new ones" in concern
