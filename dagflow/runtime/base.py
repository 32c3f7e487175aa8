"""The runtime interface: where the tasks of windows run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from dagflow.execution.messages import TaskResult, WindowTask
from dagflow.runtime.progress import WindowProgress


class Runtime(ABC):
    """Where the tasks of windows run: Spark, or this process."""

    @property
    @abstractmethod
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    @abstractmethod
    def submit(self, window: WindowTask) -> Future[list[TaskResult]]:
        """Begin a window; windows that were submitted earlier come first where they compete.

        Returns:
            The result of each stage task, exactly one per partition. Its exception is what went wrong with
            the window as a whole.
        """

    @abstractmethod
    def progress(self, window_id: int) -> WindowProgress:
        """How far the tasks of a submitted window are, as far as is known; for display only."""

    @abstractmethod
    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        """Let an operator pre-scan tuples in parallel, and wait for it.

        Returns:
            For each item, in order, what was found, or the DagflowError that was raised.

        Raises:
            DagflowError: The pre-scan failed as a whole.
        """

    @abstractmethod
    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply a picklable function to items in parallel, and wait for it.

        Returns:
            The results, in the order of the items.

        Raises:
            DagflowError: The tasks failed.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Abandon the windows under way; their tasks may write on for a while."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the runtime holds."""
