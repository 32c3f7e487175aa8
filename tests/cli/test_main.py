"""How commands are found, and how they end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import dagflow
from dagflow.cli.main import COMMANDS, CommandLine, command_line
from dagflow.errors import DagflowError, PlanError, Problem, RunStoppedError
from tests.cli.processes import ENTRY, PATIENCE_S, dagflow_command, environment
from tests.nightly import by_day


def command_line_with(error: BaseException) -> CommandLine:
    """A command line whose only command fails."""

    class Failing(CommandLine):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            @click.command(cmd_name)
            def command() -> None:
                raise error

            return command

    return Failing(invoke_without_command=True)


def test_without_a_command_the_help_is_shown() -> None:
    """A person who types nothing learns what there is, and that is no failure."""
    shown = CliRunner().invoke(command_line, [])
    assert shown.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in shown.stdout


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_that_of_the_package(flag: str) -> None:
    """`--version` names the program and its version."""
    shown = CliRunner().invoke(command_line, [flag])
    assert (shown.exit_code, shown.stdout) == (0, f"dagflow {dagflow.__version__}\n")


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["plann"], "dagflow: there is no command 'plann'; did you mean 'plan'?\n    see: dagflow --help\n"),
        (
            ["frobnicate"],
            f"dagflow: there is no command 'frobnicate'; there are: {', '.join(COMMANDS)}\n    see: dagflow --help\n",
        ),
        (
            ["--verison"],
            "dagflow: there is no option '--verison'; did you mean '--version'?\n    see: dagflow --help\n",
        ),
        (
            ["run", "--folow"],
            "dagflow run: there is no option '--folow'; did you mean '--follow'?\n    see: dagflow run --help\n",
        ),
        (["validate"], "dagflow validate: missing argument 'APP'\n    see: dagflow validate --help\n"),
        (
            ["run", "a.yaml", "--conf", "spark.executor.memory"],
            "dagflow run: invalid value for '--conf': 'spark.executor.memory' is not KEY=VALUE,"
            " for example spark.executor.memory=4g\n    see: dagflow run --help\n",
        ),
        (
            ["run", "a.yaml", "--conf", "=4g"],
            "dagflow run: invalid value for '--conf': '=4g' is not KEY=VALUE,"
            " for example spark.executor.memory=4g\n    see: dagflow run --help\n",
        ),
        (
            ["plan", "a.yaml", "--format", "pdf"],
            "dagflow plan: invalid value for '--format': 'pdf' is not one of 'text', 'mermaid', 'dot', 'svg'\n"
            "    see: dagflow plan --help\n",
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_reported_in_one_shape(args: list[str], complaint: str) -> None:
    """Exit code 2, nothing on stdout, and on stderr what is wrong, what comes near, and where to look."""
    done = CliRunner().invoke(command_line, args)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", complaint)


@pytest.mark.parametrize(
    ("error", "exit_code", "text"),
    [
        (DagflowError("the disk is full"), 1, "the disk is full\n"),
        (PlanError([Problem("a.yaml", 1, 2, "a cycle")]), 2, "a.yaml:1:2: a cycle\n"),
        (RunStoppedError("stopped"), 130, "stopped\n"),
        (KeyboardInterrupt(), 130, "dagflow: interrupted\n"),
    ],
)
def test_the_kind_of_an_error_decides_the_exit_code(error: BaseException, exit_code: int, text: str) -> None:
    """1 the run failed, 2 the app or the command line is wrong, 130 interrupted; each error is printed once."""
    done = CliRunner().invoke(command_line_with(error), ["run"])
    assert (done.exit_code, done.stdout, done.stderr.lstrip("\n")) == (exit_code, "", text)


def test_a_bug_ends_with_a_report_and_exit_code_one() -> None:
    """An unexpected exception is shown whole."""
    done = CliRunner().invoke(command_line_with(ZeroDivisionError("division by zero")), ["run"])
    assert done.exit_code == 1
    assert "Traceback" in done.stderr
    assert "this is a bug in dagflow: ZeroDivisionError: division by zero\n" in done.stderr


@pytest.mark.parametrize("command", by_day(1, ["doctor", "run", "validate"]))
def test_a_package_that_is_missing_is_named_with_the_remedy(tmp_path: Path, command: str) -> None:
    """As after an installation without dependencies; it is no bug of dagflow, and has no traceback."""
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\", name='pyarrow')")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    done = dagflow_command([command, "app.yaml"], PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.startswith("there is no module 'pyarrow' in ") and "pip install dagflow" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("value", ["1", ""])
def test_the_environment_can_ask_for_tracebacks(value: str) -> None:
    """DAGFLOW_DEBUG=1 shows where an expected error came from; unset or empty, it is one line."""
    done = CliRunner(env={"DAGFLOW_DEBUG": value}).invoke(command_line_with(DagflowError("it broke")), ["run"])
    assert ("Traceback" in done.stderr) is bool(value)
    assert done.stderr.endswith("it broke\n")


@pytest.mark.parametrize("args", [["--verbose", "validate", "none.yaml"], ["validate", "none.yaml", "-v"]])
def test_verbose_counts_wherever_it_stands(args: list[str]) -> None:
    """Before or after the command's name."""
    done = CliRunner().invoke(command_line, args)
    assert done.exit_code == 2
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--help"], ["pyspark", "pyarrow", "pydantic", "rich", "dagflow.plan"]),
        (
            ["validate", "apps/block_reader.yaml"],
            ["pyspark", "rich", "dagflow.engine.run_setup", "dagflow.runtime.local"],
        ),
    ],
    ids=["help", "validate"],
)
def test_a_short_command_loads_nothing_of_a_run(words: list[str], loaded: list[str]) -> None:
    """The help imports none of the commands, and a check of an app no part of what runs it."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\nfrom dagflow.cli.main import command_line\n"
            f"try:\n    command_line.main({words})\n"
            f"finally:\n    print(*sys.modules.keys() & set({loaded}))",
        ],
        cwd=Path(__file__).parents[2],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == ""
    assert "\n  run " in done.stdout or "is valid" in done.stderr


@pytest.mark.parametrize("where", ["{}", "exec('{}')"], ids=["plain", "within exec"])
def test_sigterm_outside_of_a_run_is_an_interruption(tmp_path: Path, where: str) -> None:
    """A command that was asked to end says so with 130, not with a traceback and not by another signal."""
    ask = where.format("os.kill(os.getpid(), signal.SIGTERM)")
    code = (
        "import os, signal, sys\n"
        "from dagflow.cli import main\n"
        f"main.CommandLine.format_commands = lambda *_: {ask} or []\n"
        "sys.argv = ['dagflow', '--help']\n"
        "main.main()\n"
    )
    (tmp_path / "command.py").write_text(code)
    # With -m: a script or text of a command line that was interrupted ends with its exit code in any case.
    done = subprocess.run(
        [sys.executable, "-m", "command"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (130, "dagflow: interrupted")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_module_runs_like_the_command() -> None:
    """`python -m dagflow` is `dagflow`."""
    done = dagflow_command(["--version"])
    assert (done.returncode, done.stdout) == (0, f"dagflow {dagflow.__version__}\n")


PRINTING = [["--help"], ["--version"], [], ["status", "--help"], ["schema"]]


@pytest.mark.parametrize("args", by_day(2, PRINTING), ids=" ".join)
def test_a_full_disk_behind_stdout_is_reported_by_every_command(args: list[str]) -> None:
    """Exit code 1 and one message, also of what click prints; a reader that has gone is no failure."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*ENTRY, *args], env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )
    assert done.returncode == 1
    assert done.stderr.startswith("cannot write the result to standard output: No space left on device\n    the com")
    piped = f"{shlex.join([*ENTRY, *args])} | true; exit ${{PIPESTATUS[0]}}"
    gone = subprocess.run(["bash", "-c", piped], env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert (gone.returncode, gone.stderr) == (0, "")


@pytest.mark.nightly
def test_files_do_not_get_the_descriptors_of_closed_streams() -> None:
    """What native code writes to stdout or stderr would get into them; a command without streams ends with 0."""
    look = "import os; from dagflow.cli import main; main._open_closed_streams(); exit(os.open('/', os.O_RDONLY) < 3)"
    for command in ([sys.executable, "-c", look], [*ENTRY, "schema"]):
        closed = f"{shlex.join(command)} <&- >&- 2>&-"
        assert subprocess.run(["bash", "-c", closed], env=environment(), timeout=PATIENCE_S).returncode == 0


def test_started_processes_have_all_streams_too() -> None:
    """A connection in the place of standard error would get what a program of an operator writes there."""
    start = "import os; from dagflow.cli import main; main._open_closed_streams(); os.execl('/bin/sh', 'sh', '-c', %r)"
    command = [sys.executable, "-c", start % "true <&0 >&1 && true >&2"]
    closed = f"{shlex.join(command)} <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", closed], env=environment(), timeout=PATIENCE_S).returncode == 0


COUNTS_COLLECTIONS = """
import atexit, gc, sys
from dagflow.cli.main import main
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
atexit.register(lambda: print(len(collections), file=sys.stderr))
main()
"""


def test_no_garbage_is_collected_while_a_command_starts() -> None:
    """It would take a tenth of the time: what is imported stays."""
    app = Path(__file__).parents[2] / "apps" / "csv_to_json.yaml"
    command = [sys.executable, "-c", COUNTS_COLLECTIONS, "plan", str(app)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stderr == "0\n"


COLLECTS_LATER = """
import gc
from dagflow.cli.main import _collect_late
usual = gc.get_threshold()
_collect_late()
made = [[] for _ in range(400_000)]
print(gc.get_threshold() == usual, len(gc.callbacks))
"""


def test_garbage_is_collected_as_usual_once_a_process_has_started() -> None:
    """A run that goes on for weeks must not hold it."""
    command = [sys.executable, "-c", COLLECTS_LATER]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout == "True 0\n"
