"""Displays: they watch a run and show how far it is, each in the way that suits where it shows it."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from dagflow.api.operator_log import OPERATOR_LOGGER
from dagflow.cli import output
from dagflow.cli.json_log import json_line
from dagflow.cli.render import account, activity, progress_line, table
from dagflow.cli.shared_options import Redact
from dagflow.execution.breakpoints import is_debugging
from dagflow.report.snapshot import RunRates, RunSnapshot

LINE_INTERVAL_S = 5.0  # a log of an hour's run stays readable
STOPPING = "stopping: the window in flight is finished or set aside; a second signal (Ctrl-C) stops at once"


class Display:
    """Watches a run and shows nothing: what -q asks for, and what the others build on.

    Attributes:
        app: The app's name.
        redact: Makes a message fit to be printed.
        last: The newest snapshot, or None before the first.
    """

    def __init__(self, app: str, redact: Redact = str) -> None:
        self.app = app
        self.redact = redact
        self.last: RunSnapshot | None = None

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the screen as it is to be left."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Take in the run's figures; called from the driver's thread a few times a second."""
        if snapshot.waits_for:
            self.waiting(snapshot.waits_for)
        else:
            self.last = snapshot

    def waiting(self, what: str) -> None:
        """Say what the run waits for from now on, until the next figures come."""

    def notice(self, text: str) -> None:
        """Say something that the person who watches should know."""

    def logged(self, text: str, record: logging.LogRecord) -> None:
        """Say something that was logged.

        Args:
            text: What the log says.
            record: The record of the log.
        """
        self.notice(text)

    def stopping(self) -> None:
        """Say that a stop was asked for; called from a signal handler, hence it takes no lock."""

    def abandon(self) -> None:
        """Leave the screen usable before the process dies; called from a signal handler."""

    def finish(self, snapshot: RunSnapshot) -> None:
        """Say what the run has done."""
        self.last = snapshot


class LineDisplay(Display):
    """Plain lines on stderr, at most one every few seconds."""

    def __init__(self, app: str, redact: Redact = str) -> None:
        super().__init__(app, redact)
        self._next_s = LINE_INTERVAL_S
        self._told: RunSnapshot | None = None

    def progress(self, snapshot: RunSnapshot) -> None:
        """Write a line if the last one is old enough, by the run's own clock."""
        super().progress(snapshot)
        if snapshot.waits_for:
            return
        figures = replace(snapshot, seconds=0.0, rates=RunRates())
        # A run that follows and has nothing to do is silent, one that works on a long window is not.
        has_news = any(snapshot.backlog.values()) or figures != self._told
        if snapshot.seconds >= self._next_s and has_news and not is_debugging():
            self._next_s = snapshot.seconds + LINE_INTERVAL_S
            self._told = figures
            self.show(progress_line(snapshot), snapshot)

    def show(self, text: str, snapshot: RunSnapshot) -> None:
        """Write how far the run is, or what it has done."""
        output.note(text)

    def waiting(self, what: str) -> None:
        """Write it, once."""
        self.notice(what)

    def notice(self, text: str) -> None:
        """Write it on a line of its own."""
        output.note(f"{self.app}: {self.redact(text)}")

    def stopping(self) -> None:
        """Write past Python's buffers: the thread that was interrupted may hold their lock."""
        output.at_once(f"{self.app}: {STOPPING}\n")

    def finish(self, snapshot: RunSnapshot) -> None:
        """Write the account."""
        super().finish(snapshot)
        self.show(account(snapshot), snapshot)


class JsonDisplay(LineDisplay):
    """The same lines on stderr as JSON objects, with the figures of `--json`."""

    def show(self, text: str, snapshot: RunSnapshot) -> None:
        """Write the figures beside the words."""
        output.note(json_line(self.app, "info", text, run=snapshot.to_json()))

    def notice(self, text: str) -> None:
        """Write it as an object of its own."""
        output.note(json_line(self.app, "info", self.redact(text)))

    def logged(self, text: str, record: logging.LogRecord) -> None:
        """Write it with its level and logger."""
        said = self.redact(record.getMessage())
        output.note(json_line(self.app, record.levelname.lower(), said, logger=record.name))

    def stopping(self) -> None:
        """Write past Python's buffers; see LineDisplay."""
        output.at_once(json_line(self.app, "info", STOPPING) + "\n")


class LiveDisplay(Display):
    """A table that redraws itself on a terminal, and is replaced by the account at the end.

    Args:
        app: The app's name.
        console: Where to draw.
        redact: Makes a message fit to be printed.
        now: A clock, in seconds.
    """

    def __init__(
        self, app: str, console: Console, redact: Redact = str, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(app, redact)
        self._now = now
        self._console = console
        self._spinner = Spinner("dots")
        self._status = ""
        self._waits_for, self._since_s = "starting", now()
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the table, or leave its last state where the run ended with an error."""
        self._live.transient = kind is None or self.last is None
        with suppress(OSError):  # the terminal is gone, as after SIGHUP
            self._live.stop()

    def progress(self, snapshot: RunSnapshot) -> None:
        """Have the next redrawing show the figures."""
        super().progress(snapshot)
        if not snapshot.waits_for:
            self._waits_for = ""

    def waiting(self, what: str) -> None:
        """Have the next redrawings show it, with the seconds that it takes."""
        self._waits_for, self._since_s = what, self._now()

    def notice(self, text: str) -> None:
        """Print it above the table."""
        with suppress(OSError):
            self._console.print(Text(output.printable(self.redact(text))), soft_wrap=True)

    def stopping(self) -> None:
        """Have the next redrawing show it."""
        self._status = "stopping (Ctrl-C again stops at once)"

    def abandon(self) -> None:
        """Show the cursor again; the table stays as it is."""
        output.at_once("\x1b[?25h\n")

    def finish(self, snapshot: RunSnapshot) -> None:
        """Replace the table by the account."""
        super().finish(snapshot)
        with suppress(OSError):
            self._live.stop()
        output.note(account(snapshot))

    def _render(self) -> RenderableType:
        status = self._status or activity(self.last)
        if self._waits_for and not self._status:
            status = f"{self._waits_for} … {self._now() - self._since_s:.0f} s"
        return table(self.app, self.last, self._spinner, status, self._console.width)


def display_for(
    app: str, redact: Redact = str, *, is_quiet: bool, is_plain: bool = False, as_json: bool = False
) -> Display:
    """The display that suits stderr: a live one on a terminal that can redraw, otherwise lines.

    Args:
        app: The app's name.
        redact: Makes a message fit to be printed.
        is_quiet: Whether only errors are wanted.
        is_plain: Whether others may write to the terminal meanwhile.
        as_json: Whether stderr is for programs.
    """
    if is_quiet:
        return Display(app, redact)
    if as_json:
        return JsonDisplay(app, redact)
    if not is_plain and sys.stderr is not None and sys.stderr.isatty():
        console = Console(stderr=True, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            return LiveDisplay(app, console, redact)
    return LineDisplay(app, redact)


@contextmanager
def logging_to(display: Display, *, is_verbose: bool) -> Iterator[None]:
    """Show what is logged as notices of the display: warnings, and with is_verbose dagflow's whole log."""
    handler = _NoticeHandler(display)
    if not is_verbose:
        # What py4j logs about a dying JVM is raised to the driver as well, which says it better.
        handler.addFilter(lambda record: not record.name.startswith("py4j"))
    if not is_verbose:
        # The log file of a run takes more.
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name == OPERATOR_LOGGER)
    handler.setFormatter(_NoticeFormatter("%(levelname)s %(name)s: %(message)s"))
    root, own = logging.getLogger(), (logging.getLogger("dagflow"), logging.getLogger("operators"))
    levels = [logger.level for logger in own]
    root.addHandler(handler)
    if is_verbose:
        for logger in own:
            logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in zip(own, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def operators_silenced(*, is_verbose: bool) -> Iterator[None]:
    """Show only errors of operators, for a command whose result says the rest; with is_verbose all stays as it is."""
    logger = logging.getLogger("operators")
    level = logger.level
    if not is_verbose:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _NoticeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """What operators print is shown as it is."""
        return record.getMessage() if record.name == OPERATOR_LOGGER else super().format(record)


class _NoticeHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        self._display.logged(self.format(record), record)
