"""Windows that are run again, with real journals and files."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from dagflow.engine.live_run import StopRequest
from dagflow.engine.replayer import ReplayedWindow
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import app_file, replay_windows
from dagflow.errors import (
    DagflowError,
    JournalError,
    MissingError,
    RunStoppedError,
    SourceChangedError,
    StorageError,
)
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.journal.journal import Journal
from dagflow.plan.load import load_app
from dagflow.report.manifest import manifests, tracked_files, window_manifest
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.test_driver import crashing
from tests.nightly import by_day

STORAGE = StorageContext.default()

APP = """\
name: sample
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], blocks_threshold: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {max_readers: 1}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory in which an app has read three files in three windows."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(f"# {name}\n{name}1\n{name}2\n")
    with contextlib.chdir(tmp_path):
        run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
        yield tmp_path


def published(folder: Path) -> dict[str, str]:
    """Names and contents of the published files; fails where anything else lies about."""
    return {path.name: path.read_text() for path in sorted((folder / "out").iterdir())}


def again(*windows: int, change: tuple[str, str] = ("", "")) -> list[ReplayedWindow]:
    """Replay windows with an app in which something was replaced by something else."""
    Path("app.yaml").write_text(APP.replace(*change) if change[0] else APP)
    return replay_windows(load_app(app_file("journal", STORAGE)), RunOptions(), list(windows), runtime=InlineRuntime)


def test_a_replay_with_the_same_app_changes_nothing(folder: Path) -> None:
    """The same blocks give the same bytes under the same names."""
    before, status_before = published(folder), status("journal", STORAGE)
    [window] = again(2)
    assert [change.change for change in window.changes] == ["unchanged"]
    assert published(folder) == before
    assert status("journal", STORAGE).records == status_before.records
    worked = window_manifest("journal", 2, STORAGE).busy_s
    assert worked.keys() == {"reader", "filter", "writer"} and all(seconds > 0 for seconds in worked.values())


def test_a_replay_replaces_exactly_what_its_window_published(folder: Path) -> None:
    """Today's app decides what; other windows stay, the account follows, and a later run has nothing to do."""
    before = published(folder)
    [window] = again(2, change=('drop: {prefix: "#"}', 'keep: {prefix: "b1"}'))
    [name] = [name for name in before if before[name].startswith("b")]
    assert published(folder) == {**before, name: "b1\n"}
    [change] = window.changes
    assert (change.change, change.records_before, change.records_after) == ("replaced", 2, 1)
    assert status("journal", STORAGE).records == {"reader.errors": 0, "reader.messages": 9, "filter.output": 5}
    [output] = window_manifest("journal", 2, STORAGE).outputs
    assert (output.records, output.size_bytes) == (1, 3)
    summary = run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    assert (summary.windows, published(folder)) == (0, {**before, name: "b1\n"})


def test_files_that_a_replay_no_longer_makes_go_and_new_ones_come(folder: Path) -> None:
    """Names may change from part files to blocks; --fresh knows the new ones."""
    before = published(folder)
    [window] = again(1, change=("path: out", "path: out, file_name: block"))
    assert sorted(change.change for change in window.changes) == ["added", "removed"]
    assert sorted(published(folder).values()) == sorted(before.values())
    assert (folder / "out" / f"{1:016x}").read_text() == "a1\na2\n"
    [file] = tracked_files("journal", "in/a", STORAGE)
    assert list(file.outputs) == [str(folder / "out" / f"{1:016x}")]
    Path("app.yaml").write_text(APP)
    with (folder / "in" / "a").open("a") as file_a:
        file_a.write("a3\n")
    run(load_app("app.yaml"), RunOptions(fresh=True), runtime=InlineRuntime)
    assert sorted(published(folder).values()) == ["a1\na2\na3\n", "b1\nb2\n", "c1\nc2\n"]


def test_a_stage_that_is_new_in_a_replay_has_the_partitions_of_its_policy(folder: Path) -> None:
    """The policy that the app names decides, as in a run; the window's plan knows nothing of the stage."""
    alone = 'drop: {prefix: "#"}}, partitioner: {class: StatelessPartitioner, properties: {count: 1}}'
    again(2, change=('drop: {prefix: "#"}}, partition: parallel', alone))
    with contextlib.closing(Journal.open(STORAGE.objects("journal"), app="sample")) as journal:
        window = journal.window(2)
    assert window.intent is not None
    assert [(each.stage, each.partition) for each in window.intent.produced] == [("filter", 0)]


def test_a_replay_that_fails_replaces_nothing(folder: Path) -> None:
    """Neither a changed input nor a name that is taken."""
    before = published(folder)
    (folder / "in" / "b").write_text("something else\n")
    with pytest.raises(SourceChangedError, match="the file changed after it was planned") as changed:
        again(2)
    assert changed.value.hint == "put the version back that was read; nothing was replaced"  # a replay leaves none out
    (folder / "out" / f"{1:016x}").write_text("mine")
    with pytest.raises(StorageError, match="files that this checkpoint did not publish"):
        again(1, change=("path: out", "path: out, file_name: block"))
    (folder / "out" / f"{1:016x}").unlink()
    assert published(folder) == before
    assert not list((folder / "out").rglob(".*"))


def test_a_replay_of_an_unknown_window_leaves_the_checkpoint_alone(folder: Path) -> None:
    """A number that was mistyped is no failure of the app's runs."""
    before = {path: path.read_bytes() for path in (folder / "journal").rglob("*") if path.is_file()}
    with pytest.raises(MissingError, match="window 7 is unknown"):
        again(7)
    assert {path: path.read_bytes() for path in (folder / "journal").rglob("*") if path.is_file()} == before


def test_a_replay_does_not_leave_out_what_its_window_has_read(folder: Path) -> None:
    """What was published of a file that is gone, or is another one now, is nowhere else."""
    skipping = ("max_readers: 1", "max_readers: 1, on_error: skip")
    before = published(folder)
    (folder / "in" / "a").unlink()
    (folder / "in" / "b").write_text("another\n")
    for window, name in ((1, "a"), (2, "b")):
        with pytest.raises(StorageError, match=f"window {window} has published records of this file") as caught:
            again(3, window, change=skipping)
        assert (caught.value.url, published(folder)) == (str(folder / "in" / name), before)
    assert not list((folder / "out").rglob(".*"))


def test_a_replay_leaves_out_what_its_window_has_left_out(folder: Path) -> None:
    """The window published nothing of such a file, so the replay loses nothing."""
    (folder / "in" / "d.gz").write_bytes(gzip.compress(b"d1\n")[:-4])
    (folder / "in" / "e").write_text("e1\n")
    Path("app.yaml").write_text(APP.replace("max_readers: 1", "max_readers: 1, on_error: skip"))
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    before = published(folder)
    assert len(window_manifest("journal", 4, STORAGE).skipped) == 1
    assert [window.changes for window in again(4, change=("max_readers: 1", "max_readers: 1, on_error: skip"))] == [()]
    assert published(folder) == before


SKIPPING = ("max_readers: 1", "max_readers: 1, on_error: skip")


def listed() -> list[tuple[str, str]]:
    """The name of each range that is listed as left out, and why it was; their number and bytes agree."""
    found = status("journal", STORAGE).left_out
    assert (found.ranges, found.bytes) == (len(found.newest), sum(each.lost_bytes for each in found.newest))
    return [(Path(each.url).name, each.cause) for each in found.newest]


def test_a_replay_takes_what_it_reads_off_the_list(folder: Path) -> None:
    """The version that could not be read; not while it cannot be, nor while it is away."""
    good, path = gzip.compress(b"d1\n"), folder / "in" / "d.gz"
    path.write_bytes(good[:-4] + b"\xff" * 4)
    planned = path.stat()
    Path("app.yaml").write_text(APP.replace(*SKIPPING))
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    again(4, change=SKIPPING)
    path.rename(folder / "away")
    again(4, change=SKIPPING)
    assert listed() == [("d.gz", "unreadable")]
    (folder / "away").rename(path)
    path.write_bytes(good)
    os.utime(path, ns=(planned.st_atime_ns, planned.st_mtime_ns))
    for _ in range(2):
        again(4, change=SKIPPING)
        assert listed() == [] == list(window_manifest("journal", 4, STORAGE).skipped)
        summary = run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
        assert (summary.windows, sorted(published(folder).values())[-1]) == (0, "d1\n")


class InputVanishesAtSubmit(InlineRuntime):
    """A runtime before which a file vanishes when its window begins."""

    def submit(self, job: WindowJob) -> Future[list[TaskResult]]:
        with contextlib.suppress(FileNotFoundError):
            Path("in/d").rename("away")
        return super().submit(job)


@pytest.mark.parametrize("batching", by_day(1, [", batch_bytes: 0", ""]))
@pytest.mark.parametrize("steps", ["replay, run, replay", "run, replay"])
def test_a_replay_leaves_what_was_put_back_to_the_next_run(folder: Path, batching: str, steps: str) -> None:
    """The next run reads it by itself; each record comes once, whichever is first."""
    (folder / "in" / "d").write_text("d1\nd2\n")
    (folder / "in" / "e").write_text("e1\n")
    change = (", batch_bytes: 0", batching)
    Path("app.yaml").write_text(APP.replace(*change))
    run(load_app("app.yaml"), RunOptions(), runtime=InputVanishesAtSubmit)
    before = published(folder)
    assert listed() == [("d", "deleted")]
    Path("away").rename("in/d")
    windows = [each.window_id for each in manifests("journal", STORAGE) if each.skipped]
    for step in steps.split(", "):
        if step == "run":
            run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
        else:
            again(*windows, change=change)
    assert sorted(published(folder).values()) == sorted([*before.values(), "d1\nd2\n"])
    assert listed() == []


def test_a_replay_is_not_failed_by_what_its_window_left_out(folder: Path) -> None:
    """Also if gone files fail today's runs: the file is back, and the next run reads it."""
    (folder / "in" / "d").write_text("d1\nd2\n")
    run(load_app("app.yaml"), RunOptions(), runtime=InputVanishesAtSubmit)
    before = published(folder)
    Path("away").rename("in/d")
    again(4, change=("max_readers: 1}", "max_readers: 1, on_vanished: fail}"))
    assert published(folder) == before
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    assert sorted(published(folder).values()) == sorted([*before.values(), "d1\nd2\n"])


def test_a_replay_from_another_working_directory_moves_no_output(folder: Path) -> None:
    """Relative to it the app's output would lie elsewhere: that is refused. What is named by its path is the same."""
    before = published(folder)
    (folder / "else" / "where").mkdir(parents=True)

    def replayed() -> list[ReplayedWindow]:
        app, options = (
            load_app(app_file(str(folder / "journal"), STORAGE)),
            RunOptions(checkpoint=str(folder / "journal")),
        )
        return replay_windows(app, options, [2], runtime=InlineRuntime)

    with contextlib.chdir(folder / "else" / "where"):
        with pytest.raises(JournalError, match=f"run published into {folder}/out, .* would into {Path.cwd()}/out"):
            replayed()
        assert list(Path.cwd().iterdir()) == []
        assert published(folder) == before
        (folder / "app.yaml").write_text(APP.replace("path: out", f"path: {folder}/out"))
        [window] = replayed()
    assert [change.change for change in window.changes] == ["unchanged"]
    assert published(folder) == before


def test_windows_are_replaced_together_or_not_at_all(folder: Path) -> None:
    """One of three cannot be read again: the others stay as they were, and nothing waits."""
    before = published(folder)
    (folder / "in" / "c").write_text("something else\n")
    with pytest.raises(SourceChangedError, match="the file changed after it was planned"):
        again(1, 2, 3, change=('drop: {prefix: "#"}', 'drop: {suffix: "1"}'))
    assert published(folder) == before
    assert not list((folder / "out").rglob(".*"))
    assert [window.window_id for window in again(2, 1, 2, change=('drop: {prefix: "#"}', 'drop: {suffix: "1"}'))] == [
        1,
        2,
    ]
    assert sorted(published(folder).values()) == ["# a\na2\n", "# b\nb2\n", "c1\nc2\n"]


class StopsInFirstWindow(InlineRuntime):
    """Windows that do not end before they are cancelled; the person asks for the end while the first one runs."""

    def __init__(self, program: Program, stop: StopRequest) -> None:
        super().__init__(program)
        self._stop = stop
        self._running: list[Future[list[TaskResult]]] = []

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Begin it."""
        super().submit(window).result()  # what its tasks have written by then lies about
        self._running.append(Future())
        self._stop.request()
        return self._running[-1]

    def cancel(self) -> None:
        """End them all."""
        for future in self._running:
            future.set_exception(CancelledError("cancelled"))


class StopsInSecondWindow(InlineRuntime):
    """A person who asks for the end while the second window runs, which then ends by itself."""

    def __init__(self, program: Program, stop: StopRequest) -> None:
        super().__init__(program)
        self._stop = stop

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Run it."""
        if window.window_id == 2:
            self._stop.request()
        return super().submit(window)


@pytest.mark.parametrize("runtime", [StopsInFirstWindow, StopsInSecondWindow])
def test_a_replay_that_is_asked_to_stop_replaces_nothing(
    folder: Path, runtime: type[StopsInFirstWindow | StopsInSecondWindow]
) -> None:
    """Whether or not a window is still running; what was written for it is gone, and it can be replayed later."""
    before = published(folder)
    Path("app.yaml").write_text(APP.replace('drop: {prefix: "#"}', 'drop: {suffix: "1"}'))
    stop = StopRequest()
    with pytest.raises(RunStoppedError, match="nothing was replaced"):
        replay_windows(
            load_app("app.yaml"),
            RunOptions(),
            [1, 2, 3],
            stop,
            runtime=lambda program: runtime(program, stop),
        )
    assert published(folder) == before
    assert not list((folder / "out").rglob(".*"))
    assert len(again(1, 2, 3)) == 3


def test_a_window_that_is_not_published_cannot_be_replayed(folder: Path) -> None:
    """The next run publishes it anyway."""
    (folder / "in" / "d").write_text("d\n")
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(4))
    with pytest.raises(JournalError, match="window 4 is not published yet"):
        again(4)


def test_the_replay_of_an_archived_window_is_found_again(folder: Path) -> None:
    """JournalRetention moves windows and takes snapshots; what was replayed stays so."""
    for number in range(40):
        (folder / "in" / f"x{number:02d}").write_text(f"{number}\n")
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    again(1, 2, change=('drop: {prefix: "#"}', 'drop: {regex: ".1"}'))
    for number in range(40):
        (folder / "in" / f"y{number:02d}").write_text(f"{number}\n")
    Path("app.yaml").write_text(APP)
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    assert window_manifest("journal", 2, STORAGE).outputs[0].records == 2
    assert Journal.open(STORAGE.objects("journal"), app="sample").state.reprocessed.keys() == {1, 2}
    assert json.loads(json.dumps(window_manifest("journal", 1, STORAGE).to_json()))["outputs"][0]["records"] == 2


@pytest.mark.nightly
def test_an_app_that_keeps_few_windows_goes_on_in_its_own_directory(folder: Path) -> None:
    """Older windows are no longer known; their files stay, belong to no other operator, and new ones come."""
    Path("app.yaml").write_text(APP.replace("attributes: {", "attributes: {retain_windows: 5, "))
    for number in range(80):
        (folder / "in" / f"x{number:02d}").write_text(f"{number}\n")
    assert run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime).windows == 80
    (folder / "in" / "y").write_text("y\n")
    assert run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime).windows == 1
    assert len(published(folder)) == 84
    with pytest.raises(MissingError, match="window 1 is no longer kept"):
        window_manifest("journal", 1, STORAGE)
    with pytest.raises(MissingError, match="window 2 is no longer kept"):
        replay_windows(load_app("app.yaml"), RunOptions(), [2], runtime=InlineRuntime)
    assert window_manifest("journal", 84, STORAGE).outputs[0].records == 1
    for number in range(80):
        (folder / "in" / f"z{number:02d}").write_text("# nothing is published of this\n")
    for expected in (80, 0):
        assert run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime).windows == expected
    assert len(published(folder)) == 84
    (folder / "other").mkdir()
    (folder / "other" / next(iter(published(folder)))).write_text("mine")
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace("path: out", "path: other"))
    with pytest.raises(StorageError, match="files that this checkpoint did not publish"):
        run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
