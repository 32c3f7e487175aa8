"""Refused records of checkpoints of real runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice
from dagflow.runtime.local import InlineRuntime
from tests.web.conftest import APP, ROWS, ask, finish


def test_what_no_window_can_take_over_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window takes over what the reader of an earlier one refused, and not what an operator behind it did."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_bytes(ROWS + b"fox,many\n")
    text = (
        APP.replace("block_size: 16", "block_size: 64")
        .replace("n <> 1", "1 / (n - 3) < 9")
        .replace("from: reader.errors", "from: [reader.errors, filter.errors]")
    )
    Path("app.yaml").write_text(text)
    finish()
    before = {row["operator"] for row in ask("rejects")["rejects"]}
    Path("app.yaml").write_text(text.replace("n: int64", "n: int32"))
    run(load_app("app.yaml"), RunOptions(rejects=RejectChoice()), runtime=InlineRuntime)
    assert {row["operator"] for row in ask("rejects")["rejects"]} == before == {"reader", "filter"}
