"""Sends the first part of what a task's operators print to the driver, in few messages."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dagflow.execution.task_progress import OutputReport, TaskActivity

MAX_OUTPUT = 8 << 10
"""Characters of all that the operators of one task print that are sent to the driver."""

MESSAGE = 4 << 10
"""Characters of a message: many small ones at once would overflow the driver's socket."""


class PrintedLines:
    """Gathers lines and sends them; called by the task and the thread that watches it.

    Args:
        send: Takes the messages; must neither wait nor raise.
    """

    def __init__(self, send: Callable[[OutputReport], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._work: TaskActivity | None = None
        self._lines: list[str] = []
        self._held = 0
        self._left = MAX_OUTPUT

    def line(self, work: TaskActivity, text: str) -> None:
        """Take a printed line."""
        with self._lock:
            if self._left <= 0:
                return
            if self._work is not None and self._work.operator != work.operator:
                self._flush()
            self._work = self._work or work
            self._lines.append(text)
            self._held += len(text)
            self._left -= len(text)
            if self._held >= MESSAGE or self._left <= 0:
                self._flush()

    def flush(self) -> None:
        """Send the waiting lines."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._work is not None:
            self._send(OutputReport(self._work, "\n".join(self._lines), is_last=self._left <= 0))
        self._work, self._lines, self._held = None, [], 0
