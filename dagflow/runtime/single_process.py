"""Runs windows in this process, on a thread beside the driver's: where debuggers and profilers see the operators."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from dagflow.errors import TransientStorageError
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.execution.program import Program
from dagflow.runtime.base import MAX_ATTEMPTS
from dagflow.runtime.inline import InlineRuntime


class SingleProcessRuntime(InlineRuntime):
    """A runtime that runs one task at a time, on one thread of this process.

    Args:
        program: The app.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program, parallelism=1)
        self._waiting: queue.SimpleQueue[tuple[WindowJob, Future[list[TaskResult]]] | None] = queue.SimpleQueue()
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._serve, name="tasks", daemon=True)
        self._thread.start()

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Run the window after earlier ones."""
        future: Future[list[TaskResult]] = Future()
        self._board.open(window.window_id)
        self._waiting.put((window, future))
        return future

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            window, future = waiting
            try:
                if self._is_cancelled:
                    raise CancelledError("the run has ended")
                results = self._run(window)
            except KeyboardInterrupt:
                future.set_exception(CancelledError("the run has ended"))
            except BaseException as error:
                future.set_exception(error)
            else:
                # In this order a window whose results are known has no progress any more.
                self._board.close(window.window_id)
                future.set_result(results)
            finally:
                self._board.close(window.window_id)

    def _run_slot(self, window: WindowJob, level: int, slot: int, items: Iterable[Any]) -> Iterable[Any]:
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return list(super()._run_slot(window, level, slot, self._unless_cancelled(items)))
            except TransientStorageError:
                continue
        return list(super()._run_slot(window, level, slot, self._unless_cancelled(items)))

    def _unless_cancelled(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self._is_cancelled:
                raise KeyboardInterrupt
            yield item

    def cancel(self) -> None:
        """Interrupt the task before its next input, and drop waiting windows."""
        self._is_cancelled = True

    def close(self) -> None:
        """End the thread."""
        self._is_cancelled = True
        self._waiting.put(None)
