"""Whole apps that die before each change of the disk, and start again."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.splitter.index import file_index
from tests.crash.apps import files_app, leftovers, published, require_part_of
from tests.engine.sample_app import app_of
from tests.nightly import IS_NIGHTLY, every

MOST_CALLS = 2000
CASES = int(os.environ.get("DAGFLOW_CRASH_SAMPLES", "25" if IS_NIGHTLY else "8"))
TEXTS = [b"a b c", b"d", b"", b"e f", b"g"]
LINES = b"".join(b"%sline %d\n" % (b"." if n % 3 == 0 else b"", n) for n in range(25))

MakeApp = Callable[[Path], LogicalPlan]


@pytest.fixture(params=["words in memory", "lines of files"])
def make_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeApp]:
    """Return an app that writes only below a directory."""
    if request.param == "words in memory":
        yield lambda root: app_of(root, TEXTS)
        return
    source = tmp_path / "source"
    (source / "below").mkdir(parents=True)
    (source / "a.txt").write_bytes(LINES)
    (source / "below" / "b.txt").write_bytes(LINES[:100])
    (source / "empty.txt").touch()
    inline, file_index.INLINE_ENTRIES = file_index.INLINE_ENTRIES, 0
    try:
        # Every window then writes a run of the index, as windows of many files do.
        yield lambda root: files_app(source, root)
    finally:
        file_index.INLINE_ENTRIES = inline


def dies(make_app: MakeApp, root: Path, at: int, *, fresh: bool = False) -> bool:
    """Run the app until it dies before the at-th change of the disk; return whether it did."""
    with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
        run(make_app(root), RunOptions(fresh=fresh), runtime=InlineRuntime)
    return faults.has_struck


def undisturbed(make_app: MakeApp, root: Path) -> dict[str, bytes]:
    """Return what a run without a crash publishes."""
    run(make_app(root), runtime=InlineRuntime)
    assert leftovers(root / "out") == []
    return published(root / "out")


def require_recovery(make_app: MakeApp, root: Path, expected: dict[str, bytes], *, twice: bool = True) -> None:
    """Start again, and require what a run without a crash leaves; a run after that finds nothing to do."""
    run(make_app(root), runtime=InlineRuntime)
    assert published(root / "out") == expected
    assert leftovers(root / "out") == []
    if twice:
        assert run(make_app(root), runtime=InlineRuntime).windows == 0


@every(44)
def test_a_crash_at_any_disk_change_does_not_alter_published_bytes(
    make_app: MakeApp, tmp_path: Path, step: int
) -> None:
    """After a crash before any link, unlink, mkdir, rmdir or open, a restart publishes the rest."""
    expected = undisturbed(make_app, tmp_path / "undisturbed")
    assert len(expected) > 3
    for at in range(1, MOST_CALLS, step):
        root = tmp_path / str(at)
        has_died = dies(make_app, root, at)
        require_part_of(published(root / "out"), expected)
        require_recovery(make_app, root, expected, twice=at % 5 == 0)
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")


def test_recovery_may_die_again_and_again(make_app: MakeApp, tmp_path: Path) -> None:
    """A restart that dies at any moment, and one after that, lose and repeat nothing."""
    expected = undisturbed(make_app, tmp_path / "undisturbed")
    dice = random.Random(4)
    deaths = 0
    for case in range(CASES):
        root = tmp_path / str(case)
        for most in (90, 40, 20):
            deaths += dies(make_app, root, dice.randint(1, most))
            require_part_of(published(root / "out"), expected)
        require_recovery(make_app, root, expected)
        shutil.rmtree(root)
    assert deaths > 1.6 * CASES


@pytest.mark.nightly
@pytest.mark.parametrize(
    "make_app", ["words in memory", pytest.param("lines of files", marks=pytest.mark.nightly)], indirect=True
)
def test_fresh_publishes_everything_after_a_crash_at_any_disk_change(make_app: MakeApp, tmp_path: Path) -> None:
    """A run with --fresh that dies at any moment is completed by the next one with --fresh."""
    root, completed = tmp_path / "root", tmp_path / "completed"
    expected = {**undisturbed(make_app, root), "notes.txt": b"mine"}
    (root / "out" / "notes.txt").write_bytes(b"mine")
    root.rename(completed)
    at, is_empty = 1, False
    while at < MOST_CALLS:
        shutil.copytree(completed, root)
        has_died = dies(make_app, root, at, fresh=True)
        found = published(root / "out")
        require_part_of(found, expected)
        run(make_app(root), RunOptions(fresh=True), runtime=InlineRuntime)
        assert published(root / "out") == expected
        shutil.rmtree(root)
        if not has_died:
            return
        # From the first new file on it goes on as a run without --fresh, for which every change is tried above.
        is_empty = is_empty or len(found) == 1
        at += 6 if is_empty and len(found) > 1 else 1
    pytest.fail("the run never came through")
