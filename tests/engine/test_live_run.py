"""The heartbeat of a run, from its beginning to its end."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import RunPreparation
from dagflow.engine import live_run, window_runner
from dagflow.engine.live_run import RunGate, StopRequest
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, LiveRunError, StorageError
from dagflow.execution.messages import WindowJob
from dagflow.journal.heartbeat import (
    Heartbeat,
    ProcessIdentity,
    RunProgress,
    beating,
    heartbeat_name,
    heartbeat_names,
    newest_heartbeat,
)
from dagflow.journal.journal import Journal
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalObjectStore
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.engine.test_driver import RecordingObserver, crashing

TEXTS = [b"a b", b"c", b"d e", b"f"]
PATIENCE_S = 60.0


def heartbeat(tmp_path: Path) -> Heartbeat:
    """Return the newest heartbeat."""
    found = newest_heartbeat(LocalObjectStore(str(tmp_path / "journal")))[1]
    assert found is not None
    return found


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs beat, and look for other drivers, a hundred times a second."""
    monkeypatch.setattr(live_run, "BEAT_EVERY_S", 0.01)
    monkeypatch.setattr(window_runner, "BEAT_EVERY_S", 0.01)


def test_a_run_beats_while_a_window_runs(tmp_path: Path, quick: None) -> None:
    """However long it takes, and whatever the driver waits for; with its state, place and epoch."""
    seen: list[Heartbeat] = []

    def slow(window: WindowJob) -> None:
        first = heartbeat(tmp_path)
        wait_until(lambda: heartbeat(tmp_path).beat_ms > first.beat_ms and heartbeat(tmp_path).state == "running")
        seen.append(heartbeat(tmp_path))

    run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=slow))
    assert [(beat.epoch, beat.app, beat.command, beat.outputs) for beat in seen] == [
        (1, "app", "run", [str(tmp_path / "out")])
    ] * 2
    assert [beat.existence() for beat in seen] == ["gone"] * 2
    last = heartbeat(tmp_path)
    assert (last.state, last.error, last.since_ms) == ("completed", "", seen[0].since_ms)
    assert not any(thread.name.startswith("dagflow-heartbeat") for thread in threading.enumerate())


class WaitsForStallReport(Operator):
    """Stands still until `status` has said so."""

    checkpoint: str

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Wait, and pass it on."""
        wait_until(lambda: bool(self._stalls("in take()")))
        self.output.emit(b"; ".join(each.encode() for each in self._stalls("in take()")))

    def _stalls(self, place: str) -> list[str]:
        driver = status(self.checkpoint, StorageContext.default()).driver
        return [] if driver is None else [each for each in driver.heartbeat.stalls if place in each]


def test_status_names_what_stands_still(tmp_path: Path, quick: None) -> None:
    """Operator, partition, what it works on and for how long, as long as it lasts; also as JSON."""
    app = app_of(tmp_path, [b"a"], middle=WaitsForStallReport(checkpoint=str(tmp_path / "journal")))
    app = replace(app, attributes=replace(app.attributes, stall_warning_millis=20))
    run(app, runtime=InlineRuntime)
    (file,) = (path for path in (tmp_path / "out").iterdir() if path.is_file())
    assert re.match(r"window 1, operator 'middle' partition 0: no progress for \d s in take\(\)", file.read_text())
    driver = status(str(tmp_path / "journal"), StorageContext.default()).driver
    assert driver is not None
    assert driver.to_json()["stalls"] == list(driver.heartbeat.stalls) == []


def test_a_heartbeat_has_the_progress_of_a_run_until_it_ends(tmp_path: Path, quick: None) -> None:
    """Each window that runs is in it, with what its tasks have read."""
    seen: list[RunProgress] = []

    def look(snapshot: RunSnapshot) -> None:
        assert snapshot.progress is not None
        if snapshot.running and not seen:
            expected = snapshot.progress.without_stalls()
            wait_until(lambda: heartbeat(tmp_path).progress == expected)
            seen.append(expected)

    run(app_of(tmp_path, TEXTS), RunOptions(), RecordingObserver(look), runtime=InlineRuntime)
    assert [window.bytes for window in seen[0].windows] > [0]
    assert heartbeat(tmp_path).progress is None


class WaitsAtStartToo(WaitsForStallReport):
    """Stands still before the first window as well, where it is asked to."""

    is_asked: bool = False

    def prepare(self, run: RunPreparation) -> None:
        """Wait."""
        if self.is_asked:
            wait_until(lambda: bool(self._stalls("the preparation of the replay: no progress")))


def test_status_names_what_stands_still_in_a_replay(tmp_path: Path, quick: None) -> None:
    """Both the driver, before the windows run again, and their tasks."""
    middle = WaitsAtStartToo(checkpoint=str(tmp_path / "journal"))
    app = app_of(tmp_path, [b"a"], middle=middle)
    app = replace(app, attributes=replace(app.attributes, stall_warning_millis=20))
    run(app, runtime=InlineRuntime)
    middle.is_asked = True
    (file,) = (path for path in (tmp_path / "out").iterdir() if path.is_file())
    file.write_text("")
    replay_windows(app, RunOptions(), [1], runtime=InlineRuntime)
    assert re.match(r"window 1, operator 'middle' partition 0: no progress for \d s in take\(\)", file.read_text())


def test_a_run_that_follows_says_that_it_waits_and_stops(tmp_path: Path, quick: None) -> None:
    """Until it is asked to stop."""
    stop = StopRequest()

    def look(summary: object) -> None:
        if heartbeat(tmp_path).standing() == "waiting":
            stop.request()

    run(app_of(tmp_path, TEXTS), RunOptions(follow=True), RecordingObserver(look), stop, InlineRuntime)
    assert heartbeat(tmp_path).standing() == "stopped"


def test_a_run_that_fails_leaves_its_error(tmp_path: Path) -> None:
    """Cut to a readable length."""

    def fail(window: WindowJob) -> None:
        raise DagflowError("the lights went out " + "x" * 100_000)

    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=fail))
    last = heartbeat(tmp_path)
    assert last.state == "failed"
    assert last.error.startswith("the lights went out")
    assert len(last.error) <= live_run.MOST_ERROR_CHARACTERS


def test_an_error_is_kept_without_the_secrets_of_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came from the environment is not written down."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHERE", "top-secret")
    (tmp_path / "app.yaml").write_text(
        "name: sample\nattributes: {checkpoint: journal}\noperators:\n"
        "  splitter: {class: FileSplitterInput, properties: {files: ['${WHERE}']}}\n"
        "  reader: {class: BlockReader}\n  writer: {class: RecordWriter, properties: {path: out}}\nstreams:\n"
        "  a: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}\n"
        "  b: {from: reader.messages, to: writer.input}\n"
    )
    with pytest.raises(DagflowError, match="top-secret"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert "${WHERE}" in heartbeat(tmp_path).error
    assert "top-secret" not in heartbeat(tmp_path).error


def test_the_next_run_replaces_the_heartbeat(tmp_path: Path) -> None:
    """One is kept, of the newest run."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, TEXTS), runtime=crashing(2))
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    assert len(heartbeat_names(LocalObjectStore(str(tmp_path / "journal")))) == 1
    assert (heartbeat(tmp_path).state, heartbeat(tmp_path).epoch) == ("completed", 2)


def test_a_run_that_never_had_the_journal_leaves_no_heartbeat(tmp_path: Path) -> None:
    """What the one before said stays."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, TEXTS), runtime=crashing(1))
    before = heartbeat(tmp_path)
    with pytest.raises(JournalError, match="of the app 'app', not of 'other'"):
        run(replace(app_of(tmp_path, TEXTS), name="other"), runtime=InlineRuntime)
    assert heartbeat(tmp_path) == before


class RefusesHeartbeats(LocalObjectStore):
    """A checkpoint that takes everything but heartbeats after the first."""

    def replace(self, name: str, data: bytes) -> None:
        """Refuse."""
        raise StorageError("the store is tired", url=name)


def test_a_store_that_refuses_heartbeats_ends_no_run(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all beats of an outage, and one for the end; what would look like a live run is removed."""
    monkeypatch.setattr(LocalObjectStore, "replace", RefusesHeartbeats.replace)

    def slow(window: WindowJob) -> None:
        wait_until(lambda: "the store is tired" in caplog.text)

    with caplog.at_level(logging.WARNING, "dagflow"):
        done = run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=slow))
    assert done.state == "completed"
    assert [record.message.partition(" error=")[0] for record in caplog.records] == [
        "the heartbeat was not written, and status will call this run stalled",
        "the end of the run was not noted in the checkpoint",
    ]
    assert heartbeat_names(LocalObjectStore(str(tmp_path / "journal"))) == []
    assert run(app_of(tmp_path, TEXTS), runtime=InlineRuntime).windows == 0


def test_a_checkpoint_that_was_moved_away_does_not_come_back(tmp_path: Path, quick: None) -> None:
    """A beat makes no directory; a run that follows ends soon, and says why."""
    moved = tmp_path / "moved"

    def move(summary: object) -> None:
        if not moved.exists():
            (tmp_path / "journal").rename(moved)

    with pytest.raises(JournalError, match="vanished"):
        run(app_of(tmp_path, [b"a"]), RunOptions(follow=True), RecordingObserver(move), runtime=InlineRuntime)
    assert not (tmp_path / "journal" / "heartbeat").exists()


def test_a_driver_that_waits_finds_out_that_another_took_over(tmp_path: Path, quick: None) -> None:
    """Although it has nothing to write."""
    store = LocalObjectStore(str(tmp_path / "journal"))
    idle = itertools.count()

    def take_over(summary: object) -> None:
        if next(idle) == 3:
            Journal.open(store, app="app")

    with pytest.raises(JournalError, match="another driver has taken over"):
        run(app_of(tmp_path, [b"a"]), RunOptions(follow=True), RecordingObserver(take_over), runtime=InlineRuntime)
    assert heartbeat_names(store) == []


def test_of_runs_that_begin_together_one_is_let_in(tmp_path: Path) -> None:
    """However many ask at the same moment, for a new checkpoint or one whose last run was killed."""
    store = LocalObjectStore(str(tmp_path / "journal"))
    gate = RunGate(store, lambda text: None, StopRequest())
    app = app_of(tmp_path, TEXTS)
    for _ in range(20):
        start, done = threading.Barrier(6), threading.Barrier(6)
        let_in: list[int] = []

        def begin(start: threading.Barrier, done: threading.Barrier, let_in: list[int]) -> None:
            start.wait()
            try:
                with live_run.live_run(app, gate, "run"):
                    let_in.append(1)
                    done.wait()
            except LiveRunError:
                done.wait()

        threads = [threading.Thread(target=begin, args=(start, done, let_in)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(let_in) == 1
        store.delete(heartbeat_names(store))
        killed = replace(ProcessIdentity.of_this_process(), start_ticks=1)
        store.create(heartbeat_name(1), beating(Heartbeat(killed, "n", "run", "app", "", 0, "running")))
