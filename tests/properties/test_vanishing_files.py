"""Files that are replaced, truncated, deleted or renamed before they are read: all of a version or none of it."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program, WindowJob
from dagflow.journal.reader import committed_windows
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.s3.client import S3Client
from dagflow.storage.context import StorageContext
from tests.nightly import by_day, examples
from tests.operators.splitter.splitter_driver import write
from tests.properties.test_grown_files import app_over, at_window, published

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{folder}/in", block_size: 8, {splitter}}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2, max_readers: 2, {reader}}}}}
  changer: {{class: tests.properties.test_vanishing_files.Changer, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: changer.input}}
  changed: {{from: changer.output, to: writer.input}}
"""


class Changer(Operator):
    """Does something to the input when the first records arrive."""

    act: ClassVar[Callable[[], object] | None] = None

    input = InputPort()
    output = OutputPort()

    @input.batch
    def pass_on(self, batch: RecordBatch) -> None:
        """Pass on, and act once."""
        act, Changer.act = Changer.act, None
        self.output.emit(batch)
        if act is not None:
            act()


def replace_by_rename(path: Path, content: bytes = b"new 1\nnew 2\n") -> None:
    """As careful writers do."""
    write(path.with_name(".new"), content).rename(path)


MEANWHILE: dict[str, tuple[Callable[[Path], object], list[bytes]]] = {
    "deleted": (lambda path: path.unlink(), []),
    "replaced": (replace_by_rename, [b"new 1", b"new 2"]),
    "truncated": (lambda path: path.write_bytes(b"new\n"), [b"new"]),
    "emptied": (lambda path: path.write_bytes(b""), []),
}


@pytest.mark.parametrize("reader", by_day(1, ["on_error: fail", "format: {type: csv, header: false, columns: [a]}"]))
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_version_that_goes_while_it_is_read_is_left_out_whole(tmp_path: Path, meanwhile: str, reader: str) -> None:
    """Its blocks are in two partitions, and the first is read when it goes; the new version comes with the next run."""
    act, new = MEANWHILE[meanwhile]
    write(tmp_path / "app.yaml", APP.format(folder=tmp_path, splitter="batch_bytes: 0", reader=reader))
    path = write(tmp_path / "in" / "a", b"line 1\nline 2\nline 3\nline 4\n")
    write(tmp_path / "in" / "b", b"other\n")
    app = load_app(str(tmp_path / "app.yaml"))
    Changer.act = lambda: act(path)
    summary = run(app, RunOptions(), runtime=InlineRuntime)
    assert (summary.state, published(tmp_path)) == ("completed", _as_written(reader, [b"other"]))
    assert (summary.left_out.bytes, {each.is_gone for each in summary.left_out.newest}) == (28, {True})
    assert summary.byte_accounting()["bytes"] == 34 == sum(summary.byte_accounting().values()) - 34
    later = run(app, RunOptions(), runtime=InlineRuntime)
    assert later.left_out == summary.left_out
    assert published(tmp_path) == _as_written(reader, sorted([*new, b"other"]))


def _as_written(reader: str, records: list[bytes]) -> list[bytes]:
    return [b'{"a":"%s"}' % record for record in records] if "csv" in reader else records


def replace_by_twin(path: Path, content: bytes) -> None:
    """By another file of the same size and time."""
    before = path.stat()
    new = write(path.with_name(".new"), content)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (new.stat().st_size, new.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    new.rename(path)


@pytest.mark.parametrize("content", [b"new 1\nnew 2\n", b"old 1\nold 2\n"], ids=["other bytes", "same bytes"])
@pytest.mark.parametrize("splitter", ["block_size: 1MiB", "batch_bytes: 0, block_size: 4"], ids=["batch", "blocks"])
def test_a_file_of_the_same_size_and_time_is_another_version(tmp_path: Path, splitter: str, content: bytes) -> None:
    """The version that was planned is listed for good, and the other one is read once, by the next run."""
    app, path = app_over(tmp_path, splitter), write(tmp_path / "in" / "b", b"old 1\nold 2\n")
    for name in "ac":
        write(path.with_name(name), name.encode())
    first = run(app, RunOptions(), runtime=at_window(1, lambda: replace_by_twin(path, content)))
    assert published(tmp_path) == [b"a", b"c"]
    assert (first.left_out.bytes, {each.cause for each in first.left_out.newest}) == (12, {"superseded"})
    assert all("another file of the same name, size and time" in each.reason for each in first.left_out.newest)
    for _ in range(2):
        assert run(app, RunOptions(), runtime=InlineRuntime).left_out == first.left_out
        assert published(tmp_path) == [b"a", b"c", *content.splitlines()]


SPLITTERS_PUT_BACK = {
    "batch": "block_size: 1MiB",
    "blocks": "batch_bytes: 0, block_size: 4",
    "no tails": "on_change: {appended: reread}",
}


@pytest.mark.parametrize("splitter", SPLITTERS_PUT_BACK.values(), ids=SPLITTERS_PUT_BACK)
def test_a_version_that_is_put_back_is_read_after_all(tmp_path: Path, splitter: str) -> None:
    """It is listed as left out until then, and no longer."""
    app, path = app_over(tmp_path, splitter), write(tmp_path / "in" / "a", b"line 1\nline 2\n")
    away = tmp_path / "away"
    first = run(app, RunOptions(), runtime=at_window(1, lambda: path.rename(away)))
    assert [each.cause for each in first.left_out.newest] == ["deleted"] * first.left_out.ranges
    assert run(app, RunOptions(), runtime=InlineRuntime).left_out.bytes == 14
    away.rename(path)
    for _ in range(2):
        again = run(app, RunOptions(), runtime=InlineRuntime)
        assert (again.left_out.ranges, again.left_out.bytes, again.left_out.newest) == (0, 0, [])
        assert published(tmp_path) == [b"line 1", b"line 2"]


def test_a_run_that_shall_end_goes_on_as_its_hint_says(tmp_path: Path) -> None:
    """With on_vanished: fail it ends, as often as it is started; with skip it completes, and what is new is read."""
    app = app_over(tmp_path, "batch_bytes: 0")
    path = write(tmp_path / "in" / "a", b"old\n")
    failing = RunOptions()
    text = (tmp_path / "app.yaml").read_text()
    write(tmp_path / "app.yaml", text.replace("{format: lines}", "{on_vanished: fail}"))
    app = load_app(str(tmp_path / "app.yaml"))
    with pytest.raises(DagflowError, match=r"in/a[\s\S]*set on_vanished: skip on the reader"):
        run(app, failing, runtime=at_window(1, lambda: replace_by_rename(path)))
    with pytest.raises(DagflowError, match=r"in/a[\s\S]*set on_vanished: skip on the reader"):
        run(app, failing, runtime=InlineRuntime)
    write(tmp_path / "app.yaml", text)
    summary = run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    assert (summary.state, summary.left_out.bytes) == ("completed", 4)
    run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"new 1", b"new 2"]


class Crash(Exception):
    """The driver dies."""


class History:
    """A directory in which files move, and what every version of them held.

    Args:
        folder: The directory.
        partial: Whether a program writes the last of its lines in two parts.
        suffix: Of the names of files; ".gz" for one member each time that a program writes.
    """

    def __init__(self, folder: Path, *, partial: bool, suffix: str = "") -> None:
        self.folder = folder
        self.partial = partial
        self.suffix = suffix
        self.number = self.mtime = 0
        self.cut_off: dict[int, bytes] = {}
        self.held: dict[tuple[str, int, int], bytes] = {}
        folder.mkdir()

    def lines(self, count: int) -> bytes:
        """Lines that are nowhere else."""
        self.number += count
        data = b"".join(b"line %05d\n" % number for number in range(self.number - count, self.number))
        return gzip.compress(data, mtime=0) if self.suffix else data

    def read(self, data: bytes) -> list[bytes]:
        """The lines in some bytes of a file; none where these begin within a member."""
        if not self.suffix:
            return data.splitlines()
        return gzip.decompress(data).splitlines() if data.startswith(gzip.compress(b"")[:2]) else []

    def do(self, step: tuple[str, str, int]) -> None:
        """Do one thing to one file."""
        what, name, count = step
        name += self.suffix
        path, away = self.folder / name, self.folder / f".{name}"
        content = path.read_bytes() if path.exists() else b""
        if what == "append":
            data = self.lines(count)
            cut = len(data) - 4 if self.partial and content.endswith(b"\n") and count == 3 else len(data)
            with path.open("ab") as file:
                inode = os.fstat(file.fileno()).st_ino
                file.write(self.cut_off.pop(inode, b"") + data[:cut])
                self.cut_off[inode] = data[cut:]
        elif what == "replace":
            write(self.folder / ".new", self.lines(count)).rename(path)
            away.unlink(missing_ok=True)
            self.cut_off.pop(path.stat().st_ino, None)
        elif what == "rewrite":
            path.write_bytes(self.lines(count))
            self.cut_off.pop(path.stat().st_ino, None)
        elif what == "delete":
            path.unlink(missing_ok=True)
        elif what == "rename" and path.exists():
            path.rename(away)
        elif what == "put back" and away.exists() and not path.exists():
            away.rename(path)
        for each in (path, away):
            if each.exists():
                self._note(each, is_changed=each == path and what in ("append", "replace", "rewrite"), name=name)

    def _note(self, path: Path, *, is_changed: bool, name: str) -> None:
        if is_changed:
            self.mtime += 1
            os.utime(path, ns=(self.mtime * 10**9, self.mtime * 10**9))
        found = path.stat()
        self.held[name, found.st_size, found.st_mtime_ns] = path.read_bytes()


STEPS = st.tuples(
    st.sampled_from(["append", "append", "replace", "rewrite", "delete", "rename", "put back"]),
    st.sampled_from("ab"),
    st.integers(1, 3),
)
ROUNDS = st.lists(
    st.tuples(st.lists(STEPS, max_size=3), st.lists(STEPS, max_size=3), st.sampled_from(["", "before"])),
    min_size=1,
    max_size=5,
)


SPLITTERS = [
    "block_size: 1MiB",
    "batch_bytes: 0, block_size: 16",
    "batch_bytes: 0, block_size: 16, blocks_threshold: 1",
]


@settings(max_examples=examples(10), deadline=None)
@given(ROUNDS, st.sampled_from(SPLITTERS), st.sampled_from(["", "waits", "compressed"]))
@example(
    rounds=[
        ([("append", "a", 1)], [("rename", "a", 1)], ""),
        ([("append", "a", 1)], [], ""),
        ([("append", "b", 1), ("delete", "a", 1)], [("put back", "a", 1)], ""),
    ],
    splitter="block_size: 1MiB",
    kind="",
)
@example(
    rounds=[([("append", "a", 1)], [], ""), ([("append", "a", 1)], [("rewrite", "a", 2)], "before")],
    splitter="block_size: 1MiB",
    kind="",
)
def test_any_history_of_moving_files_loses_and_doubles_nothing(
    rounds: list[tuple[list[tuple[str, str, int]], list[tuple[str, str, int]], str]], splitter: str, kind: str
) -> None:
    """What stayed readable arrives once, over crashes too; of what went all or nothing, and it is listed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        app = app_over(folder, splitter + (", unterminated: wait" if kind == "waits" else ""))
        history = History(folder / "in", partial=kind == "waits", suffix=".gz" if kind == "compressed" else "")
        for before, between, crash in rounds:
            for step in before:
                history.do(step)
            _run(app, history, between, crash)
        for name in "ab":
            history.do(("append", name, 1))
        for _ in range(3):
            summary = _run(app, history, [], "")
        counts = Counter(published(folder))
        assert {line: count for line, count in counts.items() if count > 1} == {}
        expected = {line for path in (folder / "in").glob("[ab]*") for line in history.read(path.read_bytes())}
        assert expected - set(counts) == set()
        listed = 0
        for window in committed_windows(StorageContext.default().objects(str(folder / "journal"))):
            assert window.intent is not None
            listed += len(window.intent.skipped) - len(window.intent.recovered)
            for each in window.intent.skipped:
                held = history.held[Path(each.url).name, each.size_bytes, each.mtime_ns]
                lost = set(history.read(held[each.start : each.end])[0 if history.suffix else 1 : -1])
                assert each in window.intent.recovered or each not in summary.left_out.newest or not lost & set(counts)
        assert summary.left_out.ranges == listed


def _run(app: LogicalPlan, history: History, between: list[tuple[str, str, int]], crash: str) -> RunSnapshot:
    steps = list(between)

    def before(window: WindowJob) -> None:
        while steps:
            history.do(steps.pop(0))
        if crash == "before":
            raise Crash

    def runtime(program: Program) -> Runtime:
        return InlineRuntime(program, before=before)

    try:
        return run(app, RunOptions(), runtime=runtime)
    except Crash:
        return RunSnapshot("crashed")


@pytest.mark.parametrize("splitter", ["block_size: 1MiB", "batch_bytes: 0, block_size: 8"], ids=["batch", "blocks"])
def test_objects_that_go_before_they_are_read_are_left_out(tmp_path: Path, s3_root: str, splitter: str) -> None:
    """By their etag, or because there are none any more; a new one is read like any new file."""
    filesystem, path = S3Client("s3", {}).locate(f"{s3_root}/in")
    for name in "ab":
        filesystem.pipe_file(f"{path}/{name}", b"line 1\nline 2\n")
    text = APP.format(folder=tmp_path, splitter=splitter, reader="").replace(f"{tmp_path}/in", f"{s3_root}/in")
    write(tmp_path / "app.yaml", text.replace("block_size: 8, ", "", 1))
    write(tmp_path / "out" / "none", b"")

    def act() -> None:
        filesystem.pipe_file(f"{path}/a", b"line 3\n")
        filesystem.rm_file(f"{path}/b")

    app = load_app(str(tmp_path / "app.yaml"))
    summary = run(app, RunOptions(), runtime=at_window(1, act))
    assert (summary.state, summary.left_out.bytes) == ("completed", 28)
    causes = {(each.url.rpartition("/")[2], each.cause) for each in summary.left_out.newest}
    assert causes == {("a", "superseded"), ("b", "deleted")}
    run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"line 3"]
