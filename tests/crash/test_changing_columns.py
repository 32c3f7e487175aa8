"""Files of JSON whose columns and types change all the time, while runs die: nothing is lost, and no run ends early."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from benchmarks.changing_columns import rows_of, write_app, write_files, wrong_rows
from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.nightly import by_day

CRASHES = 5


@pytest.mark.parametrize("kind", by_day(1, ["delta", "iceberg", "parquet"]))
def test_each_value_is_in_its_column_or_rescued(kind: str, tmp_path: Path) -> None:
    """Each record once, and each of its values once; by default, so that columns become wider where they can."""
    rows = write_files(tmp_path, 40, seed=7)
    write_app(tmp_path, kind, files_per_window=5)
    chance = random.Random(7)
    with contextlib.chdir(tmp_path):
        for _ in range(CRASHES):
            with crashing_disk(str(tmp_path), chance.randrange(5, 120)), contextlib.suppress(InjectedCrash):
                run(load_app("app.yaml"), runtime=InlineRuntime)
        run(load_app("app.yaml"), runtime=InlineRuntime)
    found = rows_of(tmp_path, kind)
    assert [*wrong_rows(found, rows)] == []
    assert len(found.schema) == 42 and found["_rescued"].null_count < len(found)
