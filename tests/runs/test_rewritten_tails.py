"""Files that are rewritten in place between the plan of what was appended to them and the read of it."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_grown_files import app_over, appending, at_window, published

OTHERS = {
    "in blocks": "batch_bytes: 0, block_size: 4",
    "in windows": "batch_bytes: 0, block_size: 4, blocks_threshold: 1",
    "waiting": "batch_bytes: 0, unterminated: wait",
    "newest first": "latest_first: true",
}
SPLITTERS = {"in a batch": "block_size: 1MiB", **OTHERS}
TAIL = b"line 3\nline 4\n"
REWRITTEN = {
    "shorter": [b"new 1\n", b"new 2\nnew 3\nnew 4\nnew 5\nnew 6\nnew 7\n"],
    "same size": [b"new line 1\nnew line 2\nnew 3\n", b"new 4\n"],
    "longer": [b"new line 1\nnew line 2\nnew line 3\n", b"new 4\n"],
}
"""What the file of 28 bytes is rewritten to, and what is appended to that."""


def ends_before(app: LogicalPlan, window: int, act: Callable[[], object]) -> None:
    """Do something when a window was planned, and die."""

    def act_and_die() -> None:
        act()
        raise DagflowError("the machine is gone")

    with pytest.raises(DagflowError, match="the machine is gone"):
        run(app, RunOptions(), runtime=at_window(window, act_and_die))


@pytest.mark.parametrize("dies", by_day(1, [True, False]), ids=by_day(1, ["the run dies", "the run goes on"]))
@pytest.mark.parametrize(
    ("splitter", "kind"), [*(("in a batch", kind) for kind in REWRITTEN), *((name, "longer") for name in OTHERS)]
)
def test_a_file_that_was_rewritten_in_place_is_read_from_its_beginning(
    tmp_path: Path, splitter: str, kind: str, dies: bool
) -> None:
    """Also where it has grown since, so that it looks appended to; the tail that was planned is listed."""
    app, path = app_over(tmp_path, SPLITTERS[splitter]), write(tmp_path / "in" / "a", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(path, TAIL)()
    new, more = REWRITTEN[kind]
    if dies:
        ends_before(app, last + 1, lambda: path.write_bytes(new))
    else:
        run(app, RunOptions(), runtime=at_window(last + 1, lambda: path.write_bytes(new)))
    appending(path, more)()
    for _ in range(2):
        summary = run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == sorted([b"line 1", b"line 2", *new.splitlines(), *more.splitlines()])
    assert (summary.left_out.bytes, {each.cause for each in summary.left_out.newest}) == (len(TAIL), {"superseded"})


def test_a_rewritten_file_of_the_same_size_and_time_is_known_by_its_bytes(tmp_path: Path) -> None:
    """The driver does not take it for another host's, and the new version is read once, also by later runs."""
    app, path = app_over(tmp_path, "block_size: 1MiB"), write(tmp_path / "in" / "a", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(path, TAIL)()

    def rewrite() -> None:
        before = path.stat()
        path.write_bytes(REWRITTEN["same size"][0])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    first = run(app, RunOptions(), runtime=at_window(last + 1, rewrite))
    assert [each.reason for each in first.left_out.newest] == [
        "sourcechanged: it was rewritten: its first 14 bytes are not those that were read before"
    ]
    for _ in range(3):
        run(app, RunOptions(), runtime=InlineRuntime)
        assert published(tmp_path) == [b"line 1", b"line 2", b"new 3", b"new line 1", b"new line 2"]


@pytest.mark.parametrize("comes_back", ["longer", "same size"])
def test_a_file_that_comes_back_with_other_bytes_is_a_new_one(tmp_path: Path, comes_back: str) -> None:
    """Its tail was gone when it should be read: what was read before the tail decides whether it goes on there."""
    app, path = app_over(tmp_path, "block_size: 1MiB"), write(tmp_path / "in" / "a", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(path, TAIL)()
    away, before = tmp_path / "away", path.stat()
    run(app, RunOptions(), runtime=at_window(last + 1, lambda: path.rename(away)))
    new = REWRITTEN[comes_back][0]
    away.write_bytes(new)
    os.utime(away, ns=(before.st_atime_ns, before.st_mtime_ns))
    away.rename(path)
    for _ in range(3):
        run(app, RunOptions(), runtime=InlineRuntime)
        assert published(tmp_path) == sorted([b"line 1", b"line 2", *new.splitlines()])


def test_a_tail_that_comes_back_is_read_once(tmp_path: Path) -> None:
    """Where the file still begins with what was read before."""
    app, path = app_over(tmp_path, "block_size: 1MiB"), write(tmp_path / "in" / "a", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(path, TAIL)()
    run(app, RunOptions(), runtime=at_window(last + 1, lambda: path.rename(tmp_path / "away")))
    (tmp_path / "away").rename(path)
    appending(path, b"line 5\n")()
    for _ in range(2):
        run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"line 1", b"line 2", b"line 3", b"line 4", b"line 5"]


@pytest.mark.parametrize("becomes", ["other content", "the same again"])
def test_the_rest_of_a_compressed_log_is_read_once_or_as_a_new_file(tmp_path: Path, becomes: str) -> None:
    """It begins behind what was read of the log, as long as the content begins with that."""
    app, log = app_over(tmp_path, "block_size: 1MiB"), write(tmp_path / "in" / "app.log", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    content, archive = log.read_bytes() + TAIL, log.with_name("app.log.1.gz")
    write(archive, gzip.compress(content))
    log.unlink()
    other = gzip.compress(b"new 1\nnew 2\nnew 3\n") + gzip.compress(b"new 4\n")

    def act() -> None:
        if becomes == "other content":
            archive.write_bytes(other)
        else:
            archive.rename(tmp_path / "away")

    ends_before(app, last + 1, act)
    run(app, RunOptions(), runtime=InlineRuntime)
    if becomes == "the same again":
        (tmp_path / "away").rename(archive)
    for _ in range(2):
        run(app, RunOptions(), runtime=InlineRuntime)
    new = gzip.decompress(other).splitlines() if becomes == "other content" else TAIL.splitlines()
    assert published(tmp_path) == sorted([b"line 1", b"line 2", *new])
