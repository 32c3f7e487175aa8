"""The second stop signal ends any command, whatever it is doing."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import ENTRY, PATIENCE_S, dagflow_command, environment

MODULE = '''\
import collections
import itertools
import os
import threading

from operators.splitter.splitter import FileSplitterInput


class Hanging(FileSplitterInput):
    """Hangs as the files say: in C, which keeps the interpreter's lock, or in a wait."""

    def check_properties(self):
        super().check_properties()
        if os.path.exists("checking"):
            self._hang()

    def prepare(self, run):
        super().prepare(run)
        if os.path.exists("preparing"):
            self._hang()

    def _hang(self):
        # Told from within the call, so that no handler in Python runs behind it.
        told = map(os.write, [1], [b"hangs\\n"])
        if os.path.exists("waiting"):
            next(told)
            threading.Event().wait()
        collections.deque(itertools.chain(told, itertools.repeat(0)), maxlen=0)
'''
APP = """\
name: hanging
attributes: {checkpoint: j}
operators:
  splitter: {class: hanging.Hanging, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: lines}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An app whose splitter can hang."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "hanging.py").write_text(MODULE)
    (tmp_path / "in").write_bytes(b"a\nb\n")
    return tmp_path


def ended_by_two(folder: Path, *args: str) -> int:
    """The exit code of a command that hangs, after two signals; one signal alone does not kill it."""
    with subprocess.Popen(
        [*ENTRY, *args], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"hangs\n"
            process.send_signal(signal.SIGTERM)
            # Long enough for a busy machine to see that these are two: an echo of a signal is none.
            with pytest.raises(subprocess.TimeoutExpired, match="timed out"):
                process.wait(timeout=2)
            process.send_signal(signal.SIGINT)
            return process.wait(timeout=PATIENCE_S / 10)
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_run_that_python_cannot_stop_is_killed_and_resumed(folder: Path) -> None:
    """A call in C keeps all of Python waiting; the checkpoint is as after any kill."""
    (folder / "preparing").touch()
    assert ended_by_two(folder, "run", "app.yaml", "--local", "--workers", "1") == -signal.SIGKILL
    (folder / "preparing").unlink()
    done = dagflow_command(["run", "app.yaml", "--local", "--workers", "1", "--json"], cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "completed")
    assert b"".join(file.read_bytes() for file in (folder / "out").iterdir()) == b"a\nb\n"


def test_a_run_that_waits_for_ever_ends_with_its_exit_code(folder: Path) -> None:
    """Python answers the second signal itself, as always."""
    for name in ("preparing", "waiting"):
        (folder / name).touch()
    assert ended_by_two(folder, "run", "app.yaml", "--local", "--workers", "1") == 130


def test_validate_that_waits_is_ended_by_the_first_signal(folder: Path) -> None:
    """It runs code of the app in its main thread."""
    for name in ("checking", "waiting"):
        (folder / name).touch()
    command = [*ENTRY, "validate", "app.yaml"]
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"hangs\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_S / 10) == 130
        finally:
            process.kill()


@pytest.mark.nightly
def test_validate_can_be_ended_too(folder: Path) -> None:
    """By two signals, where a call in C keeps all of Python waiting."""
    (folder / "checking").touch()
    assert ended_by_two(folder, "validate", "app.yaml") == -signal.SIGKILL
