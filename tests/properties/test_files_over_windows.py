"""Files that are spread over windows and go midway: what was read is not read again, and the rest is found."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, WindowJob
from dagflow.journal.reader import committed_windows
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.nightly import by_day
from tests.operators.splitter.changes.renames.rotations import (
    COMPRESSORS,
    compress_at_once,
    compress_with_xz,
    compress_with_zstd,
    copy_and_truncate,
    copy_truncate_and_compress,
    rename,
)
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_growing_files import append
from tests.properties.test_grown_files import published

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: ["{folder}/in"], batch_bytes: 0, block_size: 64, blocks_threshold: 2{more}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""

LINES = [b"line %04d " % number + b"x" * (number % 7) for number in range(60)]


ROWS = [b'"%d\n%s",%d\n' % (number, b"y" * (number % 50), number) for number in range(40)]
FORMATS = {
    "quoted newlines": ("{type: csv, header: false, columns: [a, b]}", ROWS),
    "quoted cells": ("{type: csv}", [b"a,b\n", *(b'%d,"say ""%s"""\n' % (n, b"y" * (n % 50)) for n in range(40))]),
    "no quotes": ("{type: csv}", [b"a,b\n", *(b"%d,%s\n" % (number, b"y" * (number % 50)) for number in range(40))]),
    "one long cell": ("{type: csv}", [b"a,b\n", b'1,"%s"\n' % (b"y\n" * 400), b"2,y\n", b"3,y\n"]),
    "escaped newlines": ("escaped_lines", [b"%d\\\n%s\n" % (number, b"y" * (number % 50)) for number in range(40)]),
    "elements": ("{type: xml, tag: r}", [b"<all>\n", *(b"<r><a>%d</a>\n</r>\n" % n for n in range(40)), b"</all>\n"]),
    "a header": ("{type: lines, skip_header: 1}", [b"head\n", *(b"%d %s\n" % (n, b"y" * (n % 50)) for n in range(40))]),
    "paragraphs": ("paragraphs", [b"%d\n%s\n\n" % (number, b"y" * (1 + number % 50)) for number in range(40)]),
}


def move_elsewhere(log: Path) -> None:
    """Where a reader does not look for it by itself."""
    (old := log.with_name("old")).mkdir()
    log.rename(old / "app.log.1")


def move_and_append(log: Path) -> None:
    """By a program that still has it open."""
    move_elsewhere(log)
    append(log.with_name("old") / "app.log.1", b"appended\n")


ROTATIONS = [rename, move_elsewhere, move_and_append, copy_and_truncate, compress_at_once, copy_truncate_and_compress]


class AppOverLog:
    """An app over one log.

    Args:
        folder: Where all of it is.
        content: What the log holds.
        format: Its format.
        name: Its name.
        more: Further properties of the splitter.
    """

    def __init__(
        self, folder: Path, content: bytes, format: str = "lines", name: str = "app.log", more: str = ""
    ) -> None:
        self.folder = folder
        self.log = write(folder / "in" / name, content)
        self._app = load_app(str(write(folder / "app.yaml", APP.format(folder=folder, format=format, more=more))))

    def run(self, act: Callable[[], object] = lambda: None, at: int = 0) -> RunSnapshot:
        """Run; before the window with that number is read, do something."""

        def before(window: WindowJob) -> None:
            if window.window_id == at:
                act()

        def runtime(program: Program) -> Runtime:
            return InlineRuntime(program, before=before)

        return run(self._app, RunOptions(), runtime=runtime)


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("rotate", by_day(2, ROTATIONS))
def test_a_rotated_file_is_read_on_from_where_it_was_read_to(
    tmp_path: Path, rotate: Callable[[Path], None], dies: bool
) -> None:
    """Records lie across all cuts; in the end nothing is listed as left out."""
    life = AppOverLog(tmp_path, b"".join(line + b"\n" for line in LINES))

    def act() -> None:
        rotate(life.log)
        write(life.log, b"new 1\n")
        if dies:
            raise DagflowError("the machine is gone")

    if dies:
        with pytest.raises(DagflowError, match="the machine is gone"):
            life.run(act, at=3)
    else:
        life.run(act, at=3)
    for _ in range(2):
        summary = life.run()
    expected = [*LINES, b"new 1", *([b"appended"] if rotate is move_and_append else [])]
    assert Counter(published(tmp_path)) == Counter(expected)
    assert summary.left_out.ranges == 0


@pytest.mark.parametrize("name", by_day(1, ["app.log.1.zst", "any"]))
@pytest.mark.parametrize("lines", [5, 60], ids=["frames", "one frame"])
def test_a_compressed_file_that_moves_is_read_on_in_its_content(tmp_path: Path, lines: int, name: str) -> None:
    """Frames are in the windows in which they begin; if there is one, all is read when the file goes."""
    records = [line + bytes(random.Random(line).choices(b"abcdef", k=60)) for line in LINES]
    frames = (records[start : start + lines] for start in range(0, len(records), lines))
    content = b"".join(zstd.compress(b"".join(line + b"\n" for line in frame)) for frame in frames)
    life = AppOverLog(tmp_path, content, name="app.log.zst")

    def act() -> None:
        (old := life.log.with_name("old")).mkdir()
        life.log.rename(old / name)

    first = life.run(act, at=3)
    second = life.run()
    assert (first.left_out.ranges > 0, second.left_out.ranges) == (lines == 5, 0)
    assert Counter(published(tmp_path)) == Counter(records)


@pytest.mark.parametrize("rotate", by_day(1, [copy_and_truncate, move_elsewhere, compress_at_once]))
def test_rows_with_newlines_are_read_on_from_within(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    """What begins behind the cut depends on all that lies before it."""
    life = AppOverLog(tmp_path, b"".join(ROWS), "{type: csv, header: false, columns: {a: string, b: int64}}")
    life.run(lambda: rotate(life.log), at=3)
    life.run()
    found = [int(record.rpartition(b'"b":')[2].rstrip(b"}")) for record in published(tmp_path)]
    assert sorted(found) == list(range(40))


@pytest.mark.parametrize(
    ("rotate", "at"),
    by_day(2, [(move_elsewhere, 3), (compress_at_once, 2), (compress_with_xz, 3), (compress_with_zstd, 6)]),
)
@pytest.mark.parametrize("kind", by_day(2, FORMATS))
def test_what_is_rotated_midway_gives_what_one_read_gives(
    tmp_path: Path, kind: str, rotate: Callable[[Path], None], at: int
) -> None:
    """Wherever it is cut; of a compressed file the state at the cut is found in its content."""
    format, parts = FORMATS[kind]
    other = AppOverLog(tmp_path / "other", b"".join(parts), format)
    other.run()
    life = AppOverLog(tmp_path, b"".join(parts), format)
    first = life.run(lambda: rotate(life.log), at=at)
    assert first.left_out.ranges > 0 and published(tmp_path)
    assert life.run().left_out.ranges == 0
    assert Counter(published(tmp_path)) == Counter(published(other.folder))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_an_archive_that_grows_is_read_on_from_within(tmp_path: Path, suffix: str) -> None:
    """The file that it has the content of was read in part, and some of its streams come later."""
    life = AppOverLog(tmp_path, b"".join(ROWS), FORMATS["quoted newlines"][0], more=", unterminated: wait")
    archive = life.log.with_name(f"app.log.1{suffix}")
    streams = [COMPRESSORS[suffix](b"".join(ROWS[start : start + 20])) for start in (0, 20)]

    def act() -> None:
        life.log.unlink()
        write(archive, streams[0])

    life.run(act, at=3)
    life.run()
    append(archive, streams[1])
    life.run()
    found = [int(record.rpartition(b'"b":"')[2].rstrip(b'"}')) for record in published(tmp_path)]
    assert sorted(found) == list(range(40))


def test_a_version_that_is_back_is_read_on_from_where_it_was_gone(tmp_path: Path) -> None:
    """A window behind the one that missed it finds it; what it reads would leave a hole, so it reads nothing."""
    life = AppOverLog(tmp_path, b"".join(line + b"\n" for line in LINES))
    away = tmp_path / "away"
    seen = []

    def before(window: WindowJob) -> None:
        # It is away while window 3 is read, and back for those that were emitted by then.
        if window.window_id == 3 and not away.exists():
            life.log.rename(away)
        elif window.window_id > 3 and away.exists():
            away.rename(life.log)
        seen.append(window.window_id)

    def runtime(program: Program) -> Runtime:
        return InlineRuntime(program, before=before)

    app = load_app(str(tmp_path / "app.yaml"))
    first = run(app, RunOptions(), runtime=runtime)
    assert os.path.exists(life.log) and seen[-1] > 4
    assert first.left_out.bytes == life.log.stat().st_size - 4 * 64
    later = life.run()
    assert Counter(published(tmp_path)) == Counter(LINES)
    assert later.left_out.ranges == 0


@pytest.mark.parametrize("order", by_day(1, ["", ", latest_first: true"]), ids=by_day(1, ["by path", "newest first"]))
@pytest.mark.parametrize(("name", "unterminated"), [("app.log", "keep"), ("app.log", "wait"), ("app.log.zst", "keep")])
def test_the_rest_of_what_was_put_back_is_read_in_either_order(
    tmp_path: Path, name: str, order: str, unterminated: str
) -> None:
    """A record lies across the place where the file was gone; of a compressed one the place is in its content."""
    content = [b"".join(line + b"\n" for line in LINES[start : start + 5]) for start in range(0, len(LINES), 5)]
    held = b"".join(zstd.compress(each) for each in content) if name.endswith("zst") else b"".join(content)
    more = f"{order}, unterminated: {unterminated}"
    life, away = AppOverLog(tmp_path, held, name=name, more=more), tmp_path / "away"
    first = life.run(lambda: life.log.rename(away), at=3)
    away.rename(life.log)
    second = life.run()
    assert first.left_out.ranges > 0
    assert Counter(published(tmp_path)) == Counter(LINES)
    assert second.left_out.ranges == 0


def dying(act: Callable[[], object] = lambda: None) -> Callable[[], object]:
    """Does something, and ends the run."""

    def act_and_die() -> None:
        act()
        raise DagflowError("the machine is gone")

    return act_and_die


def restore(log: Path, content: bytes) -> None:
    """Put another file in its place, with its size and time."""
    copy = write(log.parent.with_name("copy"), content)
    assert len(content) == log.stat().st_size
    shutil.copystat(log, copy)
    copy.replace(log)


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_a_file_that_is_restored_midway_is_read_on_in_the_copy(tmp_path: Path, dies: bool) -> None:
    """The inode is another one, as where a directory tree is restored; what was read comes once."""
    content = b"".join(line + b"\n" for line in LINES)
    life = AppOverLog(tmp_path, content)
    if dies:
        with pytest.raises(DagflowError, match="the machine is gone"):
            life.run(dying(), at=3)
        restore(life.log, content)
        life.run()
    else:
        assert life.run(lambda: restore(life.log, content), at=3).left_out.ranges > 0
    last = life.run()
    assert Counter(published(tmp_path)) == Counter(LINES)
    assert last.left_out.ranges == 0


def test_a_file_of_that_size_and_time_with_other_bytes_is_read_as_a_whole(tmp_path: Path) -> None:
    """It is no copy of the one that was read in part."""
    life = AppOverLog(tmp_path, b"".join(line + b"\n" for line in LINES))
    with pytest.raises(DagflowError, match="the machine is gone"):
        life.run(dying(), at=3)
    before, lines = published(tmp_path), [b"line 0000!", *LINES[1:]]
    restore(life.log, b"".join(line + b"\n" for line in lines))
    for _ in range(2):
        life.run()
    assert before and Counter(published(tmp_path)) == Counter([*before, *lines])


def test_a_compressed_file_that_is_restored_midway_is_read_as_a_whole(tmp_path: Path) -> None:
    """What was read of it is of its content, and nothing shows that the copy begins with it."""
    frames = (LINES[start : start + 5] for start in range(0, len(LINES), 5))
    content = b"".join(zstd.compress(b"".join(line + b"\n" for line in frame)) for frame in frames)
    life = AppOverLog(tmp_path, content, name="app.log.zst")
    with pytest.raises(DagflowError, match="the machine is gone"):
        life.run(dying(), at=3)
    before = published(tmp_path)
    restore(life.log, content)
    for _ in range(2):
        life.run()
    assert before and Counter(published(tmp_path)) == Counter([*before, *LINES])


@pytest.mark.parametrize("at", by_day(1, [8, 9, 10]))
def test_what_was_planned_again_is_read_although_the_run_dies(tmp_path: Path, at: int) -> None:
    """The file was gone for an earlier plan, and not for the windows that were emitted when it was back."""
    life, away = AppOverLog(tmp_path, b"".join(line + b"\n" for line in LINES)), tmp_path / "away"
    first = life.run(lambda: life.log.rename(away), at=3)
    assert first.left_out.bytes == away.stat().st_size - 4 * 64
    away.rename(life.log)
    with pytest.raises(DagflowError, match="the machine is gone"):
        life.run(dying(), at=at)
    assert life.run().left_out.ranges == 0
    assert Counter(published(tmp_path)) == Counter(LINES)


@pytest.mark.parametrize("at", by_day(1, [4, 5, 6]))
def test_what_was_planned_before_a_file_was_gone_leaves_it_out(tmp_path: Path, at: int) -> None:
    """Also where the run dies, and the file is back for the next one: what it reads would leave a hole."""
    life, away = AppOverLog(tmp_path, b"".join(line + b"\n" for line in LINES)), tmp_path / "away"

    def before(window: WindowJob) -> None:
        if window.window_id == 3 and life.log.exists():
            life.log.rename(away)
        elif window.window_id == at:
            raise DagflowError("the machine is gone")

    with pytest.raises(DagflowError, match="the machine is gone"):
        run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=lambda each: InlineRuntime(each, before=before))
    away.rename(life.log)
    for _ in range(2):
        summary = life.run()
    windows = committed_windows(StorageContext.default().objects(str(tmp_path / "journal")))
    assert at in {window.plan.window_id for window in windows if window.intent is not None and window.intent.skipped}
    assert summary.left_out.ranges == 0
    assert Counter(published(tmp_path)) == Counter(LINES)
