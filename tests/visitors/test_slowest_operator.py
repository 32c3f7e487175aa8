"""The live number of a visitor comes from the snapshot of a run."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.visitors.slowest_operator import SlowestOperator

ROOT = Path(__file__).parent.parent.parent


def test_a_run_shows_its_slowest_operator(tmp_path: Path) -> None:
    """An observer needs nothing but the snapshot."""
    shutil.copytree(ROOT / "data" / "logs", tmp_path / "data" / "logs")
    shutil.copy(ROOT / "apps" / "block_reader.yaml", tmp_path)
    slowest = SlowestOperator()
    with contextlib.chdir(tmp_path):
        snapshot = run(load_app("block_reader.yaml"), observer=slowest, runtime=InlineRuntime)
    # Which operator that is depends on the machine; seconds never become fewer.
    busy_s = {operator.name: operator.busy_s for operator in snapshot.operators}
    assert 0 < slowest.busy_s <= busy_s[slowest.name]
