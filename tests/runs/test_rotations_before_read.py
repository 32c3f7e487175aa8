"""Logs that are rotated between the plan of their last lines and the read: each line comes exactly once."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.splitter.changes.renames.rotations import (
    compress_at_once,
    compress_later,
    copy_and_truncate,
    mirror,
    move_to_another_file_system,
    rename_into_directory,
)
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_grown_files import app_over, appending, at_window, published

ROTATIONS = [compress_at_once, copy_and_truncate, rename_into_directory, move_to_another_file_system, mirror]
SPLITTERS = {
    "in a batch": "block_size: 1MiB",
    "batch that waits": "unterminated: wait",
    "waiting": "batch_bytes: 0, unterminated: wait",
}


@pytest.mark.parametrize("dies", [True, False], ids=["the run dies", "the run goes on"])
@pytest.mark.parametrize("splitter", SPLITTERS.values(), ids=SPLITTERS)
@pytest.mark.parametrize("rotate", by_day(2, ROTATIONS), ids=lambda rotate: rotate.__name__)
def test_what_was_planned_of_a_log_is_read_where_it_is_now(
    tmp_path: Path, rotate: Callable[[Path], None], splitter: str, dies: bool
) -> None:
    """Also where the next run finds it gone, which plans nothing of what lies elsewhere before it knows that."""
    app, log = app_over(tmp_path, splitter), write(tmp_path / "in" / "app.log", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(log, b"line 3\nline 4\n")()

    def act() -> None:
        rotate(log)
        if dies:
            raise DagflowError("the machine is gone")

    try:
        run(app, RunOptions(), runtime=at_window(last + 1, act))
    except DagflowError as error:
        assert str(error) == "the machine is gone"
    for _ in range(2):
        summary = run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"line 1", b"line 2", b"line 3", b"line 4"]
    # Read under another name, it is not left out any more.
    assert (summary.left_out.ranges, summary.left_out.newest) == (0, [])


@pytest.mark.parametrize("splitter", ["block_size: 1MiB", "on_change: {appended: reread}"], ids=["tails", "no tails"])
@pytest.mark.parametrize("goes", [False, True], ids=["read there", "deleted there"])
def test_what_was_left_out_is_listed_once_and_under_its_newest_name(tmp_path: Path, goes: bool, splitter: str) -> None:
    """Until it is read: a file that was not read at all before is found by its inode."""
    app, log = app_over(tmp_path, splitter), write(tmp_path / "in" / "app.log", b"line 1\nline 2\n")
    moved = log.parent / "old" / "app.log.1"
    first = run(app, RunOptions(), runtime=at_window(1, lambda: rename_into_directory(log)))
    assert [(each.url, each.end) for each in first.left_out.newest] == [(str(log), 14)]
    act = moved.unlink if goes else lambda: None
    second = run(app, RunOptions(), runtime=at_window(first.last_planned + 1, act))
    assert [(each.url, each.end) for each in second.left_out.newest] == ([(str(moved), 14)] if goes else [])
    assert (second.left_out.ranges, second.left_out.bytes) == ((1, 14) if goes else (0, 0))
    assert goes or published(tmp_path) == [b"line 1", b"line 2"]


@pytest.mark.parametrize("rotations", [2, 9])
def test_a_log_that_was_rotated_many_times_between_two_runs_is_read_once(tmp_path: Path, rotations: int) -> None:
    """The second last one is compressed meanwhile, and has another inode and a name far from its old one."""
    app, log = app_over(tmp_path, "block_size: 1MiB"), tmp_path / "in" / "app.log"
    written: list[bytes] = []

    def rotate_and_log() -> None:
        if log.exists():
            compress_later(log)
        written.append(b"line %02d" % len(written))
        write(log, written[-1] + b"\n")

    for _ in range(2):
        rotate_and_log()
    run(app, RunOptions(), runtime=InlineRuntime)
    for _ in range(rotations):
        rotate_and_log()
    run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == written


@pytest.mark.parametrize("shares", [[0.6], [0.6, 0.8], [0.6, 0.6]], ids=["once", "and grows", "and pauses"])
def test_a_log_that_is_compressed_slowly_goes_on_behind_what_was_read(tmp_path: Path, shares: list[float]) -> None:
    """What is there of its content waits, until it is whole; the log itself was compressed elsewhere."""
    app, log = app_over(tmp_path, "unterminated: wait"), tmp_path / "in" / "app.log"
    lines = [b"line %04d of %x" % (number, number**7) for number in range(1, 901)]
    write(log, b"".join(line + b"\n" for line in lines[:200]), mtime_s=1000)
    run(app, RunOptions(), runtime=InlineRuntime)
    log.unlink()
    whole = gzip.compress(b"".join(line + b"\n" for line in lines))
    for share in (*shares, 1):
        compressed = log.with_name("app.log.1.gz")
        with compressed.open("ab") as file:
            file.write(whole[compressed.stat().st_size : int(len(whole) * share)])
        run(app, RunOptions(), runtime=InlineRuntime)
        assert published(tmp_path) == lines[: 900 if share == 1 else 200]
    assert run(app, RunOptions(), runtime=InlineRuntime).left_out.ranges == 0
    assert published(tmp_path) == lines


def test_a_log_that_is_gone_between_two_blocks_goes_on_behind_them(tmp_path: Path) -> None:
    """The record across them was read with the first of the two."""
    app = app_over(tmp_path, "block_size: 100, blocks_threshold: 2, batch_bytes: 0")
    lines = [b"line %02d of many" % number for number in range(40)]
    log = write(tmp_path / "in" / "app.log", b"".join(line + b"\n" for line in lines))
    run(app, RunOptions(), runtime=at_window(2, lambda: rename_into_directory(log)))
    for _ in range(2):
        run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == lines


@pytest.mark.parametrize("splitter", ["batch_bytes: 0", "unterminated: wait"], ids=["does not grow", "may grow"])
def test_the_rest_of_a_compressed_log_is_one_block_under_any_name(tmp_path: Path, splitter: str) -> None:
    """The name that it has when it is back does not say that it is compressed."""
    app, log = app_over(tmp_path, f"block_size: 200, {splitter}"), tmp_path / "in" / "app.log"
    lines = [b"line %04d of %x" % (number, number**7) for number in range(1, 201)]
    write(log, b"".join(line + b"\n" for line in lines[:100]))
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    log.unlink()
    compressed, aside = log.with_name("app.log.gz"), tmp_path / "aside"
    write(compressed, gzip.compress(b"".join(line + b"\n" for line in lines)))
    run(app, RunOptions(), runtime=at_window(last + 1, lambda: compressed.rename(aside)))
    assert published(tmp_path) == lines[:100]
    aside.rename(log.with_name("old"))
    for _ in range(2):
        run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == lines
