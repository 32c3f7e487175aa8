"""Replays that die before each change of the disk in turn."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from dagflow.engine.manifest import window_manifest
from dagflow.engine.replaying import replay
from dagflow.engine.run import RunOptions, run
from dagflow.plan.logical import load_app
from dagflow.runtime.inline import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from tests.engine.test_replay import APP


def test_a_replay_that_dies_is_undone_or_finished_by_the_next_run(quick_disk: Path) -> None:
    """Before each change of the disk in turn: every file is the old one or the new one, and after a run all agree."""
    names = {"old": 'drop: {prefix: "#"}', "new": 'keep: {suffix: "1"}'}
    expected: dict[str, list[str]] = {"old": ["b1\nb2\n"], "new": ["b1\n"]}
    outcomes = set()
    for at in range(1, 500):
        root = quick_disk / str(at)
        (root / "in").mkdir(parents=True)
        (root / "in" / "b").write_text("# b\nb1\nb2\n")
        text = APP.replace("[in]", f"[{root}/in]").replace("path: out", f"path: {root}/out")
        apps = {}
        for name, rule in names.items():
            (root / f"{name}.yaml").write_text(text.replace(names["old"], rule).replace("journal", f"{root}/journal"))
            apps[name] = str(root / f"{name}.yaml")
        run(load_app(apps["old"]), RunOptions(), runtime=InlineRuntime)
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            replay(load_app(apps["new"]), RunOptions(), [1], lambda window: None, InlineRuntime)
        files = [path.read_text() for path in (root / "out").glob("[!.]*")]
        assert files in expected.values()
        assert run(load_app(apps["old"]), RunOptions(), runtime=InlineRuntime).windows == 0
        files = [path.read_text() for path in (root / "out").iterdir()]
        [outcome] = [name for name, content in expected.items() if content == files]
        [output] = window_manifest(f"{root}/journal", 1).outputs
        assert output.size_bytes == len(files[0])
        outcomes.add(outcome)
        shutil.rmtree(root)
        if not faults.has_struck:
            assert (outcome, outcomes) == ("new", {"old", "new"})
            return
    pytest.fail("the replay never came through")
