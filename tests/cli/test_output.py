"""What is printed, where, and what happens when the output is closed."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from dagflow.cli import output
from dagflow.errors import DagflowError, OperatorError, Problem, SpecError
from tests.cli.processes import PATIENCE_S


def run_python(code: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run code in a fresh interpreter."""
    return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options are forwarded as they are
        [sys.executable, "-c", code], timeout=PATIENCE_S, check=False, **options
    )


def test_a_result_goes_to_stdout_and_a_note_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout holds nothing but what was asked for."""
    output.result("asked")
    output.note("news")
    captured = capsys.readouterr()
    assert captured.out == "asked\n"
    assert captured.err == "news\n"


def test_what_a_terminal_would_obey_is_shown_instead(capsys: pytest.CaptureFixture[str]) -> None:
    """A file name with an escape sequence or undecodable bytes cannot rewrite the screen or fail the print."""
    output.result("a\x1b[2Jb\udcff é\tc\nd")
    assert capsys.readouterr().out == "a\\x1b[2Jb\\udcff é\tc\nd\n"


def test_text_that_the_encoding_lacks_is_escaped() -> None:
    """A plan drawn with lines is printed in any locale."""
    done = run_python(
        "from dagflow.cli import output; output.result('\\u2500 end')",
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == b"\\u2500 end\n"
    assert done.returncode == 0


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """A closed pipe behind stdout ends nothing and prints nothing."""
    done = run_python(
        "import os\n"
        "from dagflow.cli import output\n"
        "read, write = os.pipe(); os.dup2(write, 1); os.close(write); os.close(read)\n"
        "output.result('first'); output.result('second')\n",
        stderr=subprocess.PIPE,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_an_error() -> None:
    """A result that could not be written is not a success."""
    with open("/dev/full", "wb") as full:
        done = run_python(
            "from dagflow.cli import output\n"
            "from dagflow.errors import DagflowError\n"
            "try:\n    output.result('x')\nexcept DagflowError as error:\n    output.note(str(error))\n",
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.stderr.startswith(b"cannot write the result to standard output: No space left on device\n    the ")
    assert done.returncode == 0


def test_a_closed_stderr_does_not_stop_a_run() -> None:
    """A run outlives the terminal that watched it."""
    done = run_python(
        "import os\n"
        "from dagflow.cli import output\n"
        "read, write = os.pipe(); os.dup2(write, 2); os.close(write); os.close(read)\n"
        "output.note('lost'); output.note('lost'); output.result('kept')\n",
        stdout=subprocess.PIPE,
    )
    assert (done.returncode, done.stdout) == (0, b"kept\n")


def test_every_problem_of_an_app_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Problems are shown as file, line, column and message, with nothing around them."""
    error = SpecError([Problem("a.yaml", 3, 5, "no key 'x'"), Problem("a.yaml", 9, 1, "no key 'y'")])
    output.explain(error, with_trace=False)
    assert capsys.readouterr().err == "a.yaml:3:5: no key 'x'\na.yaml:9:1: no key 'y'\n"


def test_an_error_is_followed_by_its_notes_and_shown_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """What to do next stands below what went wrong."""
    error = OperatorError("raised KeyError('host')", operator="keep", window_id=42, partition=3)
    error.add_note("    continue with: dagflow run a.yaml")
    output.explain(error, with_trace=False)
    assert capsys.readouterr().err == (
        "window 42, operator 'keep' partition 3: raised KeyError('host')\n    continue with: dagflow run a.yaml\n"
    )


def test_tracebacks_are_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """The driver's traceback, the executor's and the error itself, in this order."""
    try:
        raise OperatorError("raised", operator="keep", trace="Traceback in the worker\n")
    except OperatorError as error:
        output.explain(error, with_trace=True)
    shown = capsys.readouterr().err
    assert shown.index("Traceback (most recent") < shown.index("\noperator 'keep': raised\n")
    assert shown.endswith("Traceback in the worker\n")


def test_an_unexpected_exception_is_called_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug of dagflow is distinguished from a mistake in an app."""
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        output.explain(error, with_trace=False)
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "this is a bug in dagflow: ZeroDivisionError: division by zero" in shown


def test_a_mistake_on_the_command_line_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the shape of every other error, and says where to look."""
    context = click.Context(click.Command("run"), info_name="dagflow run")
    output.explain(click.UsageError("Missing argument 'APP'.", context), with_trace=True)
    assert capsys.readouterr().err == "dagflow run: missing argument 'APP'\n    see: dagflow run --help\n"


def test_a_dagflow_error_without_anything_else_is_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Message and hint, and nothing else."""
    output.explain(DagflowError("it broke", hint="fix it"), with_trace=False)
    assert capsys.readouterr().err == "it broke\n    fix it\n"
