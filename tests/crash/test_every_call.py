"""Whole apps that die before each change of the disk in turn, and start again."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dagflow.engine.run import RunOptions, run
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.splitter.index import file_index
from tests.crash.apps import files_app, leftovers, published, require_part_of
from tests.engine.sample_app import app_of

MOST_CALLS = 2000
TEXTS = [b"a b c", b"d", b"", b"e f", b"g"]
LINES = b"".join(b"%sline %d\n" % (b"." if n % 3 == 0 else b"", n) for n in range(25))

MakeApp = Callable[[Path], LogicalPlan]


@pytest.fixture(params=["words in memory", "lines of files"])
def make_app(request: pytest.FixtureRequest, quick_disk: Path) -> Iterator[MakeApp]:
    """Makes an app that keeps all that it writes below a directory."""
    if request.param == "words in memory":
        yield lambda root: app_of(root, TEXTS)
        return
    source = quick_disk / "source"
    (source / "below").mkdir(parents=True)
    (source / "a.txt").write_bytes(LINES)
    (source / "below" / "b.txt").write_bytes(LINES[:100])
    (source / "empty.txt").touch()
    inline, file_index.INLINE_ENTRIES = file_index.INLINE_ENTRIES, 0
    try:
        # Every window then writes a run of the index, as those of long lists do.
        yield lambda root: files_app(source, root)
    finally:
        file_index.INLINE_ENTRIES = inline


def dies(make_app: MakeApp, root: Path, at: int, *, fresh: bool = False) -> bool:
    """Run the app until it dies before the at-th change of the disk, and say whether it did."""
    with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
        run(make_app(root), RunOptions(fresh=fresh), runtime=InlineRuntime)
    return faults.has_struck


def undisturbed(make_app: MakeApp, root: Path) -> dict[str, bytes]:
    """What a run publishes that nothing happens to."""
    run(make_app(root), runtime=InlineRuntime)
    assert leftovers(root / "out") == []
    return published(root / "out")


def require_recovery(make_app: MakeApp, root: Path, expected: dict[str, bytes]) -> None:
    """Start again, and require what an undisturbed run leaves behind."""
    run(make_app(root), runtime=InlineRuntime)
    assert published(root / "out") == expected
    assert leftovers(root / "out") == []
    assert run(make_app(root), runtime=InlineRuntime).windows == 0


def test_an_app_publishes_the_same_bytes_whichever_change_of_the_disk_is_its_last(
    make_app: MakeApp, quick_disk: Path
) -> None:
    """Before each link, unlink, mkdir, rmdir and open in turn: a part is there at once, the whole after a restart."""
    expected = undisturbed(make_app, quick_disk / "undisturbed")
    assert len(expected) > 3
    for at in range(1, MOST_CALLS):
        root = quick_disk / str(at)
        has_died = dies(make_app, root, at)
        require_part_of(published(root / "out"), expected)
        require_recovery(make_app, root, expected)
        shutil.rmtree(root)
        if not has_died:
            assert at > 50
            return
    pytest.fail("the run never came through")


def test_recovery_may_die_again_and_again(make_app: MakeApp, quick_disk: Path) -> None:
    """After a death at any of many moments, the restart dies at each of many of its own, and so does the one after."""
    expected = undisturbed(make_app, quick_disk / "undisturbed")
    dice = random.Random(4)
    deaths = 0
    for case in range(60):
        root = quick_disk / str(case)
        for most in (90, 40, 20):
            deaths += dies(make_app, root, dice.randint(1, most))
            require_part_of(published(root / "out"), expected)
        require_recovery(make_app, root, expected)
        shutil.rmtree(root)
    assert deaths > 100


def test_starting_over_publishes_everything_whichever_change_of_the_disk_is_its_last(
    make_app: MakeApp, quick_disk: Path
) -> None:
    """A run with --fresh over a complete output dies at each moment; the next one with --fresh ends it, whole."""
    expected = undisturbed(make_app, quick_disk / "undisturbed")
    for at in range(1, MOST_CALLS):
        root = quick_disk / str(at)
        undisturbed(make_app, root)
        (root / "out" / "notes.txt").write_bytes(b"mine")
        has_died = dies(make_app, root, at, fresh=True)
        require_part_of(published(root / "out"), {**expected, "notes.txt": b"mine"})
        run(make_app(root), RunOptions(fresh=True), runtime=InlineRuntime)
        assert published(root / "out") == {**expected, "notes.txt": b"mine"}
        shutil.rmtree(root)
        if not has_died:
            return
    pytest.fail("the run never came through")
