"""What a journal says, and that inspecting commands start no Spark."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.execution.messages import WindowJob
from dagflow.journal.heartbeat import RunningWindow, RunProgress, RunRates
from dagflow.metrics.counters import OperatorReport
from dagflow.plan.load import load_app
from dagflow.plan.render.explain import FORMATS
from dagflow.runtime.local import InlineRuntime
from tests.cli.commands.inspected_app import APP, folder, invoke, journal
from tests.cli.processes import environment, modules_loaded_by
from tests.engine.sample_app import app_of
from tests.engine.test_driver import crashing
from tests.execution.sample_operators import CallsFunctions
from tests.journal.other_machine import beat_at_work
from tests.nightly import by_day

__all__ = ["folder", "journal"]


def count_on_two_lines(operator: CallsFunctions) -> None:
    """Count under a name with a line break."""
    operator.context.counters["a\nb"] += 1


@pytest.mark.parametrize(
    "args",
    by_day(
        1,
        [
            ["validate", "app.yaml"],
            *(["plan", "app.yaml", "--format", form] for form in FORMATS),
            ["operators"],
            ["operators", "BlockReader"],
            ["status", "journal"],
            ["schema"],
        ],
    ),
    ids=" ".join,
)
def test_looking_needs_no_spark(journal: Path, args: list[str]) -> None:
    """None of these commands imports PySpark, let alone starts a Java machine."""
    loaded = modules_loaded_by(args, cwd=journal.parent)
    assert "dagflow" in loaded
    assert not loaded & {"pyspark", "py4j"}


def test_the_status_of_a_checkpoint_is_what_its_journal_says(journal: Path) -> None:
    """The same figures for people and as JSON, with the windows that were planned and committed."""
    code, out, err = invoke("status", "journal", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["app"], said["state"], said["files"], said["blocks"], said["bytes"]) == (
        "sample",
        "completed",
        1,
        3,
        21,
    )
    assert said["last_planned"] == said["last_committed"] == said["windows"] == 1
    assert said["records"]["reader.messages"] == 4

    code, out, err = invoke("status", "journal")
    assert (code, err) == (0, "")
    rows = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith(" "))
    assert (rows["app"], rows["state"], rows["files"], rows["blocks"]) == ("sample", "completed", "1", "3")
    assert rows["output:"] == str(journal.parent / "out")
    assert rows["windows"] == "1 (last planned 1, committed 1)"


def test_a_name_with_a_newline_in_it_is_shown_on_one_line(folder: Path) -> None:
    """What follows would look like a file of its own."""
    (folder / "in" / "a\nb").write_text("x\n")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    code, out, _ = invoke("status", "journal", "--files", "*b")
    assert (code, out.splitlines()[0]) == (0, str(folder / "in" / "a\\nb"))
    assert "a\nb" not in out + invoke("status", "journal", "--window", "1")[1]


def test_a_counter_with_a_line_break_is_shown_on_one_line(folder: Path) -> None:
    """What follows would look like a figure of its own."""
    run(app_of(folder, [b"a"], middle=CallsFunctions(end_window=count_on_two_lines)), runtime=InlineRuntime)
    code, out, err = invoke("status", "journal")
    assert (code, err) == (0, "")
    assert any(line.split() == ["count", "middle:a\\nb", "2"] for line in out.splitlines()), out


def test_an_app_file_stands_for_its_checkpoint(journal: Path) -> None:
    """The same answer, by the app's path and from any other directory by its absolute one."""
    expected = json.loads(invoke("status", "journal", "--json")[1])
    found = json.loads(invoke("status", "app.yaml", "--json")[1])
    for said in (expected, found):
        assert said["driver"].pop("beat_age_seconds") >= 0
    assert found == expected
    assert (found["driver"]["state"], found["driver"]["app_file"]) == ("completed", str(journal.parent / "app.yaml"))
    code, out, err = invoke("status", "app.yaml", "--window", "1")
    assert (code, err) == (0, "")
    assert out.startswith("window 1")


@pytest.mark.parametrize("name", ["ap.yaml", "ap.yml", "no/app.yaml"])
def test_an_app_file_that_is_not_there_is_named(folder: Path, name: str) -> None:
    """With the exit code of a mistake on the command line."""
    code, out, err = invoke("status", name)
    assert (code, out) == (2, "")
    assert name in err
    assert "No such file" in err


def test_the_status_of_a_failed_run_shows_its_error(folder: Path) -> None:
    """With the moment, the process, and the whole text."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(1))
    rows = dict(line.split(None, 1) for line in invoke("status", "app.yaml")[1].splitlines() if line[0] != " ")
    assert rows["state"] == "failed"
    assert rows["run"].startswith("failed 20")
    assert f"process {os.getpid()} of" in rows["run"]
    assert rows["error:"] == "the lights went out"


def test_the_status_of_a_killed_run_says_so(folder: Path) -> None:
    """At once, without waiting for a beat to grow old."""
    script = (
        "import os, signal, sys\n"
        "from dagflow.engine.run import run\n"
        "from dagflow.plan.load import load_app\n"
        "from dagflow.runtime.local import InlineRuntime\n"
        "die = lambda window: os.kill(os.getpid(), signal.SIGKILL)\n"
        "run(load_app('app.yaml'), runtime=lambda program: InlineRuntime(program, before=die))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], env=environment()) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        found = json.loads(invoke("status", "app.yaml", "--json")[1])
        text = invoke("status", "app.yaml")[1]
        metrics = invoke("metrics", "app.yaml")[1]
    assert (found["state"], found["driver"]["state"], found["driver"]["pid"]) == ("stopped", "killed", dead.pid)
    assert re.findall(r'^dagflow_run_state{.*state="(.*)"} 1$', metrics, re.MULTILINE) == ["killed"]
    assert re.search(r"^ *state +killed$", text, re.MULTILINE)
    assert "killed, it left no final status" in text
    assert run(load_app("app.yaml"), runtime=InlineRuntime).state == "completed"
    assert json.loads(invoke("status", "app.yaml", "--json")[1])["state"] == "completed"


def test_the_status_of_a_run_at_work_shows_what_its_windows_have_read(journal: Path) -> None:
    """What each window and operator has done by now, how fast the run is, and what waits; also as JSON."""
    operators = {"reader": OperatorReport(1.5, {"messages": 351_841})}
    window = RunningWindow(2, 16 << 20, 54 << 20, 1, 4, operators=operators, records_read=351_841, seconds=6.04)
    progress = RunProgress((window,), RunRates(2.5 * (1 << 20), 60_000.0, 15.2), {"reader": 12})
    beat_at_work("journal", progress)
    lines = [" ".join(line.split()) for line in invoke("status", "journal")[1].splitlines()]
    expected = [
        "running window 2: 16.0/54.0 MiB, 351,841 records, 1/4",
        "tasks, 6.0 s",
        "running reader.messages 351,841 records",
        "rate 2.5 MiB/s, 60.0 k records/s, 0:15 left",
        "backlog reader 12",
    ]
    start = lines.index(expected[0])
    assert lines[start : start + len(expected)] == expected
    said = json.loads(invoke("status", "journal", "--json")[1])
    assert (said["running"], said["bytes"]) == (progress.to_json(), 21)
    beat_at_work("journal", None)
    assert json.loads(invoke("status", "journal", "--json")[1])["running"] is None
    assert "running reader" not in invoke("status", "journal")[1]


def test_asking_for_a_status_changes_nothing(journal: Path) -> None:
    """A run that is under way is not disturbed."""
    before = {path: path.stat().st_mtime_ns for path in journal.rglob("*")}
    invoke("status", "journal")
    assert {path: path.stat().st_mtime_ns for path in journal.rglob("*")} == before


def test_a_checkpoint_in_a_file_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """As where a part of a checkpoint is given behind an app."""
    code, _, err = invoke("status", "app.yaml/log")
    message = (
        "dagflow status: app.yaml/log is no checkpoint: app.yaml is a file; if it is an app, give app.yaml alone\n"
    )
    assert (code, err.startswith(message)) == (2, True)


def test_a_checkpoint_that_is_not_there_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """Exit code 2, and no directory is left behind by the question."""
    code, out, err = invoke("status", "jurnal")
    assert (code, out) == (2, "")
    assert "there is no journal at" in err
    assert not (folder / "jurnal").exists()


@pytest.mark.usefixtures("journal")
def test_a_window_that_is_unknown_is_no_missing_journal() -> None:
    """The journal is there, and says which windows it knows."""
    code, _, err = invoke("status", "journal", "--window", "99")
    assert "window 99 is unknown" in err and "no journal" not in err
    assert code == 1


def test_an_app_that_has_not_run_is_not_taken_for_one_that_ran_elsewhere(folder: Path) -> None:
    """What begins the journal, or the directory in which there is one."""
    code, _, err = invoke("status", "app.yaml")
    message = f"dagflow status: there is no journal at '{folder}/journal': app.yaml has not run yet"
    assert (code, err.startswith(f"{message}, and `dagflow run app.yaml` begins one\n")) == (2, True)
    (folder / "journal").mkdir()
    (folder / "elsewhere").mkdir()
    with contextlib.chdir(folder / "elsewhere"):
        code, _, err = invoke("status", "../app.yaml")
    assert (code, f"; there is one at {folder}/journal: start dagflow in {folder}\n" in err) == (2, True)


def test_a_result_that_waits_for_the_end_of_the_run_is_shown(folder: Path) -> None:
    """It is neither published nor lost, and the run is not complete."""
    text = APP.replace("RecordFilter", "CountBy").replace('{drop: {prefix: "#"}}', "{by: record}")
    (folder / "app.yaml").write_text(text)

    def before(window: WindowJob) -> None:
        if window.window_id > 1:
            raise DagflowError("the lights went out")

    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=lambda program: InlineRuntime(program, before=before))
    code, _, err = invoke("status", "journal")
    assert code == 0
    assert "a result of operator 'filter' over several windows is held back" in err
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert invoke("status", "journal")[2] == ""
