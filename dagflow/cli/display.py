"""Displays watch a run and show its progress: on a terminal, as plain lines, or as JSON."""

from __future__ import annotations

import logging
from dataclasses import replace

from dagflow.cli import output
from dagflow.cli.render import progress_line, summary
from dagflow.cli.run_log import json_line
from dagflow.cli.shared_options import Redact
from dagflow.execution.task_watch import is_debugging
from dagflow.report.snapshot import RunSnapshot

LINE_INTERVAL_S = 5.0  # a log of an hour's run stays readable
STOPPING = "stopping: the window in flight is finished or set aside; a second signal (Ctrl-C) stops at once"


class Display:
    """Watches a run and shows nothing: the display of -q, and the base of the others.

    Attributes:
        last: The newest snapshot, or None before the first.
    """

    def __init__(self, app: str, redact: Redact = str) -> None:
        self.app = app
        self.redact = redact
        self.last: RunSnapshot | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Restore the screen."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Take in the run's figures; called from the driver's thread a few times a second."""
        if snapshot.waits_for:
            self.waiting(snapshot.waits_for)
        else:
            self.last = snapshot

    def waiting(self, what: str) -> None:
        """Show what the run waits for from now on, until the next figures come."""

    def notice(self, text: str) -> None:
        """Show a message to the user."""

    def logged(self, text: str, record: logging.LogRecord) -> None:
        self.notice(text)

    def stopping(self) -> None:
        """Show that a stop was requested; called from a signal handler, hence it takes no lock."""

    def abandon(self) -> None:
        """Leave the screen usable before the process dies; called from a signal handler."""

    def finish(self, snapshot: RunSnapshot) -> None:
        self.last = snapshot


class LineDisplay(Display):
    """Plain lines on stderr, at most one every few seconds."""

    def __init__(self, app: str, redact: Redact = str) -> None:
        super().__init__(app, redact)
        self._next_s = LINE_INTERVAL_S
        self._shown: RunSnapshot | None = None

    def progress(self, snapshot: RunSnapshot) -> None:
        """Write a line if the last one is old enough, by the run's own clock."""
        super().progress(snapshot)
        if snapshot.waits_for:
            return
        progress = None if snapshot.progress is None else snapshot.progress.without_times()
        figures = replace(snapshot, seconds=0.0, progress=progress)
        # A run that follows and has nothing to do is silent, one that works on a long window is not.
        has_news = any(snapshot.backlog.values()) or figures != self._shown
        if snapshot.seconds >= self._next_s and has_news and not is_debugging():
            self._next_s = snapshot.seconds + LINE_INTERVAL_S
            self._shown = figures
            self.show(progress_line(snapshot), snapshot)

    def show(self, text: str, snapshot: RunSnapshot) -> None:
        output.note(text)

    def waiting(self, what: str) -> None:
        self.notice(what)

    def notice(self, text: str) -> None:
        output.note(f"{self.app}: {self.redact(text)}")

    def stopping(self) -> None:
        """Write past Python's buffers: the thread that was interrupted may hold their lock."""
        output.at_once(f"{self.app}: {STOPPING}\n")

    def finish(self, snapshot: RunSnapshot) -> None:
        super().finish(snapshot)
        self.show(summary(snapshot), snapshot)


class JsonDisplay(LineDisplay):
    """The same lines on stderr as JSON objects, with the figures of `--json`."""

    def show(self, text: str, snapshot: RunSnapshot) -> None:
        output.note(json_line(self.app, "info", text, run=snapshot.to_json()))

    def notice(self, text: str) -> None:
        output.note(json_line(self.app, "info", self.redact(text)))

    def logged(self, text: str, record: logging.LogRecord) -> None:
        said = self.redact(record.getMessage())
        output.note(json_line(self.app, record.levelname.lower(), said, logger=record.name))

    def stopping(self) -> None:
        output.at_once(json_line(self.app, "info", STOPPING) + "\n")
