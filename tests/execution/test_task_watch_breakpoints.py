"""What breakpoint() does in an operator."""

from __future__ import annotations

import io
import sys

import pytest

from dagflow.errors import RunStoppedError
from dagflow.execution.task_watch import NoTerminalError, breakpoints, is_debugging


def test_a_process_without_a_terminal_says_where_to_debug() -> None:
    """Instead of a debugger that reads the end of its input."""
    with breakpoints(is_shared=False), pytest.raises(NoTerminalError, match="--local --workers 1"):
        breakpoint()
    assert sys.breakpointhook is sys.__breakpointhook__


def test_a_debugger_talks_to_the_terminal_and_not_to_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output belongs to what takes the operators' output; the debugger's is the process's own."""
    terminal, record = io.StringIO(), b"the record"
    monkeypatch.setattr(sys, "__stdout__", terminal)
    monkeypatch.setattr(sys, "stdin", io.StringIO("p record\nc\n"))
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    with breakpoints(is_shared=True):
        breakpoint()
        print("printed", record)
    assert "(Pdb) b'the record'\n" in terminal.getvalue() and "\nprinted b'the" not in terminal.getvalue()
    assert "printed b'the record'" in capsys.readouterr().out
    assert not is_debugging()


def test_leaving_the_debugger_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does; it is no failure of the operator."""
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    with pytest.raises(RunStoppedError, match="the debugger was left"), breakpoints(is_shared=True):
        breakpoint()
        pytest.fail("the operator went on")
    assert not is_debugging()


def test_a_chosen_debugger_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook, or PYTHONBREAKPOINT, knows better where its debugger is."""
    calls: list[str] = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: calls.append("notebook"))
    with breakpoints(is_shared=False):
        breakpoint()
    assert calls == ["notebook"]
