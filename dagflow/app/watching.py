"""Runs an app under a display that suits where it is shown: one line in a notebook, as the command line elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from typing_extensions import override

from dagflow.cli.display import Display
from dagflow.cli.progress import display_for, logging_to
from dagflow.cli.render import progress_line
from dagflow.cli.signals import on_driver_thread, stop_on_signals
from dagflow.engine.run import run as engine_run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.stop_request import StopRequest
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot


class NotebookDisplay(Display):
    """One line in the output of a cell, which changes while the run works; messages are lines below it."""

    def __init__(self, app: str, show: Any) -> None:
        super().__init__(app)
        self._handle = show({"text/plain": f"{app}: starting"}, raw=True, display_id=True)

    def _line(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)

    @override
    def progress(self, snapshot: RunSnapshot) -> None:
        super().progress(snapshot)
        self._line(progress_line(snapshot))

    @override
    def notice(self, text: str) -> None:
        sys.stderr.write(f"{self.redact(text)}\n")

    @override
    def stopping(self) -> None:
        self._line(f"{self.app}: stopping")

    @override
    def finish(self, snapshot: RunSnapshot) -> None:
        super().finish(snapshot)
        self._line(progress_line(snapshot))


def run_watched(app: LogicalPlan, options: RunOptions, *, is_quiet: bool) -> RunSnapshot:
    """Raises KeyboardInterrupt if the run was interrupted, after it has stopped in order."""
    notebook = None if is_quiet else _notebook()
    display = NotebookDisplay(app.name, notebook) if notebook else display_for(app.name, app.redact, is_quiet=is_quiet)
    display.redact = app.redact
    stop = StopRequest()
    is_interrupted = False

    def ask() -> None:
        nonlocal is_interrupted
        is_interrupted = True
        stop.request()
        display.stopping()

    def again() -> None:
        raise KeyboardInterrupt

    with logging_to(display, is_verbose=False), display, stop_on_signals(ask, again):
        snapshot = on_driver_thread(lambda: engine_run(app, options, display, stop))
        display.finish(snapshot)
    if is_interrupted:
        raise KeyboardInterrupt
    return snapshot


def _notebook() -> Any:
    """The display function of a notebook; None outside of one."""
    running = sys.modules.get("IPython")
    shell = None if running is None else running.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    # Imported late: it is there in a notebook only.
    from IPython.display import display

    return display
