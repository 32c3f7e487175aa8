"""A clock that stands still until a test advances it."""

from __future__ import annotations

import threading


class ManualClock:
    """Stands still until it is advanced.

    Args:
        now_millis: The initial time, in milliseconds since 1970.
    """

    def __init__(self, now_millis: int = 0) -> None:
        self._now_millis = now_millis
        self._elapsed_millis = 0
        self._waiting: list[threading.Condition] = []

    def now_millis(self) -> int:
        """Milliseconds since 1970."""
        return self._now_millis

    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_millis / 1000

    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        """Wait until the condition, which the caller holds, is notified, or the clock is advanced to the deadline."""
        # Entered before the time is read, so that a thread that advances the clock in between finds the entry.
        self._waiting.append(condition)
        if self.elapsed_s() < deadline_s:
            condition.wait()
        self._waiting.remove(condition)

    def advance(self, millis: int) -> None:
        """Let time pass, and wake the threads that wait for it."""
        self._now_millis += millis
        self._elapsed_millis += millis
        for condition in list(self._waiting):
            with condition:
                condition.notify_all()
