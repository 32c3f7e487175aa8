"""The runtime interface: where the tasks of windows run."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from dagflow.execution.messages import PART, PickledTuples, Program, ShuffleItem, TaskResult, WindowJob
from dagflow.plan.physical import PortRef, Stage
from dagflow.runtime.progress_board import ProgressBoard, WindowProgress

T = TypeVar("T")

MAX_ATTEMPTS = 4
"""How often a task is tried without Spark: its process may die, or its store may work the next time."""


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """The result of work on a thread of its own, which does not keep the process from ending."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class Runtime(ABC):
    """Where the tasks of windows run: Spark, processes of this machine, or the driver's own process."""

    def __init__(self, board: ProgressBoard) -> None:
        self._board = board

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    @property
    def min_task_s(self) -> float:
        """Seconds that a task should work at least, given its fixed cost; 0 where that is very small."""
        return 0.0

    @property
    def may_grow(self) -> bool:
        """Whether more tasks may run at the same time later, because hosts are added when tasks wait."""
        return False

    @abstractmethod
    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Start a window; windows that were submitted earlier have priority.

        Returns:
            The result of each stage task, exactly one per partition; or an exception, where the window as a whole
            failed.
        """

    def progress(self, window_id: int) -> WindowProgress:
        """The progress of a submitted window's tasks, as far as it is known; for display only."""
        return self._board.progress(window_id)

    def stalls(self) -> tuple[str, ...]:
        """The stalled tasks of all running windows: which, for how long and in what; any thread may call."""
        return self._board.stalls()

    @abstractmethod
    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        """Let an operator pre-scan tuples in parallel, and wait for it.

        Returns:
            For each item, in order, its pre-scan result, or the DagflowError that was raised.
        """

    @abstractmethod
    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply a picklable function to items in parallel, and wait for it."""

    @abstractmethod
    def cancel(self) -> None:
        """Abandon the running windows; their tasks may continue to write for a while."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources of the runtime."""


class LazyRuntime:
    """The runtime of a run, started when it is first needed.

    Args:
        start: Starts the runtime; called until it succeeds.
        give_up: Stops what was started without start(), where start() was not called, or failed.
        is_local_spark: Whether it is a Spark on this machine.
        log: Where its processes write; "" where they have no log file.
        here: The runtime of this machine that may take its place; None for none.

    Attributes:
        start_s: Seconds spent waiting for the start; 0 before it.
        is_chosen: Whether the runtime of this machine has taken its place.
    """

    def __init__(
        self,
        start: Callable[[], Runtime],
        give_up: Callable[[], None] = lambda: None,
        *,
        is_local_spark: bool = False,
        log: str = "",
        here: LazyRuntime | None = None,
    ) -> None:
        self._start = start
        self._here = here
        self._give_up = give_up
        self.log = log
        self.is_local_spark = is_local_spark
        self.start_s = 0.0
        self.is_chosen = False
        self._runtime: Runtime | None = None
        # The driver and threads of control operators may need the runtime at the same moment.
        self._lock = threading.Lock()

    def get(self) -> Runtime:
        with self._lock:
            if self._runtime is None:
                began_s = time.monotonic()
                self._runtime = self._start()
                self.start_s = time.monotonic() - began_s
            return self._runtime

    @property
    def may_run_here(self) -> bool:
        return self._here is not None and self._runtime is None

    def run_here(self) -> None:
        """Run on this machine, without Spark; called before anything has started."""
        assert self._here is not None
        self._start, self.log, self.is_local_spark, self.is_chosen = self._here._start, self._here.log, False, True

    def stalls(self) -> tuple[str, ...]:
        """See Runtime.stalls; does not wait for a runtime that is starting."""
        return () if self._runtime is None else self._runtime.stalls()

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return self.get().map(function, items)

    def close(self) -> None:
        with self._lock:
            if self._runtime is None:
                self._give_up()
            else:
                self._runtime.close()


def driver_inputs(program: Program, window: WindowJob) -> list[list[Any]]:
    """The driver's input for each slot of the lowest level; items for higher levels go with slot 0.

    A window that only publishes has no slot of the lowest level. Each item then gets one that passes it on, because
    Spark holds all items of a task that go to one slot in memory at once, and parts may be large.
    """
    lowest, *higher = program.plan.levels
    slots: list[list[Any]] = [share for stage in lowest for share in _shares(stage, window)]
    sent: list[ShuffleItem] = []
    for level in higher:
        first_slot = 0
        for stage in level:
            sent += [
                ShuffleItem(stage.level, first_slot + partition, (-1, order), target, _sendable(given))
                for partition, share in enumerate(_shares(stage, window))
                for order, (target, given) in enumerate(share)
            ]
            first_slot += window.partitions[stage.head]
    if not slots:
        return [[item] for item in sent]
    slots[0] += sent
    return slots


def _sendable(given: list[Any] | bytes) -> PickledTuples | bytes:
    return given if isinstance(given, bytes) else PickledTuples.of(given)


def _shares(stage: Stage, window: WindowJob) -> list[list[tuple[PortRef, Any]]]:
    """The driver's input for each partition of a stage; parts come first, because those of all make one result."""
    shares: list[list[tuple[PortRef, Any]]] = [*map(list, window.assigned.get(stage.head, []))]
    parts = [(PortRef(name, PART), part) for name in stage.operators for part in window.parts.get(name, ())]
    if parts:
        shares = shares or [[]]
        shares[0] = [*parts, *shares[0]]
    return shares


def slot_of(item: ShuffleItem | TaskResult, next_level: int, slots: int) -> tuple[int, tuple[int, ...]]:
    """The slot of the next level that an item goes to, and its place in the order of arrival there.

    Results go with slot 0. An item for a level above the next one goes to the slot given by its own number.
    """
    if isinstance(item, TaskResult):
        return 0, (-1, item.stage, item.partition)
    return (item.slot if item.level == next_level else item.slot % slots), item.order


def group_slots(shares: Sequence[list[Any]], together: Sequence[Sequence[int]]) -> list[list[tuple[int, list[Any]]]]:
    """The slots that each task of the lowest level runs, with their inputs; `together` is empty for one task each."""
    return [[(slot, shares[slot]) for slot in slots] for slots in together or [[slot] for slot in range(len(shares))]]
