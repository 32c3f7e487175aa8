"""Runs whose disk is full, read-only or gone, or whose clock jumps."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.errors import DagflowError, JournalError, StorageError
from dagflow.execution.messages import WindowJob
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from operators.splitter.splitter import FileSplitterInput
from tests.crash.apps import files_app, leftovers, published, require_part_of
from tests.manual_clock import ManualClock
from tests.nightly import by_day, every

LINES = b"".join(b"%sline %d\n" % (b"." if n % 3 == 0 else b"", n) for n in range(400))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with two files."""
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "a.txt").write_bytes(LINES)
    (directory / "b.txt").write_bytes(LINES[:300])
    return directory


def expected_of(source: Path, root: Path) -> dict[str, bytes]:
    """Return what a run without a fault publishes."""
    run(app_of(source, root), runtime=InlineRuntime)
    return published(root / "out")


def app_of(source: Path, root: Path) -> LogicalPlan:
    """Return an app with several windows of a few blocks."""
    return files_app(source, root, block_size=256, blocks=3)


def at_window(window_id: int, act: Callable[[], object]) -> RuntimeFactory:
    """Return a runtime that calls a function once before a window."""

    def before(window: WindowJob) -> None:
        if window.window_id == window_id:
            act()

    return lambda program: InlineRuntime(program, before=before)


@every(20)
def test_a_full_disk_ends_a_run_cleanly_wherever_it_is_met(
    source: Path, tmp_path: Path, disk: Callable[[str], Path], step: int
) -> None:
    """With room for 1, 2, 3, … pages a run ends with the reason; with enough space it continues and completes."""
    expected = expected_of(source, tmp_path / "undisturbed")
    failures = 0
    for pages in range(1, 200, step):
        root = disk("size=4m")
        room = os.statvfs(root)
        with (root / "filler").open("wb") as filler:
            filler.write(b"x" * (room.f_bavail - pages) * room.f_frsize)
        is_complete = False
        try:
            is_complete = run(app_of(source, root), runtime=InlineRuntime).state == "completed"
        except DagflowError as error:
            failures += 1
            assert "No space left on device" in str(error)
            assert "free some space" in str(error)
            assert error.exit_code == 1
        require_part_of(published(root / "out"), expected)
        (root / "filler").unlink()
        run(app_of(source, root), runtime=InlineRuntime)
        assert published(root / "out") == expected
        assert leftovers(root / "out") == []
        for name in ("out", "journal"):
            shutil.rmtree(root / name)
        if is_complete:
            assert failures > 10 // step
            return
    pytest.fail("the run never had enough space")


@pytest.mark.parametrize("window", [1, 3])
def test_output_that_becomes_read_only_ends_a_run_cleanly(
    source: Path, tmp_path: Path, disk: Callable[[str], Path], window: int
) -> None:
    """The error names the cause; once the disk is writable again, the run continues and completes."""
    expected = expected_of(source, tmp_path / "undisturbed")
    root = disk("size=4m,rw")
    made = app_of(source, root)
    app = replace(made, attributes=replace(made.attributes, checkpoint=str(tmp_path / "journal")))

    with pytest.raises(StorageError, match="Read-only file system\n    the file system is mounted read-only"):
        run(app, runtime=at_window(window, lambda: disk("ro")))
    require_part_of(published(root / "out"), expected)
    with pytest.raises(StorageError, match="Read-only file system"):
        run(app, runtime=InlineRuntime)
    disk("rw")
    run(app, runtime=InlineRuntime)
    assert published(root / "out") == expected
    assert leftovers(root / "out") == []


@pytest.mark.parametrize("window", by_day(1, [1, 2, 4]))
def test_a_missing_checkpoint_ends_a_run_until_it_is_restored(source: Path, tmp_path: Path, window: int) -> None:
    """Nothing is published without the journal, no new one is begun, and put back it goes on exactly."""
    expected = expected_of(source, tmp_path / "undisturbed")
    journal, aside = tmp_path / "journal", tmp_path / "aside"

    def vanish() -> None:
        journal.rename(aside)

    with pytest.raises(JournalError, match="vanished"):
        run(app_of(source, tmp_path), runtime=at_window(window, vanish))
    before = published(tmp_path / "out")
    require_part_of(before, expected)
    assert not journal.exists()  # it can be put back, and is not in the way of itself
    aside.rename(journal)
    run(app_of(source, tmp_path), runtime=InlineRuntime)
    assert published(tmp_path / "out") == expected
    # Files of a window with an unknown commit are kept until the journal can be read.
    assert leftovers(tmp_path / "out") == []


def test_a_clock_that_jumps_back_loses_and_repeats_nothing(source: Path, tmp_path: Path) -> None:
    """A day earlier at each restart, and with files from the future, every record is published once."""
    os.utime(source / "b.txt", (4e9, 4e9))
    expected = expected_of(source, tmp_path / "undisturbed")
    clock = ManualClock(1_800_000_000_000)

    def make() -> LogicalPlan:
        made = app_of(source, tmp_path)
        splitter = made.operators["splitter"].operator
        assert isinstance(splitter, FileSplitterInput)
        splitter.use_clock(clock)
        return made

    def fail() -> None:
        raise DagflowError("the lights went out")

    for window in (1, 2, 4):
        with pytest.raises(DagflowError, match="the lights went out"):
            run(make(), runtime=at_window(window, fail))
        clock.advance(-86_400_000)
    run(make(), runtime=InlineRuntime)
    assert published(tmp_path / "out") == expected
    assert run(make(), runtime=InlineRuntime).windows == 0
