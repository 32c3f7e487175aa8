"""Asks a run, or a replay, to end early."""

from __future__ import annotations

import math
import threading
import time

TICK_S = 0.2
"""How often the driver interrupts its wait for a window: to show progress, and to see whether to stop."""

STOP_GRACE_S = 5.0
"""A running window may finish within this time after a stop was requested; then it is abandoned."""

GROUP_GRACE_S = 15.0
"""The held files of windows may be merged within this further time; then the next run merges them."""


class StopRequest:
    """A request to end early; a signal handler may make it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._overdue_s = math.inf

    def request(self) -> None:
        if not self.is_requested:
            self._overdue_s = time.monotonic() + STOP_GRACE_S
        self._event.set()

    @property
    def is_requested(self) -> bool:
        return self._event.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether a stop was requested so long ago that the driver waits for nothing any more."""
        return time.monotonic() >= self._overdue_s

    def wait(self, seconds: float) -> bool:
        """Sleep until the time is over or a stop is requested; returns whether a stop was requested."""
        return self._event.wait(seconds)
