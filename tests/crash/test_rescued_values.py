"""Columns that change while a run dies before each change of the disk."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.runs.test_changing_columns import app, written

ROWS: list[dict[str, Any]] = [
    {"id": 1, "n": "a"},
    {"id": 2, "n": 2},
    {"id": 3, "n": [3], "more": 3},
    {"id": 4, "more": "four"},
    {"id": 5, "n": "e", "last": 5.5},
]
"""In the first two windows tasks bring a column with two types, so that both run again."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "commit",
    [pytest.param({"every_millis": 0}, id="each window"), pytest.param(None, id="a group")],
)
def test_each_value_is_there_once_whatever_dies(commit: dict[str, int] | None, tmp_path: Path) -> None:
    """In its column or rescued, in the same rows as after a run that does not die."""
    expected: list[dict[str, Any]] = []
    for at in range(1000):
        root = tmp_path / str(at)
        root.mkdir()
        changing = app(root, ROWS, on_type_change="rescue", commit=commit)
        with crashing_disk(str(root), at or 100_000) as faults, contextlib.suppress(InjectedCrash):
            run(changing, runtime=InlineRuntime)
        run(app(root, ROWS, on_type_change="rescue", commit=commit), runtime=InlineRuntime)
        if not at:
            expected = written(root)
            assert [("n" in row, "more" in row, "_rescued" in row) for row in expected] == [
                (True, False, False),
                (False, False, True),
                (False, False, True),
                (False, True, False),
                (True, False, False),
            ]
            continue
        assert written(root) == expected
        if not faults.has_struck:
            break
    assert at > 20
