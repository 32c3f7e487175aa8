"""Replays of rejects that die before each change of the disk."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.crash.restored import restored_afterwards
from tests.engine.test_run_reject_retry import CASES, refused, replay, rows, write_app
from tests.nightly import by_day, every


@every(20)
@pytest.mark.parametrize("name", by_day(1, ["rows of CSV in many blocks", "many small files"]))
def test_a_crash_at_any_disk_change_doubles_nothing(name: str, tmp_path: Path, step: int) -> None:
    """A replay that dies before any change of the disk is finished by the next replay, or by the next run."""
    whole = CASES[name]
    # Fewer blocks: each crash costs a run of its own.
    chosen = replace(whole, files=dict([*whole.files.items()][:8]), block=whole.block * 16)
    expected: list[str] = []
    root = tmp_path / "made"
    (root / "in").mkdir(parents=True)
    for file, content in chosen.files.items():
        (root / "in" / file).write_bytes(content)
    with contextlib.chdir(root):
        write_app(chosen, chosen.old)
        run(load_app("app.yaml"), runtime=InlineRuntime)
        write_app(chosen, chosen.new)
    for at in range(0, 2000, step):
        with restored_afterwards(root), contextlib.chdir(root):
            if not at:
                replay()
                expected = rows()
                continue
            with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
                replay()
            if at % 2:
                run(load_app("app.yaml"), runtime=InlineRuntime)
            replay()
            assert (rows(), refused()) == (expected, 0)
            assert replay() == 0
        if not faults.has_struck:
            break
    assert at > 20
