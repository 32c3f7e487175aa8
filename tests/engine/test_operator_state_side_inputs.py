"""A window sees one version of a table, however often it runs, and whatever becomes of the table."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.engine.window_runner import WINDOWS_IN_FLIGHT
from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.messages import WindowJob
from dagflow.journal.reader import read_window
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
from tests.engine.test_driver import RecordingObserver
from tests.nightly import by_day

APP = """
name: joined
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", blocks_threshold: 1}}}}
  reader: {{class: BlockReader, properties: {{format: csv}}}}
  enrich: {{class: Enrich, properties: {{table: "csv:{root}/table.csv", on: k}}, partition: parallel}}
  gate:
    class: tests.engine.test_operator_state_side_inputs.FailsIfLocked
    properties: {{lock: "{root}/lock"}}
    partition: parallel
  writer:
    class: RecordWriter
    properties: {{path: "{root}/out", format: csv, file_name: block}}
    partition: parallel
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: enrich.input}}
  joined: {{from: enrich.output, to: gate.input}}
  passed: {{from: gate.output, to: writer.input}}
"""


class FailsIfLocked(Operator):
    """Fails as long as a file is there."""

    lock: str
    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: object) -> None:
        """Pass a record on."""
        if Path(self.lock).exists():
            raise ValueError("closed")
        self.output.emit(record)


def app(root: Path, text: str = APP) -> LogicalPlan:
    """The app, with its input and its table in a directory."""
    root.mkdir(exist_ok=True)
    (root / "app.yaml").write_text(text.format(root=root))
    return load_app(root / "app.yaml")


def add_input(root: Path, number: int) -> None:
    """One file, which is a window."""
    (root / "in").mkdir(parents=True, exist_ok=True)
    (root / "in" / f"{number}.csv").write_text(f"k,n\na,{number}\nb,{number}\n")


def put_table(root: Path, version: str) -> None:
    """Replace the table by another file."""
    new = root / "new.csv"
    new.write_text(f"k,v\na,{version}\nb,{version}\n")
    new.replace(root / "table.csv")


def versions(root: Path) -> dict[str, set[str]]:
    """The versions of the table that were seen, by the number of the input."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / "out").glob("*")):
        for row in csv.DictReader(path.read_text().splitlines()):
            found.setdefault(row["n"], set()).add(row["v"])
    return found


def copies(root: Path) -> list[Path]:
    """The copies of tables in the checkpoint."""
    return list((root / "journal" / "side_inputs").glob("*"))


def crash(window: WindowJob) -> None:
    """Let the driver die."""
    raise InjectedCrash("the lights went out")


def test_a_window_that_runs_again_sees_what_it_was_planned_with(tmp_path: Path) -> None:
    """Although the table was replaced, and the old one is nowhere else; later windows see the new one."""
    add_input(tmp_path, 1)
    put_table(tmp_path, "old")
    with pytest.raises(InjectedCrash, match="the lights went out"):
        run(app(tmp_path), runtime=lambda program: InlineRuntime(program, before=crash))
    assert len(copies(tmp_path)) == 1
    put_table(tmp_path, "new")
    add_input(tmp_path, 2)
    run(app(tmp_path), runtime=InlineRuntime)
    assert versions(tmp_path) == {"1": {"old"}, "2": {"new"}}
    assert copies(tmp_path) == []


def test_windows_of_a_run_that_failed_see_the_table_as_it_is_then(tmp_path: Path) -> None:
    """What made it fail may be a row; only what was committed is as it was."""
    for number in (1, 2, 3, 4):
        add_input(tmp_path, number)
    put_table(tmp_path, "old")

    def close(window: WindowJob) -> None:
        if window.window_id == 2:
            (tmp_path / "lock").touch()

    for _ in range(2):
        with pytest.raises(OperatorError, match="closed"):
            run(app(tmp_path), runtime=lambda program: InlineRuntime(program, before=close))
    put_table(tmp_path, "new")
    (tmp_path / "lock").unlink()
    watcher = RecordingObserver()
    run(app(tmp_path), observer=watcher, runtime=InlineRuntime)
    assert watcher.notices[0] == "window 2 is planned again"
    assert not [notice for notice in watcher.notices if "the app as it was" in notice]
    assert versions(tmp_path) == {"1": {"old"}, "2": {"new"}, "3": {"new"}, "4": {"new"}}
    assert copies(tmp_path) == []


REFUSED = """\
  refused: {{class: RecordWriter, properties: {{path: "{root}/refused"}}, partition: parallel}}
streams:
  aside: {{from: enrich.errors, to: refused.input}}
"""


@pytest.mark.parametrize(
    ("properties", "streams", "error"),
    by_day(
        1,
        [
            ("unmatched: fail", "streams:\n", r"table\.csv has no row with k 'b'"),
            ("unmatched: reject", "streams:\n", r"table\.csv has no row with k 'b'"),
            ("unmatched: reject, max_rejects: 0", REFUSED, "max_rejects is 0"),
        ],
    ),
)
def test_a_row_that_was_missing_is_added_and_the_run_goes_on(
    tmp_path: Path, properties: str, streams: str, error: str
) -> None:
    """As the error of a task or of the commit advises; each record is there once."""
    for number in (1, 2):
        add_input(tmp_path, number)
    (tmp_path / "table.csv").write_text("k,v\na,old\n")
    text = APP.replace("on: k", f"on: k, {properties}").replace("streams:\n", streams)
    for _ in range(2):
        with pytest.raises(DagflowError, match=error):
            run(app(tmp_path, text), runtime=InlineRuntime)
    put_table(tmp_path, "new")
    run(app(tmp_path, text), runtime=InlineRuntime)
    assert versions(tmp_path) == {"1": {"new"}, "2": {"new"}}


def test_windows_that_are_processed_again_see_the_table_as_it_is(tmp_path: Path) -> None:
    """So a table that was wrong is mended, and what was made with it made anew."""
    add_input(tmp_path, 1)
    put_table(tmp_path, "wrong")
    run(app(tmp_path), runtime=InlineRuntime)
    put_table(tmp_path, "right")
    replay_windows(app(tmp_path), RunOptions(), [1], runtime=InlineRuntime)
    assert versions(tmp_path) == {"1": {"right"}}
    assert copies(tmp_path) == []


def test_a_table_that_did_not_change_is_copied_once(tmp_path: Path) -> None:
    """All windows of a run name the same copy."""
    for number in range(3):
        add_input(tmp_path, number)
    put_table(tmp_path, "v")
    run(app(tmp_path), runtime=InlineRuntime)
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    plans = [read_window(store, window_id).plan for window_id in (1, 2, 3)]
    assert len({plan.side_inputs["enrich"] for plan in plans}) == 1


def test_copies_go_with_the_windows_that_needed_them(tmp_path: Path) -> None:
    """A run that follows its input has no end at which it would remove them."""
    for number in range(9):
        add_input(tmp_path, number)
    put_table(tmp_path, "v")
    present: list[int] = []

    def replace(window: WindowJob) -> None:
        present.append(len(copies(tmp_path)))
        put_table(tmp_path, f"v{window.window_id}")

    run(app(tmp_path), runtime=lambda program: InlineRuntime(program, before=replace))
    assert len(present) == 9
    assert len({version for seen in versions(tmp_path).values() for version in seen}) == 9
    assert max(present) <= WINDOWS_IN_FLIGHT + 1
