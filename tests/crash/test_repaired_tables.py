"""Repairs of windows that their table never takes, and the runs behind them, die before each change of the disk."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from dagflow.engine.window_repair import repair
from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.strangers.test_stuck_windows import FORMS, Change, StuckApp, constrain, require_a_field

MOST_CALLS = 500


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "change"), [("delta", constrain), ("iceberg", require_a_field)])
def test_a_crash_of_a_repair_of_a_table_loses_and_doubles_no_row(
    tmp_path: Path, kind: str, change: Change, form: str
) -> None:
    """Where the window is still stuck, the next run names the repair again."""
    repairs = 0
    for at in range(1, MOST_CALLS):
        root = tmp_path / str(at)
        root.mkdir()
        app = StuckApp(root, kind, form)
        app.get_stuck(change)
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            repair(app.checkpoint, app.window_id, StorageContext.default())
            app.work("other")
        app.put("3", {"id": 4})
        try:
            app.work("other")
        except DagflowError as error:
            assert app.remedy in str(error)
            repair(app.checkpoint, app.window_id, StorageContext.default())
            repairs += 1
        for _ in range(2):
            app.work("other")
            assert app.rows("other") == [{"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}, {"id": 4}]
        shutil.rmtree(root)
        if not faults.has_struck:
            assert repairs > 3
            return
    pytest.fail("the run never came through")
