"""How much is under way, and how much a window should hold."""

from __future__ import annotations

import time

from dagflow.api.context import WindowBudget

WINDOW_TARGET_S = 1.0
"""A window should keep all readers busy for about this long: short enough to lose little in a crash, long enough
to hide what a window costs."""

FIRST_WINDOW_BYTES = 256 << 20
FIRST_WINDOW_TUPLES = 1024
"""Per task that runs at the same time, before anything was measured."""

MAX_WINDOW_TUPLES = 20_000
"""Bounds the plan of one window in the journal and in memory, whatever the cluster's speed."""

MAX_WINDOW_BYTES = 1 << 40
"""What 2,000 tasks read in a second: with less, windows of a large cluster would be shorter than their own cost."""

SMOOTHING = 0.5
"""Weight of the newest window in the measured rates."""


class Throughput:
    """Measures committed windows, and sizes the next ones by them.

    Args:
        parallelism: Tasks that run at the same time, as far as is known before the start.
    """

    def __init__(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self._bytes_per_s = 0.0
        self._tuples_per_s = 0.0
        self._since = time.monotonic()

    def begin(self) -> None:
        """Start the clock: nothing was under way until now."""
        self._since = time.monotonic()

    def committed(self, tuples: int, size_bytes: int) -> None:
        """Count one window that was processed since the last one, or since begin."""
        now = time.monotonic()
        elapsed = max(now - self._since, 1e-3)
        self._since = now
        weight = SMOOTHING if self._tuples_per_s else 1.0
        self._bytes_per_s += weight * (size_bytes / elapsed - self._bytes_per_s)
        self._tuples_per_s += weight * (tuples / elapsed - self._tuples_per_s)

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second of all partitions together, 0.0 before the first window."""
        return self._bytes_per_s

    def budget(self) -> WindowBudget:
        """What the next window should hold at most."""
        least = WindowBudget(FIRST_WINDOW_TUPLES * self.parallelism, FIRST_WINDOW_BYTES * self.parallelism)
        return WindowBudget(
            min(max(int(self._tuples_per_s * WINDOW_TARGET_S), least.tuples), MAX_WINDOW_TUPLES),
            min(max(int(self._bytes_per_s * WINDOW_TARGET_S), least.size_bytes), MAX_WINDOW_BYTES),
        )
