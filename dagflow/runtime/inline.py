"""Runs windows in this process: the same stages and results as on Spark, for tests without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.execution.task import run_level, run_prescan
from dagflow.runtime.base import Runtime, driver_inputs, slot_of
from dagflow.runtime.progress_board import ProgressBoard


class InlineRuntime(Runtime):
    """A runtime of one process and one thread; `before` is called with each window, a place for tests to fail."""

    parallelism: int = 2

    def __init__(
        self, program: Program, *, parallelism: int = 2, before: Callable[[WindowJob], None] | None = None
    ) -> None:
        super().__init__(ProgressBoard(program.stall_limits))
        self._program = program
        self._before = before
        self.parallelism = parallelism

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        future: Future[list[TaskResult]] = Future()
        self._board.open(window.window_id)
        try:
            if self._before is not None:
                self._before(window)
            future.set_result(self._run(window))
        except Exception as error:
            future.set_exception(error)
        finally:
            self._board.close(window.window_id)
        return future

    def _run(self, window: WindowJob) -> list[TaskResult]:
        levels = self._program.plan.levels
        slots = self._program.plan.partitions_by_level(window.partitions)
        inputs = driver_inputs(self._program, window)
        for level in range(len(levels)):
            left = [item for slot, items in enumerate(inputs) for item in self._run_slot(window, level, slot, items)]
            if level + 1 == len(levels):
                return [item for item in left if isinstance(item, TaskResult)]
            keyed = sorted(
                ((slot_of(item, level + 1, slots[level + 1]), n, item) for n, item in enumerate(left)),
                key=lambda k: k[:2],
            )
            inputs = [[] for _ in range(slots[level + 1])]
            for (slot, _), _, item in keyed:
                inputs[slot].append(item)
        return []

    def _run_slot(self, window: WindowJob, level: int, slot: int, items: Iterable[Any]) -> Iterable[Any]:
        return run_level(self._program, window, level, slot, iter(items), self._board.record)

    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        return list(run_prescan(self._program, operator, items))

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return list(map(function, items))

    def cancel(self) -> None:
        """Do nothing: no window is ever running."""

    def close(self) -> None:
        """Do nothing: no resource is held."""
