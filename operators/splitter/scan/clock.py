"""The time, as a value that a test can set."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def now_millis(self) -> int:
        """Milliseconds since 1970, as files are dated; may jump."""

    def elapsed_s(self) -> float:
        """Seconds since a fixed moment; never goes back."""

    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        """Wait until the condition, which the caller holds, is notified or elapsed_s() has reached the deadline."""


class SystemClock:
    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.monotonic()

    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        condition.wait(max(0.0, deadline_s - self.elapsed_s()))
