"""Processes that die, and tables that change meanwhile."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.engine.test_operator_state_side_inputs import add_input, app, copies, put_table, versions

pytestmark = pytest.mark.crash


@pytest.mark.nightly
def test_a_crash_at_any_change_of_the_disk_keeps_one_version(tmp_path: Path) -> None:
    """Where the table changes before each run; nothing is left of the copies."""
    for at in range(1, 500):
        root = tmp_path / str(at)
        for number in range(2):
            add_input(root, number)
        put_table(root, "old")
        with crashing_disk(str(root / "journal"), at) as faults, contextlib.suppress(InjectedCrash):
            run(app(root), runtime=InlineRuntime)
        put_table(root, "new")
        run(app(root), runtime=InlineRuntime)
        found = versions(root)
        assert sorted(found) == ["0", "1"]
        assert all(len(each) == 1 for each in found.values())
        assert copies(root) == []
        shutil.rmtree(root)
        if not faults.has_struck:
            return
    pytest.fail("the run never came through")
