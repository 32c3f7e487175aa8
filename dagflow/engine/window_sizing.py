"""How much a window holds: enough to keep all readers busy for about a second, and never more than the driver can hold.

A window's size, its budget, is a number of tuples and a number of bytes. There are two rules:

* by throughput: what all readers together processed per second, as committed windows show. The default.
* by speed: what one partition processes per second while it works, times the partitions. For partition policies that
  decide by speed; windows are then short from the first one on, so that a speed is known soon.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dagflow.api.context import WindowBudget
from dagflow.api.control import InputEstimate, InputOperator, WindowLimits
from dagflow.api.operator import Operator, defines
from dagflow.api.ports import tuple_count
from dagflow.errors import DagflowError
from dagflow.execution.messages import WindowJob
from dagflow.execution.routing import size_bytes_of
from dagflow.frozen import frozen
from dagflow.journal.windows import WindowPlan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.report.snapshot import WholeInput
from dagflow.storage.context import StorageContext

WINDOW_TARGET_S = 1.0
"""A window should keep all readers busy for about this long: short enough to lose little in a crash, long enough to
hide the cost of a window."""

FIRST_WINDOW_BYTES = 256 << 20
FIRST_WINDOW_TUPLES = 1024
"""Size of a window for each task that runs at the same time, before anything was measured. Windows that are sized by
throughput are never smaller afterwards."""

LEAST_BYTES_WRITTEN_AGAIN = 128 << 20
"""The same bytes where a target writes all rows once more: what it writes of the last window, no tasks run beside."""

FIRST_BYTES_BY_SPEED = 8 << 20
"""Bytes for each partition, where a policy waits for a first speed: a second or two of a slow operator."""

MAX_WINDOW_TUPLES = 40_000
TUPLES_PER_TASK = 128
"""Bound the plan of one window in the journal and in memory: the larger of the first, and the second for each task that
runs at the same time. With half the first, 600,000 small files take 10 MiB less of the driver and some more time;
with the first alone, each of a thousand tasks would have 20, and read more in a second."""

MAX_WINDOW_BYTES = 1 << 40
"""What 2,000 tasks read in a second: with less, windows of a large cluster would be shorter than their own cost."""

MEASURED_WINDOWS = 12
"""The speed of a partition is the mean over this many of the newest windows."""

MIN_MEASURED_S = 0.1
"""Seconds that tasks must have worked before their speed is known; a shorter time only shows what a task costs."""

MIN_WINDOW_S = 0.02
"""Seconds that a window counts as at least: the tasks of a shorter one say little about larger ones."""

SMOOTHING = 0.5
"""Weight of the newest window in the measured throughput."""

WINDOWS_AHEAD = 2
"""Emitted windows that wait to be planned, at most: the backlog that scaling sees, and a bound on memory."""

UNMEASURED_WINDOWS = 2
"""Windows that a run emits before the first is committed, which shows how large the next ones should be."""

MAX_GROWTH = 8
"""How many times the tuples of the largest window so far a window has at most: tasks have nothing to do while a far
larger one is emitted."""


def max_tuples(tasks: int) -> int:
    return max(MAX_WINDOW_TUPLES, TUPLES_PER_TASK * tasks)


@frozen
class Load:
    """Number of tuples, and their bytes, by stage head."""

    tuples: Mapping[str, int]
    size_bytes: Mapping[str, int]


def load_of(plan: PhysicalPlan, tuples: Mapping[PortRef, Sequence[Any]]) -> Load:
    """The load of tuples by input port; members of batches count one by one."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for target, items in tuples.items():
        head = plan.stage_of(target.operator).head
        counts[head] = counts.get(head, 0) + tuple_count(items)
        sizes[head] = sizes.get(head, 0) + sum(map(size_bytes_of, items))
    return Load(counts, sizes)


def load_of_job(plan: PhysicalPlan, planned: WindowPlan, job: WindowJob) -> Load:
    """The load of a planned window; tuples that every partition gets count once."""
    tuples: dict[PortRef, list[Any]] = {}
    for shares in job.assigned.values():
        for partition, share in enumerate(shares):
            for target, items in share:
                if not partition or planned.inputs[str(target)].lengths is not None:
                    tuples.setdefault(target, []).extend(items)
    return load_of(plan, tuples)


class PartitionSpeeds:
    """Measures how fast the partitions of each stage are while they work.

    Time that tasks wait for a free core, or for Spark to start a Python process, does not count: more partitions would
    wait for it as well. A stage whose windows overlap is faster than this.

    Attributes:
        processed_bytes: Bytes of all committed windows, by stage head.
    """

    def __init__(self) -> None:
        self.processed_bytes: Counter[str] = Counter()
        self._measured: deque[tuple[Load, Mapping[str, float]]] = deque(maxlen=MEASURED_WINDOWS)

    def add(self, load: Load, busy_s: Mapping[str, float]) -> None:
        self.processed_bytes.update(load.size_bytes)
        self._measured.append((load, busy_s))

    @property
    def bytes_per_s(self) -> dict[str, float]:
        """Bytes per second of one partition, by stage head; without stages whose speed is not known yet."""
        sizes: Counter[str] = Counter()
        busy_s: dict[str, float] = {}
        for load, seconds in self._measured:
            sizes.update(load.size_bytes)
            for head in load.size_bytes:
                busy_s[head] = busy_s.get(head, 0.0) + seconds.get(head, 0.0)
        return {head: size_bytes / busy_s[head] for head, size_bytes in sizes.items() if busy_s[head] >= MIN_MEASURED_S}

    def mean_tuple_bytes(self, head: str) -> int:
        """Mean size of the newest tuples of a stage, 0 before the first."""
        tuples = sum(load.tuples.get(head, 0) for load, _ in self._measured)
        return sum(load.size_bytes.get(head, 0) for load, _ in self._measured) // tuples if tuples else 0


class WindowSizing:
    """Measures committed windows, and sizes the next ones.

    Args:
        writes_again: Whether a target writes all rows once more.

    Attributes:
        parallelism: Tasks that run at the same time; updated when the cluster is known.
    """

    def __init__(self, parallelism: int, *, writes_again: bool = False) -> None:
        self.parallelism = parallelism
        self._least_bytes = LEAST_BYTES_WRITTEN_AGAIN if writes_again else FIRST_WINDOW_BYTES
        self.speeds = PartitionSpeeds()
        self._largest_tuples = 0
        self._bytes_per_s = 0.0
        self._tuples_per_s = 0.0
        self._since = time.monotonic()
        self._partitions_by_speed: Callable[[], Mapping[str, int]] = dict

    def size_by_speed(self, partitions: Callable[[], Mapping[str, int]]) -> None:
        """Size windows by speed for the stages that a policy scales by speed.

        Args:
            partitions: Returns the partition count of each such stage, by its head; windows are sized by throughput
                where it returns none.
        """
        self._partitions_by_speed = partitions

    def start_clock(self) -> None:
        """Start measuring throughput: no task ran until now."""
        self._since = time.monotonic()

    def emitted(self, load: Load) -> None:
        self._largest_tuples = max(self._largest_tuples, sum(load.tuples.values()))

    def committed(self, load: Load, busy_s: Mapping[str, float], longest_s: Mapping[str, float]) -> None:
        now = time.monotonic()
        elapsed = counted_s(now - self._since, working_s(busy_s, longest_s, self.parallelism))
        self._since = now
        weight = SMOOTHING if self._tuples_per_s else 1.0
        self._bytes_per_s += weight * (sum(load.size_bytes.values()) / elapsed - self._bytes_per_s)
        self._tuples_per_s += weight * (sum(load.tuples.values()) / elapsed - self._tuples_per_s)
        self.speeds.add(load, busy_s)

    def budget(self) -> WindowBudget:
        if counts := self._partitions_by_speed():
            return budget_by_speed(self.speeds, counts)
        measured = self._tuples_per_s, self._bytes_per_s
        return budget_by_throughput(*measured, self.parallelism, self._largest_tuples, self._least_bytes)


def working_s(busy_s: Mapping[str, float], longest_s: Mapping[str, float], parallelism: int) -> float:
    """About how many seconds a window's tasks take where no others run, and the surplus ones wait for each other."""
    return sum(max(longest_s[head], total / parallelism) for head, total in busy_s.items())


def counted_s(elapsed_s: float, tasks_s: float) -> float:
    """How many seconds a window counts for its throughput, of those since the window before and those of its tasks.

    The fixed cost of a window does not grow with its size, and several windows may overlap.
    """
    return max(min(elapsed_s, tasks_s), MIN_WINDOW_S)


def budget_by_throughput(
    tuples_per_s: float,
    bytes_per_s: float,
    parallelism: int,
    largest_tuples: int,
    least_bytes: int = FIRST_WINDOW_BYTES,
) -> WindowBudget:
    """The budget of a window that lasts about WINDOW_TARGET_S.

    Args:
        tuples_per_s: Measured throughput of all tasks together; 0.0 before the first window.
        largest_tuples: Tuples of the largest window that was emitted by now; 0 before the first.
        least_bytes: The budget for each task before the first window, and at least.
    """
    first = FIRST_WINDOW_TUPLES * parallelism
    wanted = min(int(tuples_per_s * WINDOW_TARGET_S), MAX_GROWTH * largest_tuples)
    return WindowBudget(
        min(max(wanted, first), max_tuples(parallelism)),
        min(max(int(bytes_per_s * WINDOW_TARGET_S), least_bytes * parallelism), MAX_WINDOW_BYTES),
    )


def budget_by_speed(speeds: PartitionSpeeds, counts: Mapping[str, int]) -> WindowBudget:
    """The budget of a window that lasts about WINDOW_TARGET_S, small while no speed is known.

    Args:
        counts: The partitions of the stages that windows are sized for, by stage head; at least one stage.
    """
    bytes_per_s = speeds.bytes_per_s
    partitions = max(counts.values())
    size_bytes, tuples = 0, FIRST_WINDOW_TUPLES * partitions
    for head, count in counts.items():
        wanted = bytes_per_s[head] * WINDOW_TARGET_S if head in bytes_per_s else FIRST_BYTES_BY_SPEED
        mean = speeds.mean_tuple_bytes(head)
        # With fewer blocks than partitions some partitions would have nothing to do.
        size_bytes = max(size_bytes, count * max(int(wanted), mean, 1))
        if head in bytes_per_s and mean:
            tuples = max(tuples, int(count * wanted) // mean)  # many small files are a second's work as well
    return WindowBudget(min(tuples, max_tuples(partitions)), min(size_bytes, MAX_WINDOW_BYTES))


def first_windows(found: InputEstimate, limits: WindowLimits, parallelism: int) -> int:
    """At least how many windows, within limits, an input takes before any throughput was measured."""
    by_limit = [
        found.blocks / (limits.blocks or FIRST_WINDOW_TUPLES * parallelism),
        found.files / (limits.files or math.inf),
        found.bytes / (FIRST_WINDOW_BYTES * parallelism),
        # A window has one block at least, however large.
        min(found.blocks, found.bytes / (limits.size_bytes or math.inf)),
    ]
    return max(map(math.ceil, by_limit))


WITHIN_S = 2.0
"""How long a user who asked for a plan waits for the estimate."""

COUNT_AFTER_S = 5.0
"""Seconds of a run in which nothing is counted: a shorter run needs no forecast of its end, and a count would take time
from its driver."""

COUNT_S = 0.5
"""Seconds that each input operator may count."""


@frozen
class RunEstimate:
    """How much the first run at a checkpoint will process."""

    input: InputEstimate
    windows: int

    def __str__(self) -> str:
        """Such as 'all input, taken before or not: 3 files, 12 blocks, 1 048 576 bytes, 2 windows'."""
        found = self.input
        counts = {"file": found.files, "block": found.blocks, "byte": found.bytes, "window": self.windows}
        figures = [
            f"{count:,}".replace(",", " ") + f" {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()
        ]
        return f"all input, taken before or not: {', '.join(figures)}"


def estimate(app: LogicalPlan, *, parallelism: int = 1, within_s: float = WITHIN_S) -> RunEstimate | None:
    """Ask the input operators how much input there is; None where none of them can estimate it."""
    found = InputEstimate()
    storage = app.attributes.storage_context()
    windows = 0
    inputs = _estimating(app.instances.values())
    for operator in inputs:
        part = operator.estimate(within_s / len(inputs), storage)
        found += part
        windows = max(windows, first_windows(part, operator.window_limits(), parallelism))
    return RunEstimate(found, windows) if inputs else None


def _estimating(operators: Iterable[Operator]) -> list[InputOperator]:
    return [operator for operator in operators if isinstance(operator, InputOperator) and defines(operator, "estimate")]


class InputCount:
    """Counts the whole input of an app on a thread of its own, for display only.

    Args:
        is_first: Whether nothing was read before; otherwise the rest of the input cannot be counted beside the run.
    """

    def __init__(
        self, operators: Iterable[Operator], storage: StorageContext, *, is_first: bool, after_s: float = COUNT_AFTER_S
    ) -> None:
        self._inputs = _estimating(operators) if is_first else []
        self._storage = storage
        self._begin_s = time.monotonic() + after_s
        self._thread: threading.Thread | None = None
        self._bytes: int | None = None

    def whole(self, listed_bytes: int, *, is_complete: bool) -> WholeInput | None:
        """How much the run will read, as far as it is known; starts to count where it is not and after_s have passed.

        Args:
            listed_bytes: Bytes that the run has listed so far, including those that it has read.
            is_complete: Whether the run has listed everything.
        """
        if is_complete:
            return WholeInput(listed_bytes)
        if self._inputs and self._thread is None and time.monotonic() >= self._begin_s:
            self._thread = threading.Thread(target=self._count, name="input-count", daemon=True)
            self._thread.start()
        if self._bytes is None or self._bytes < listed_bytes:
            return None
        return WholeInput(self._bytes, is_exact=False)

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _count(self) -> None:
        try:
            found = sum((each.estimate(COUNT_S, self._storage) for each in self._inputs), InputEstimate())
        except DagflowError:
            return  # the run meets the same error, and reports it
        if not found.is_partial:
            self._bytes = found.bytes
