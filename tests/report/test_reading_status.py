"""The snapshot of all runs on a checkpoint."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine import live_run as live_runs
from dagflow.engine.live_run import RunGate, StopRequest, live_run
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, MissingError
from dagflow.journal.heartbeat import RunningWindow, RunProgress, RunRates
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.cli.processes import PATIENCE_S
from tests.engine.sample_app import app_of
from tests.engine.test_driver import RecordingObserver, crashing
from tests.engine.test_live_run import wait_until

APP = """\
name: sample
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 8, blocks_threshold: 2,
      batch_bytes: BATCH}}
  reader: {class: BlockReader, properties: {on_error: skip}}
  writer: {class: RecordWriter, properties: {path: out}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


def test_locations_below_roots_are_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the app, where the newest run had its roots."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\n")
    app = APP.replace("BATCH", "0").replace(
        "{checkpoint: journal}", f"{{checkpoint: journal, roots: {{here: {tmp_path}}}}}"
    )
    (tmp_path / "app.yaml").write_text(app)
    done = run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    found = status("journal", StorageContext.default())
    assert found.outputs == done.outputs == (str(tmp_path / "out"),)


@pytest.mark.parametrize("batch_bytes", [0, 4])
def test_files_are_in_progress_until_their_last_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """One that is cut further in later windows is, one that is empty or was left out is not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP.replace("BATCH", str(batch_bytes)))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\ntwo\nthree\nfour\n\n")
    (tmp_path / "in" / "b.log").write_text("seven\n8\n")
    (tmp_path / "in" / "c.log").write_text("")
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(2))
    stopped = status("journal", StorageContext.default())
    assert stopped.state == "failed"
    assert stopped.driver is not None
    assert stopped.driver.heartbeat.error == "the lights went out"
    assert (stopped.windows, stopped.files, stopped.files_in_progress) == (1, 1, 1)
    (tmp_path / "in" / "a.log").write_text("changed in between\n")
    done = run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    assert (done.files_in_progress, status("journal", StorageContext.default()).files_in_progress) == (0, 0)
    assert done.total("left_out_bytes") > 0


def test_nothing_is_completed_while_a_run_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before the journal is there, nor while the run waits for more with all windows published."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP.replace("BATCH", "0"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\n")
    stop, seen = StopRequest(), []

    def look(summary: object) -> None:
        found = status("journal", StorageContext.default())
        assert found.driver is not None
        seen.append((found.state, found.driver.state, found.windows))
        if len(seen) == 4:
            stop.request()

    run(
        load_app("app.yaml"),
        RunOptions(follow=True),
        RecordingObserver(look),
        stop,
        lambda program: InlineRuntime(program, before=look),
    )
    assert {state for state, *_ in seen} == {"running"}
    assert seen[-1][2] == 1
    assert status("journal", StorageContext.default()).state == "stopped"


def test_what_a_run_has_listed_and_not_planned_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to other processes, which find only planned windows in the journal; when the run is over nothing waits."""
    monkeypatch.setattr(live_runs, "BEAT_EVERY_S", 0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP.replace("BATCH", "0, max_files_per_window: 1"))
    (tmp_path / "in").mkdir()
    for number in range(9):
        (tmp_path / "in" / f"{number}.log").write_text("one\n")
    seen: list[int] = []
    blocks: set[int | None] = set()

    def look(snapshot: RunSnapshot) -> None:
        assert snapshot.backlog_blocks in (None, snapshot.backlog_bytes // 4)
        assert snapshot.all_runs is not None and snapshot.all_runs.backlog_blocks == snapshot.backlog_blocks
        blocks.add(snapshot.backlog_blocks)
        planned_bytes = read_state(StorageContext.default().objects("journal")).uncommitted_bytes
        if planned_bytes < snapshot.backlog_bytes:
            deadline = time.monotonic() + PATIENCE_S
            while (found := status("journal", StorageContext.default())).backlog_bytes != snapshot.backlog_bytes:
                assert time.monotonic() < deadline
            assert found.backlog_blocks is None
            seen.append(planned_bytes)

    run(load_app("app.yaml"), RunOptions(), RecordingObserver(look), runtime=InlineRuntime)
    assert seen and blocks >= {None, 0}
    over = status("journal", StorageContext.default())
    assert (over.backlog_bytes, over.backlog_blocks) == (0, 0)


def test_a_window_that_was_committed_since_the_last_beat_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures are among those of committed windows, and no figure counts twice; stalls are those of the driver."""
    monkeypatch.setattr(live_runs, "BEAT_EVERY_S", 0.01)
    app, url = app_of(tmp_path, [b"a"]), str(tmp_path / "journal")
    run(app, RunOptions(), runtime=InlineRuntime)
    last = status(url, StorageContext.default()).last_committed
    begun = RunningWindow(last + 1, 4, 9, 0, 2, ("no progress",))
    with live_run(app, RunGate(StorageContext.default().objects(url), lambda text: None, StopRequest()), "run") as live:
        live.set_state("running")
        live.set_progress(9, RunProgress((replace(begun, window_id=last), begun), RunRates(1.5), {"lines": 2}))
        wait_until(lambda: status(url, StorageContext.default()).progress is not None)
        found = status(url, StorageContext.default())
    assert found.progress == RunProgress((replace(begun, stalls=()),), RunRates(1.5), {"lines": 2})
    over = status(url, StorageContext.default())
    assert (over.state, over.progress) == ("completed", None)


def test_a_run_that_has_no_journal_yet_is_running(tmp_path: Path) -> None:
    """It has just claimed the checkpoint; when it is gone, there is no journal."""
    url = str(tmp_path / "journal")
    app = app_of(tmp_path, [b"a"])
    gate = RunGate(StorageContext.default().objects(url), lambda text: None, StopRequest())
    with live_run(app, gate, "run") as live:
        found = status(url, StorageContext.default())
        assert (found.app, found.state, found.windows) == ("app", "running", 0)
        live.withdraw()
    with pytest.raises(MissingError, match="there is no journal"):
        status(url, StorageContext.default())
