"""Makes breakpoint() in an operator open a debugger on the terminal, or explain how to get one."""

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
    """breakpoint() was called in a process without a terminal."""

    def __str__(self) -> str:
        return "breakpoint() finds no terminal in a task of its own process; use: dagflow run APP --local --workers 1"


def is_debugging() -> bool:
    """Whether a debugger waits for commands: then nothing counts as late, and nothing else should use the terminal."""
    return _DEBUGGING.is_set()


@contextlib.contextmanager
def breakpoints(*, is_shared: bool) -> Iterator[None]:
    """Adapt breakpoint() to the process of a task within the block.

    A debugger that the environment or another program, such as a notebook, has chosen stays in place.
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
    # Imported late: only debugging needs it.
    import pdb

    class TerminalDebugger(pdb.Pdb):
        """Uses the terminal, although operators' output goes elsewhere."""

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
