"""What `dagflow status` says of a window that runs in another process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import DagflowError
from dagflow.report.reading import status
from dagflow.storage.context import StorageContext
from tests.cli.processes import ENTRY, PATIENCE_S, dagflow_command, environment
from tests.engine.test_live_run import wait_until

pytestmark = pytest.mark.e2e

APP = """\
name: held
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], batch_bytes: 0}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2}}
  hold: {class: held_ops.Hold, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: hold.input}
  kept: {from: hold.output, to: writer.input}
"""

OPERATORS = """\
from dagflow import InputPort, Operator, OutputPort


class Hold(Operator):
    \"\"\"Waits at one record until another process opens the pipe.\"\"\"

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        if record == b"hold":
            open("pipe").close()
        self.output.emit(record)
"""

READ = b"one\ntwo\nthree\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an app that stays in its first window: one of its two tasks ends, the other one waits."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "held_ops.py").write_text(OPERATORS)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(READ)
    (tmp_path / "in" / "b.txt").write_bytes(b"hold\n")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@contextlib.contextmanager
def held_run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run of the app, which goes on behind the block."""
    command = [*ENTRY, "run", "app.yaml", "--local", "--workers", "2", "--json"]
    with (
        (folder / "said.json").open("wb") as said,
        subprocess.Popen(command, cwd=folder, env=environment(), stdout=said) as process,
    ):
        try:
            yield process
        finally:
            let_go = os.open(folder / "pipe", os.O_RDWR)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                os.close(let_go)


def asked(folder: Path) -> dict[str, Any]:
    """What `dagflow status` says in a process of its own."""
    done = dagflow_command(["status", "app.yaml", "--json"], cwd=folder)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def has_a_task_ended(folder: Path) -> bool:
    """Whether a task of the running window is known to have ended."""
    with contextlib.suppress(DagflowError):  # the run has not begun
        return any(window.tasks_done for window in status(str(folder / "journal"), StorageContext.default()).running)
    return False


@pytest.mark.nightly
def test_status_shows_how_far_a_window_is_that_runs_in_another_process(folder: Path) -> None:
    """What a task has read and emitted, before anything is committed; when the run is over, nothing runs."""
    with held_run(folder) as process:
        wait_until(lambda: has_a_task_ended(folder))
        said, text = asked(folder), dagflow_command(["status", "app.yaml"], cwd=folder).stdout
        assert process.poll() is None
    assert (said["state"], said["windows"], said["bytes"], said["records"]) == ("running", 0, 0, {})
    (window,) = said["running"]["windows"]
    assert window["bytes_read"] >= len(READ) and window["bytes"] == len(READ) + len(b"hold\n")
    assert (window["window"], window["tasks_done"], window["tasks"]) == (1, 1, 2)
    assert window["records_read"] >= 3 and window["seconds"] > 0
    assert window["operators"]["hold"]["records"] == {"output": 3}
    assert said["running"]["backlog"] == {"reader": 2}
    assert "running hold.output" in text and "window 1: " in text
    assert process.returncode == 0
    over, reported = asked(folder), json.loads((folder / "said.json").read_bytes())
    assert (over["state"], over["running"], over["bytes"]) == ("completed", None, len(READ) + len(b"hold\n"))
    assert reported["running"] is None
    assert reported["operators"]["hold"]["records"] == over["operators"]["hold"]["records"] == {"output": 4}
