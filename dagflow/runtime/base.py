"""The runtime interface: where the tasks of windows run."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.runtime.progress_board import ProgressBoard, WindowProgress

MAX_ATTEMPTS = 4
"""How often a task is tried without Spark: its process may die, or its store may work the next time."""


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
        """Apply a picklable function to items in parallel, and wait for it.

        Returns:
            The results, in the order of the items.
        """

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

    Attributes:
        start_s: Seconds spent waiting for the start; 0 before it.
    """

    def __init__(
        self,
        start: Callable[[], Runtime],
        give_up: Callable[[], None] = lambda: None,
        *,
        is_local_spark: bool = False,
        log: str = "",
    ) -> None:
        self._start = start
        self._give_up = give_up
        self.log = log
        self.is_local_spark = is_local_spark
        self.start_s = 0.0
        self._runtime: Runtime | None = None
        # The driver and threads of control operators may need the runtime at the same moment.
        self._lock = threading.Lock()

    def get(self) -> Runtime:
        """The runtime; starts it if necessary."""
        with self._lock:
            if self._runtime is None:
                began_s = time.monotonic()
                self._runtime = self._start()
                self.start_s = time.monotonic() - began_s
            return self._runtime

    def stalls(self) -> tuple[str, ...]:
        """See Runtime.stalls; does not wait for a runtime that is starting."""
        return () if self._runtime is None else self._runtime.stalls()

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """See ControlServices.in_tasks."""
        return self.get().map(function, items)

    def close(self) -> None:
        """Release the resources of a runtime that has started; a second call does nothing."""
        with self._lock:
            if self._runtime is None:
                self._give_up()
            else:
                self._runtime.close()
