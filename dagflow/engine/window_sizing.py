"""How much is under way, how fast it goes, and how much a window should hold."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from dagflow.api.context import WindowBudget
from dagflow.engine.window_codec import Load

WINDOW_TARGET_S = 1.0
"""A window should keep all readers busy for about this long: short enough to lose little in a crash, long enough
to hide what a window costs."""

FIRST_WINDOW_BYTES = 256 << 20
FIRST_WINDOW_TUPLES = 1024
"""Per task that runs at the same time, before anything was measured."""

FIRST_STEERED_BYTES = 8 << 20
"""Per partition, where a policy waits for a first speed: a second or two of a slow operator."""

MAX_WINDOW_TUPLES = 20_000
TUPLES_OF_A_TASK = 128
"""Bound the plan of one window in the journal and in memory: the larger of the first, and the second for each task that
runs at the same time. With half the first, a million small files take 4 MiB less of the driver and a tenth more time;
with the first alone, each of a thousand tasks would have 20, and read more in a second."""

MAX_WINDOW_BYTES = 1 << 40
"""What 2,000 tasks read in a second: with less, windows of a large cluster would be shorter than their own cost."""

MEASURED_WINDOWS = 12
"""Windows that the speed of a partition is made of."""

MEASURED_S = 0.1
"""Time that tasks must have worked before their speed is known; less tells what a task costs."""

SMOOTHING = 0.5
"""Weight of the newest window in the measured rates."""


def most_tuples(tasks: int) -> int:
    """How many tuples a window may hold, where so many tasks run at the same time."""
    return max(MAX_WINDOW_TUPLES, TUPLES_OF_A_TASK * tasks)


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
        self._steered: Callable[[], WindowBudget] | None = None

    def steer(self, budget: Callable[[], WindowBudget]) -> None:
        """Let another one size the windows from now on."""
        self._steered = budget

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

    def budget(self) -> WindowBudget:
        """What the next window should hold at most."""
        if self._steered is not None:
            return self._steered()
        least = WindowBudget(FIRST_WINDOW_TUPLES * self.parallelism, FIRST_WINDOW_BYTES * self.parallelism)
        return WindowBudget(
            min(max(int(self._tuples_per_s * WINDOW_TARGET_S), least.tuples), most_tuples(self.parallelism)),
            min(max(int(self._bytes_per_s * WINDOW_TARGET_S), least.size_bytes), MAX_WINDOW_BYTES),
        )


class Speeds:
    """Measures how fast the partitions of each stage are while they work.

    What tasks wait for a free core, or for Spark to start a Python process, does not count: more partitions would wait
    for it as well. Windows that run side by side make a stage faster than this tells.

    Attributes:
        processed_bytes: What all windows held together, by stage head.
    """

    def __init__(self) -> None:
        self.processed_bytes: Counter[str] = Counter()
        self._measured: deque[tuple[Load, Mapping[str, float]]] = deque(maxlen=MEASURED_WINDOWS)

    def committed(self, load: Load, busy_s: Mapping[str, float]) -> None:
        """Count a window.

        Args:
            load: What it held.
            busy_s: How long the tasks of each stage worked, together, by its head.
        """
        self.processed_bytes.update(load.size_bytes)
        self._measured.append((load, busy_s))

    @property
    def of_partitions(self) -> dict[str, float]:
        """Bytes per second of one partition, by stage head; without those that are not known yet."""
        sizes: Counter[str] = Counter()
        busy_s: dict[str, float] = {}
        for load, seconds in self._measured:
            sizes.update(load.size_bytes)
            for head in load.size_bytes:
                busy_s[head] = busy_s.get(head, 0.0) + seconds.get(head, 0.0)
        return {head: size_bytes / busy_s[head] for head, size_bytes in sizes.items() if busy_s[head] >= MEASURED_S}

    def budget(self, counts: Mapping[str, int]) -> WindowBudget:
        """A window that takes about a second, small while no speed is known.

        Args:
            counts: How many partitions the stages have that it is made for, by head.
        """
        speeds = self.of_partitions
        shares = []
        for head, count in counts.items():
            tuples = sum(load.tuples.get(head, 0) for load, _ in self._measured)
            size_bytes = sum(load.size_bytes.get(head, 0) for load, _ in self._measured)
            wanted = speeds[head] * WINDOW_TARGET_S if head in speeds else FIRST_STEERED_BYTES
            # With fewer blocks than partitions some of these would have nothing to do.
            shares.append(count * max(int(wanted), size_bytes // tuples if tuples else 0))
        partitions = max(counts.values())
        tuples = min(FIRST_WINDOW_TUPLES * partitions, most_tuples(partitions))
        return WindowBudget(tuples, min(max(shares), MAX_WINDOW_BYTES))
