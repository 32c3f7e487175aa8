"""Which run a checkpoint lets in."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.live_run import RunGate, StopRequest
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.errors import JournalError, LiveRunError, RunStoppedError
from dagflow.execution.messages import WindowJob
from dagflow.journal.heartbeat import (
    Heartbeat,
    ProcessIdentity,
    beating,
    heartbeat_name,
    heartbeat_names,
    newest_heartbeat,
)
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalObjectStore
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of, published, words
from tests.engine.test_driver import RecordingObserver

HERE = ProcessIdentity.of_this_process()
ELSEWHERE = replace(HERE, host="mill7", boot="of mill7", user="ann", pid=7)
TEXTS = [b"a b", b"c", b"d e", b"f"]


def beat(process: ProcessIdentity, **fields: Any) -> Heartbeat:
    """Return the heartbeat of another run."""
    return Heartbeat(process, "other", "run", "app", "", 0, "running", **fields)


class ActingStopRequest(StopRequest):
    """Acts instead of waiting."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._act = act

    def wait(self, seconds: float) -> bool:
        """Act at once."""
        self._act()
        return self.is_requested


def claim(tmp_path: Path, stop: StopRequest | None = None, *, take_over: bool = False) -> tuple[int, list[str]]:
    """Claim a checkpoint for the app; return the number, and what was said."""
    said: list[str] = []
    gate = RunGate(
        LocalObjectStore(str(tmp_path / "journal")), said.append, stop or ActingStopRequest(), take_over=take_over
    )
    return gate.claim(app_of(tmp_path, TEXTS), beat(HERE)), said


def put(tmp_path: Path, heartbeat: Heartbeat, number: int = 4) -> LocalObjectStore:
    """Leave the heartbeat of another run, and return the checkpoint."""
    store = LocalObjectStore(str(tmp_path / "journal"))
    store.create(heartbeat_name(number), beating(heartbeat))
    return store


def test_a_second_run_is_refused_while_the_first_one_works(tmp_path: Path) -> None:
    """By name, place and time, with what to do; nothing of the first one is disturbed."""
    refusals: list[LiveRunError] = []

    def second(window: WindowJob) -> None:
        for options in (RunOptions(), RunOptions(fresh=True)):
            with pytest.raises(LiveRunError, match="another run is at work") as caught:
                run(app_of(tmp_path, TEXTS), options, runtime=InlineRuntime)
            refusals.append(caught.value)

    done = run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=second))
    assert (done.state, done.windows) == ("completed", 2)
    assert published(tmp_path) == words(TEXTS)
    assert len(refusals) == 4
    text = str(refusals[0])
    assert refusals[0].exit_code == 1
    who = rf"process {os.getpid()} of {HERE.user} on {re.escape(HERE.host)}, since 20..-..-.. ..:..:.. UTC"
    assert re.search(who, text)
    assert f"or end it (kill {os.getpid()} on {HERE.host}) and start again, or replace it with --take-over" in text


def test_a_repair_is_refused_while_a_run_works(tmp_path: Path) -> None:
    """Its window may be published at this very moment; there is no --take-over for it, and none is advised."""
    refusals: list[LiveRunError] = []

    def second(window: WindowJob) -> None:
        with pytest.raises(LiveRunError, match="another run is at work") as caught:
            repair(str(tmp_path / "journal"), window.window_id, StorageContext.default())
        refusals.append(caught.value)

    done = run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=second))
    assert (done.state, len(refusals)) == ("completed", 2)
    assert refusals[0].hint == f"end it first: kill {os.getpid()} on {HERE.host}"


def test_to_take_over_ends_the_first_run_and_names_the_new_one(tmp_path: Path) -> None:
    """The protocol of epochs decides, as ever: each record is published once."""
    watcher = RecordingObserver()

    def second(window: WindowJob) -> None:
        if window.window_id == 1 and not watcher.notices:
            run(app_of(tmp_path, TEXTS), RunOptions(take_over=True), watcher, runtime=InlineRuntime)

    with pytest.raises(JournalError, match=rf"taken over: process {os.getpid()} on .*, which has completed \(epoch 2"):
        run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=second))
    assert f"takes over from process {os.getpid()} of" in watcher.notices[0]
    assert published(tmp_path) == words(TEXTS)
    found = newest_heartbeat(LocalObjectStore(str(tmp_path / "journal")))[1]
    assert found is not None
    assert (found.epoch, found.state) == (2, "completed")


@pytest.mark.parametrize("state", ["completed", "stopped", "failed"])
def test_a_run_that_has_ended_blocks_nothing(tmp_path: Path, state: Any) -> None:
    """Wherever its process was."""
    put(tmp_path, replace(beat(ELSEWHERE), state=state))
    assert claim(tmp_path) == (5, [])


def test_a_killed_run_of_this_machine_blocks_nothing(tmp_path: Path) -> None:
    """Its process is looked for, and no beat is waited for; whatever the machine is called now."""
    put(tmp_path, beat(replace(HERE, host="renamed", start_ticks=HERE.start_ticks - 1)))
    assert claim(tmp_path) == (5, [])


def test_a_run_elsewhere_that_does_not_beat_is_taken_for_dead(tmp_path: Path) -> None:
    """Only whether the heartbeat changes is looked at: clocks of two machines may differ."""
    put(tmp_path, beat(ELSEWHERE))
    number, said = claim(tmp_path)
    assert number == 5
    assert "another run may be at work on this checkpoint: process 7 of ann on mill7" in said[0]
    assert "known within 20 s, and --take-over does not wait" in said[0]
    assert "has written no heartbeat for 20 s: it counts as dead, and this run takes over its work" in said[1]


def test_a_run_elsewhere_that_beats_is_not_disturbed(tmp_path: Path) -> None:
    """Its next beat is the proof that it lives, however old the last one seemed; --take-over asks for none."""
    store = put(tmp_path, beat(ELSEWHERE))
    with pytest.raises(LiveRunError, match=r"at work.*mill7.*by its clock"):
        claim(tmp_path, ActingStopRequest(lambda: store.replace(heartbeat_name(4), beating(beat(ELSEWHERE)))))
    assert heartbeat_names(store) == [heartbeat_name(4)]
    number, said = claim(tmp_path, take_over=True)
    assert (number, len(said)) == (5, 1)
    assert "takes over from process 7 of ann on mill7" in said[0]


def test_a_run_elsewhere_that_ends_meanwhile_lets_the_next_one_in(tmp_path: Path) -> None:
    """Whether it notes its end, or takes its heartbeat back."""
    store = put(tmp_path, beat(ELSEWHERE))
    ending = ActingStopRequest(
        lambda: store.replace(heartbeat_name(4), beating(replace(beat(ELSEWHERE), state="completed")))
    )
    number, said = claim(tmp_path, ending)
    assert (number, len(said)) == (5, 1)
    store.replace(heartbeat_name(5), beating(beat(ELSEWHERE)))
    number, said = claim(tmp_path, ActingStopRequest(lambda: store.delete([heartbeat_name(5)])))
    assert (number, len(said)) == (5, 1)


def test_the_wait_for_a_beat_can_be_stopped(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    store = put(tmp_path, beat(ELSEWHERE))
    stop = StopRequest()
    stop.request()
    with pytest.raises(RunStoppedError, match="waited"):
        claim(tmp_path, stop)
    assert heartbeat_names(store) == [heartbeat_name(4)]


APP = """\
name: NAME
attributes: {checkpoint: CHECKPOINT}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader}
  writer: {class: RecordWriter, properties: {path: OUT}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


class Folder:
    """A working directory with apps."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "in").mkdir()
        (root / "in" / "a.txt").write_text("one\ntwo\n")

    def app(self, file: str, out: str = "out", name: str = "sales", checkpoint: str = "journal") -> str:
        """Write an app."""
        text = APP.replace("NAME", name).replace("OUT", out).replace("CHECKPOINT", checkpoint)
        (self.root / file).write_text(text)
        return file

    def run(self, file: str, **options: Any) -> tuple[RunSnapshot, list[str]]:
        """Run an app; return its end, and what was said."""
        watcher = RecordingObserver()
        return run(load_app(file), RunOptions(**options), watcher, runtime=InlineRuntime), watcher.notices

    def outputs(self) -> set[str]:
        """Return the published files."""
        return {str(path.relative_to(self.root)) for path in self.root.glob("out*/*") if path.name[0] != "."}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Return a working directory in which one app has run."""
    monkeypatch.chdir(tmp_path)
    made = Folder(tmp_path)
    made.run(made.app("a.yaml"))
    return made


@pytest.mark.parametrize("fresh", [False, True])
def test_another_app_of_the_same_name_is_refused(folder: Folder, fresh: bool) -> None:
    """By both files, before it removes or publishes anything; with a checkpoint or a name of its own it runs."""
    before = folder.outputs()
    folder.app("b.yaml", "out-b")
    with pytest.raises(JournalError, match="is another app") as caught:
        folder.run("b.yaml", fresh=fresh)
    text = str(caught.value)
    assert f"the app 'sales' in {folder.root}/a.yaml, and 'sales' in {folder.root}/b.yaml is another app" in text
    assert f"give {folder.root}/b.yaml a `checkpoint` of its own" in text
    assert folder.outputs() == before
    assert folder.run("a.yaml")[0].windows == 0
    folder.app("b.yaml", "out-b", checkpoint="journal-b")
    assert folder.run("b.yaml")[0].windows == 1
    assert len(folder.outputs()) == 2 * len(before)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_app_of_another_name_is_refused(folder: Folder, fresh: bool) -> None:
    """Also when it would start over: what the other one has published is not its own."""
    before = folder.outputs()
    folder.app("b.yaml", name="costs")
    with pytest.raises(JournalError, match=r"'sales' in .*a\.yaml, and 'costs' in .*b\.yaml is another app"):
        folder.run("b.yaml", fresh=fresh)
    assert folder.outputs() == before


def test_an_app_file_that_was_moved_is_the_same_app(folder: Folder) -> None:
    """The old file is gone, and it goes on with a notice, wherever it publishes now; the next run says nothing."""
    (folder.root / "a.yaml").unlink()
    folder.app("b.yaml", "out-b")
    (folder.root / "in" / "b.txt").write_text("three\n")
    done, said = folder.run("b.yaml")
    assert done.windows == 1
    assert "a.yaml, which no longer exists: it counts as moved to" in said[0]
    assert folder.run("b.yaml")[1] == []


def test_a_changed_copy_that_publishes_there_too_is_warned_of(folder: Folder) -> None:
    """It may be the same app, mended in a copy: what was read is not read again, and that is said."""
    folder.app("b.yaml")
    (folder.root / "b.yaml").write_text((folder.root / "b.yaml").read_text() + "# mended\n")
    done, said = folder.run("b.yaml")
    assert done.windows == 0
    assert f"was of {folder.root}/a.yaml, this one is of {folder.root}/b.yaml" in said[0]


def test_a_plain_copy_is_the_same_app(folder: Folder) -> None:
    """As is a link, and another spelling of the path."""
    shutil.copy(folder.root / "a.yaml", folder.root / "b.yaml")
    os.symlink("a.yaml", folder.root / "c.yaml")
    for file in ("b.yaml", "c.yaml", "./a.yaml", str(folder.root / "a.yaml")):
        assert folder.run(file)[1] == []


def test_a_checkpoint_that_the_command_line_names_is_chosen(folder: Folder) -> None:
    """A second app of that name may have it then; the notice stays."""
    folder.app("b.yaml", "out-b")
    (folder.root / "in" / "b.txt").write_text("three\n")
    done, said = folder.run("b.yaml", checkpoint="journal")
    assert done.windows == 1
    assert "give one of them a checkpoint of its own" in said[0]


def test_an_app_that_has_given_its_checkpoint_away_is_no_rival(folder: Folder) -> None:
    """Where the old file names another checkpoint, or another app, or is no app any more."""
    folder.app("b.yaml", "out-b")
    (folder.root / "in" / "b.txt").write_text("three\n")
    folder.app("a.yaml", checkpoint="journal-a")
    assert folder.run("b.yaml")[0].windows == 1
    (folder.root / "b.yaml").write_text("[")
    folder.app("a.yaml")
    assert "this one is of" in folder.run("a.yaml")[1][0]
