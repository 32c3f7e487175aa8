"""`dagflow run --local` as a person starts it: without Spark and without Java."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands.test_run import LINES, OPERATORS, make_sample, published
from tests.cli.processes import ENTRY, PATIENCE_S, dagflow_command, environment, modules_loaded_by

pytestmark = pytest.mark.e2e

NO_JAVA = {"JAVA_HOME": "/nowhere", "PYSPARK_PYTHON": "/nowhere"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with an app, its operator and its input."""
    return make_sample(tmp_path)


def test_a_local_run_publishes_and_a_second_one_finds_nothing_new(folder: Path) -> None:
    """Stdout holds the same JSON as on Spark, which is neither imported nor started; nor is what draws on terminals."""
    done = dagflow_command(["run", "app.yaml", "--local", "--json"], cwd=folder, **NO_JAVA)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["state"], summary["records"]["keep.output"]) == ("completed", 40)
    assert published(folder) == LINES
    loaded = modules_loaded_by(["run", "app.yaml", "--local"], cwd=folder)
    assert not loaded & {"pyspark", "py4j", "networkx", "fsspec", "rich"}


@pytest.mark.nightly
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_failure_shows_the_line_and_the_record(folder: Path, workers: str) -> None:
    """Where the author's code raised, and on what; then the command that goes on."""
    options = ["--local", "--workers", workers, "--set", "keep.poison='line 7'"]
    failed = dagflow_command(["run", "app.yaml", *options], cwd=folder, **NO_JAVA)
    assert failed.returncode == 1
    message = failed.stderr
    assert "keep() raised LookupError(poison) on the record at offset 49 of" in message
    assert re.search(r"\n    at sample_ops\.py:\d+: raise LookupError\(\"poison\"\)\n", message)
    assert "\n    record: b'line 7'\n" in message
    assert "continue with: dagflow run app.yaml --set " in message and "--local" in message
    done = dagflow_command(["run", "app.yaml", "--local", "--workers", workers], cwd=folder, **NO_JAVA)
    assert done.returncode == 0, done.stderr
    assert published(folder) == LINES


@pytest.mark.nightly
def test_a_breakpoint_opens_a_debugger_in_one_process(folder: Path) -> None:
    """With --workers 1 the debugger has the terminal; in a process of its own the error names that option."""
    (folder / "sample_ops.py").write_text(OPERATORS.replace('raise LookupError("poison")', "breakpoint()"))
    command = [*ENTRY, "run", "app.yaml", "--local", "--set", "keep.poison='line 7'", "--workers"]
    refused = subprocess.run([*command, "2"], cwd=folder, env=environment(), capture_output=True, text=True)
    assert refused.returncode == 1 and "use: dagflow run APP --local --workers 1" in refused.stderr
    debugged = subprocess.run(
        [*command, "1"],
        cwd=folder,
        env=environment(),
        input="p record\nc\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert debugged.returncode == 0, debugged.stderr
    assert "(Pdb) b'line 7'" in debugged.stdout
    assert published(folder) == LINES


@pytest.mark.nightly
def test_what_operators_print_reaches_the_user(folder: Path) -> None:
    """In each process, with the operator's name; standard output stays for the result."""
    (folder / "sample_ops.py").write_text(
        OPERATORS.replace('raise LookupError("poison")', 'print("seen", record.decode())')
    )
    options = ["--local", "--workers", "2", "--json", "--set", "keep.poison='line 7'"]
    done = dagflow_command(["run", "app.yaml", *options], cwd=folder)
    assert "operator 'keep' partition" in done.stderr and ": seen line 7\n" in done.stderr
    assert json.loads(done.stdout)["state"] == "completed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "2"], "it goes with --local"),
        (["--local", "--master", "local[2]"], "takes neither --master nor --conf"),
        (["--local", "--workers", "0"], "is not in the range"),
    ],
)
def test_options_that_do_not_fit_are_refused(folder: Path, options: list[str], message: str) -> None:
    """Nothing is run, and the message says what goes together."""
    refused = dagflow_command(["run", "app.yaml", *options], cwd=folder)
    assert refused.returncode == 2 and message in refused.stderr
    assert not (folder / "journal").exists()


@pytest.mark.nightly
def test_a_local_replay_makes_the_same_files(folder: Path) -> None:
    """Replaying needs no Spark either."""
    assert dagflow_command(["run", "app.yaml", "--local"], cwd=folder).returncode == 0
    done = dagflow_command(["replay", "app.yaml", "--window", "1", "--local"], cwd=folder, **NO_JAVA)
    assert done.returncode == 0 and "window 1 was run again; its 4 files came out the same" in done.stderr
