"""Chooses the display for a run, and shows log messages in it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from dagflow.api.operator import OPERATOR_LOGGER
from dagflow.cli.display import Display, JsonDisplay, LineDisplay
from dagflow.cli.run_log import OWN_LOGGERS, levels_set
from dagflow.cli.shared_options import Redact


def display_for(
    app: str, redact: Redact = str, *, is_quiet: bool, is_plain: bool = False, as_json: bool = False
) -> Display:
    """The display that suits stderr: a live one on a terminal that can redraw, otherwise lines.

    Args:
        is_plain: Whether others may write to the terminal meanwhile.
        as_json: Whether stderr is for programs.
    """
    if is_quiet:
        return Display(app, redact)
    if as_json:
        return JsonDisplay(app, redact)
    if not is_plain and sys.stderr is not None and sys.stderr.isatty():
        # Takes a tenth of a run's start, and is of use on terminals alone.
        from dagflow.cli.live_display import live_display

        if (live := live_display(app, redact)) is not None:
            return live
    return LineDisplay(app, redact)


@contextmanager
def logging_to(display: Display, *, is_verbose: bool) -> Iterator[None]:
    """Show what is logged as notices of the display: warnings, and with is_verbose dagflow's whole log."""
    handler = _NoticeHandler(display)
    if not is_verbose:
        # What py4j logs about a dying JVM is raised to the driver as well, which says it better. It has loggers of its
        # own, and uses the root logger, too.
        handler.addFilter(lambda record: Path(record.pathname).parent.name != "py4j")
        # The log file of a run takes more.
        handler.addFilter(lambda record: record.levelno >= logging.WARNING or record.name == OPERATOR_LOGGER)
    handler.setFormatter(_NoticeFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        with levels_set(dict.fromkeys(OWN_LOGGERS, logging.DEBUG) if is_verbose else {}):
            yield
    finally:
        logging.getLogger().removeHandler(handler)


def operators_silenced(*, is_verbose: bool) -> AbstractContextManager[None]:
    """Show only errors of what lists files and leaves some out, for a command whose result shows the rest.

    Warnings about the content of files are shown. With is_verbose nothing changes.
    """
    loggers = ("operators.splitter", "operators.reader.block_processor")
    return levels_set({} if is_verbose else dict.fromkeys(loggers, logging.ERROR))


class _NoticeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Messages of operators are shown unchanged."""
        return record.getMessage() if record.name == OPERATOR_LOGGER else super().format(record)


class _NoticeHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.logged(self.format(record), record)
