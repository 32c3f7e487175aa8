"""Asks a run, or a replay, to end early."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, TimeoutError

from dagflow.errors import DagflowError
from dagflow.execution.messages import TaskResult
from dagflow.runtime.base import Runtime
from dagflow.storage.context import StorageContext
from dagflow.storage.publishing import discard_all

TICK_S = 0.2
"""How often the driver interrupts its wait for a window: to show progress, and to see whether to stop."""

STOP_GRACE_S = 5.0
"""A running window may finish within this time after a stop was requested; then it is abandoned."""

GROUP_GRACE_S = 15.0
"""The held files of windows may be merged within this further time; then the next run merges them."""


ABANDON_S = 2.0
"""Cancelled windows may end within this time, all of them together."""


class StopRequest:
    """A request to end early; a signal handler may make it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._overdue_s = math.inf

    def request(self) -> None:
        """Ask for the end of the run."""
        if not self.is_requested:
            self._overdue_s = time.monotonic() + STOP_GRACE_S
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether a stop was requested so long ago that the driver waits for nothing any more."""
        return time.monotonic() >= self._overdue_s

    def wait(self, seconds: float) -> bool:
        """Sleep until the time is over or a stop is requested; returns whether a stop was requested."""
        return self._event.wait(seconds)


def abandon(storage: StorageContext, runtime: Runtime, windows: Iterable[Future[list[TaskResult]]]) -> None:
    """Cancel running windows, and remove the files that their tasks have written so far."""
    runtime.cancel()
    deadline = time.monotonic() + ABANDON_S
    for window in windows:
        try:
            # Files that they write later are swept, at the end or by the next run.
            results = window.result(timeout=max(deadline - time.monotonic(), 0))
        except (DagflowError, CancelledError, TimeoutError):
            continue
        discard_all(storage, [file for result in results for file in result.files])
