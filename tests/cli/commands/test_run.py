"""`dagflow run` as a person starts it, on real Spark, and the command that continues it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dagflow.cli.app_run import _may_pass
from dagflow.errors import DagflowError, MissingError, OperatorError, StorageError, TransientStorageError
from tests.cli.processes import ENTRY, PATIENCE_S, dagflow_command, environment

APP = """\
name: sample
attributes:
  checkpoint: journal
  master: local[1]
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 64}}
  reader: {class: BlockReader, properties: {format: lines}}
  keep: {class: sample_ops.Keep, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: keep.input}
  kept: {from: keep.output, to: writer.input}
"""

OPERATORS = """\
from dagflow import InputPort, Operator, OutputPort


class Keep(Operator):
    \"\"\"Keeps every record but the poisoned one.\"\"\"

    poison: str = "none"

    input = InputPort()
    output = OutputPort()

    @input.each
    def keep(self, record: bytes) -> None:
        if record == self.poison.encode():
            raise LookupError("poison")
        self.output.emit(record)
"""

LINES = [f"line {number}" for number in range(40)]


def make_sample(folder: Path, file: str = "a.txt") -> Path:
    """Write an app, its operator and its input into a directory, and return that."""
    (folder / "app.yaml").write_text(APP)
    (folder / "sample_ops.py").write_text(OPERATORS)
    (folder / "in").mkdir(parents=True)
    (folder / "in" / file).write_text("".join(f"{line}\n" for line in LINES))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an app, its operator and its input."""
    return make_sample(tmp_path)


def published(folder: Path) -> list[str]:
    """Every published line, sorted as the input's numbers are."""
    files = [file for file in (folder / "out").rglob("*") if file.is_file()]
    lines = [line for file in files for line in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: int(line.split()[1]))


@contextmanager
def following(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that watches for new files, given to the block once it has published a window."""
    process = subprocess.Popen(
        [*ENTRY, "run", "app.yaml", "--follow", "--json", "-v"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "window committed" in line:
                break
        else:
            pytest.fail("".join(seen))
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize("runtime", [["--local"], pytest.param([], id="Spark", marks=pytest.mark.nightly)])
def test_a_run_accounts_for_itself_and_a_second_one_finds_nothing_new(folder: Path, runtime: list[str]) -> None:
    """Stdout holds one JSON object, stderr the summary for people; what was processed is not read again."""
    # The directory has a name that Java does not find in this locale, and there is no home.
    folder = folder.rename(folder.with_name("a é 'quoted\" name"))
    bare = {"LC_ALL": "C", "HOME": "/nowhere", "PYTHONHASHSEED": "7", "PYTHONSTARTUP": "/nowhere/startup.py"}
    first = dagflow_command(["run", "app.yaml", "--json", *runtime], cwd=folder, **bare)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert {key: found[key] for key in ("app", "state", "files", "blocks", "bytes", "rejected")} == {
        "app": "sample",
        "state": "completed",
        "files": 1,
        "blocks": 5,
        "bytes": (folder / "in" / "a.txt").stat().st_size,
        "rejected": 0,
    }
    assert (found["records"]["reader.messages"], found["records"]["keep.output"]) == (40, 40)
    assert set(found) == {
        *("app", "state", "windows", "files", "blocks", "bytes"),
        *("records", "rejected", "account", "seconds", "partitions", "outputs", "busy_seconds", "left_out"),
        *("operators", "running", "waiting", "concerns", "corrections", "old_rows", "chose_local"),
    }
    assert found["account"].pop("bytes") == found["bytes"] == sum(found["account"].values())
    assert re.search(
        r"^sample: completed in .*\n    published \d+ windows?, read from 1 file, 5 blocks", first.stderr, re.M
    )
    assert published(folder) == LINES

    second = dagflow_command(["run", "app.yaml", "-q", "--json", "--local"], cwd=folder)
    assert second.returncode == 0, second.stderr
    assert second.stderr == ""
    assert json.loads(second.stdout)["windows"] == 0
    third = dagflow_command(["run", "app.yaml", "--local"], cwd=folder)
    assert (third.returncode, third.stdout) == (0, "")
    assert "sample: nothing new: there is no input that earlier runs have not processed" in third.stderr
    assert published(folder) == LINES


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.e2e
def test_a_failed_run_says_how_to_continue_and_is_continued(folder: Path) -> None:
    """Exit code 1, the cause once and its line, an account of the failure; then the command that was printed works."""
    failed = dagflow_command(["run", "app.yaml", "--json", "--set", "keep.poison=line 7"], cwd=folder)
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["state"] == "failed"
    assert failed.stderr.count("raised LookupError(poison)") == 1, failed.stderr
    assert failed.stderr.count('sample_ops.py:15: raise LookupError("poison")') == 1, failed.stderr
    assert "operator 'keep'" in failed.stderr
    assert "fix that, and continue with: dagflow run app.yaml --set 'keep.poison=line 7'" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (folder / "out").exists() or published(folder) == []

    continued = dagflow_command(["run", "app.yaml", "--local"], cwd=folder)
    assert continued.returncode == 0, continued.stderr
    assert "window 1 was planned with the app as it was and is planned again" in continued.stderr
    assert published(folder) == LINES


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.e2e
def test_a_stopped_run_ends_cleanly_and_is_continued(folder: Path) -> None:
    """The first signal ends a run with 130 and a resumable journal; nothing is lost or published twice."""
    with following(folder) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert json.loads(out)["state"] == "stopped"
    assert "stopping: the window in flight is finished or set aside" in err
    assert "continue with: dagflow run app.yaml --follow" in err
    assert "Traceback" not in err

    (folder / "in" / "b.txt").write_text("line 40\n")
    continued = dagflow_command(["run", "app.yaml", "--local"], cwd=folder)
    assert continued.returncode == 0, continued.stderr
    assert published(folder) == [*LINES, "line 40"]


STUCK_APP = """\
name: stuck
operators:
  source: {class: stuck_ops.Stuck}
  sink: {class: stuck_ops.Sink}
streams:
  things: {from: source.output, to: sink.input}
"""

STUCK_OPERATORS = """\
import sys
import threading

from dagflow import InputOperator, InputPort, Operator, OutputPort


class Stuck(InputOperator):
    \"\"\"Never comes back.\"\"\"

    output = OutputPort(str)

    def emit_tuples(self) -> None:
        print("stuck", file=sys.stderr, flush=True)
        threading.Event().wait()


class Sink(Operator):
    \"\"\"Never gets anything.\"\"\"

    input = InputPort(str)

    @input.each
    def take(self, thing: str) -> None:
        pass
"""


@pytest.mark.e2e
def test_a_second_signal_ends_a_run_that_does_not_stop(tmp_path: Path) -> None:
    """An operator that hangs in the driver cannot keep a person from leaving."""
    (tmp_path / "stuck.yaml").write_text(STUCK_APP)
    (tmp_path / "stuck_ops.py").write_text(STUCK_OPERATORS)
    with subprocess.Popen(
        [*ENTRY, "run", "stuck.yaml"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "stuck\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("stuck: stopping: ")
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        assert (process.returncode, process.stderr.read()) == (130, "")


def test_an_empty_checkpoint_is_not_that_of_the_app(folder: Path) -> None:
    """A variable of a script that has no value names none, and nothing runs."""
    done = dagflow_command(["run", "app.yaml", "--local", "--checkpoint", ""], cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--checkpoint': it is empty; expected a path or URL" in done.stderr
    assert not (folder / "journal").exists() and not (folder / "out").exists()


def test_a_mistake_in_the_app_is_reported_before_anything_runs(folder: Path) -> None:
    """Exit code 2 and nothing on stdout, not even with --json; the problem names its place."""
    (folder / "app.yaml").write_text(APP.replace("block_size", "blok_size"))
    done = dagflow_command(["run", "app.yaml", "--json", "--local", "--set", "raeder.format=lines"], cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "app.yaml:6:" in done.stderr
    assert "did you mean 'block_size'?" in done.stderr
    assert "--set raeder.format: the app has no operator 'raeder'; did you mean 'reader'?" in done.stderr
    assert not (folder / "journal").exists()


CASES = [
    (OSError("input/output error"), True),
    (DagflowError("the job failed"), True),
    (DagflowError("the job failed", hint="raise the limit"), False),
    (StorageError("cannot read: input/output error", url="in/a"), True),
    (StorageError("no space", url="out", hint="free some space"), False),
    (TransientStorageError("busy", url="out", hint="it answers again later"), True),
    (MissingError("no such file", url="in/a"), False),
    (OperatorError("take() raised KeyError('a')", operator="keep"), False),
]


@pytest.mark.parametrize(("error", "passes"), CASES, ids=lambda value: type(value).__name__)
def test_only_what_can_be_mended_is_to_be_mended(error: Exception, passes: bool) -> None:
    """Without advice, and with no operator, record or location at fault, the same run may succeed."""
    assert _may_pass(error) is passes


def test_a_run_that_failed_before_any_figures_says_how_long_it_took(tmp_path: Path) -> None:
    """As one that completed."""
    make_sample(tmp_path)
    failed = dagflow_command(["run", "app.yaml", "--local", "--json", "--set", "splitter.files=[none]"], cwd=tmp_path)
    found = json.loads(failed.stdout)
    assert (failed.returncode, found["state"], found["windows"]) == (1, "failed", 0)
    assert found["seconds"] > 0


@pytest.mark.nightly
def test_a_try_out_leaves_output_and_checkpoint_alone(tmp_path: Path) -> None:
    """It says where its output is; with what it does not take it is refused."""
    make_sample(tmp_path)
    done = dagflow_command(["run", "app.yaml", "--local", "--limit", "3", "--json"], cwd=tmp_path)
    assert done.returncode == 0 and "a try-out: the app's own output and checkpoint are as they were" in done.stderr
    assert json.loads(done.stdout)["records"]["reader.messages"] == 3
    assert f"{tmp_path}/.dagflow/sample.limit/out\n" in done.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "journal").exists()
    failed = dagflow_command(
        ["run", "app.yaml", "--local", "--limit", "3", "--set", "keep.poison=line 1"], cwd=tmp_path
    )
    assert (
        failed.returncode == 1 and "dagflow run app.yaml --set 'keep.poison=line 1' --local --limit 3" in failed.stderr
    )
    for wrong in (["--limit", "3"], ["--local", "--limit", "3", "--fresh"], ["--local", "--limit", "0"]):
        assert dagflow_command(["run", "app.yaml", *wrong], cwd=tmp_path).returncode == 2
