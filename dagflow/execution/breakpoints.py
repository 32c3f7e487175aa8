"""What breakpoint() does in an operator: it opens a debugger where a terminal is, or says how to get one."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from dagflow.errors import RunStoppedError

_DEBUGGING = threading.Event()
"""Whether a debugger waits for commands."""


class NoTerminalError(Exception):
    """breakpoint() was called where no terminal is."""

    def __str__(self) -> str:
        return "breakpoint() finds no terminal in a task of its own process; use: dagflow run APP --local --workers 1"


def is_debugging() -> bool:
    """Whether a debugger waits for commands: nothing is late, and nothing else should be written to the terminal."""
    return _DEBUGGING.is_set()


@contextlib.contextmanager
def breakpoints(*, is_shared: bool) -> Iterator[None]:
    """Let breakpoint() fit the process of a task within the block.

    Where the environment or another program, such as a notebook, has chosen a debugger, it is left alone.

    Args:
        is_shared: Whether the task runs in the driver's process, which has the terminal.
    """
    is_chosen = sys.breakpointhook is not sys.__breakpointhook__ or "PYTHONBREAKPOINT" in os.environ
    if is_chosen:
        yield
        return
    sys.breakpointhook = _debug if is_shared else _refuse
    try:
        yield
    finally:
        sys.breakpointhook = sys.__breakpointhook__


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NoTerminalError


def _debug(*_: Any, **__: Any) -> None:
    # Imported late: only a person who debugs pays for it.
    import pdb

    class TerminalDebugger(pdb.Pdb):
        """Talks to the terminal, although what operators print goes elsewhere."""

        def interaction(self, *arguments: Any, **options: Any) -> None:
            with contextlib.redirect_stdout(sys.__stdout__):
                self.stdout = sys.stdout
                _DEBUGGING.set()
                try:
                    super().interaction(*arguments, **options)
                finally:
                    _DEBUGGING.clear()
            if self.quitting:
                raise RunStoppedError("the debugger was left")

    TerminalDebugger().set_trace(sys._getframe(1))
