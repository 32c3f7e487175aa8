"""Runs windows in this very process: the same stages and results as on Spark, for tests without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from dagflow.execution.results import Parcel, Program, StageResult, WindowTask
from dagflow.execution.stage import run_level, run_survey


class Runtime(Protocol):
    """Where the tasks of windows run."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time."""

    def submit(self, window: WindowTask) -> Future[list[StageResult]]:
        """Begin a window; windows that were submitted earlier come first where they compete.

        Returns:
            The result of each stage task, exactly one per partition. Its exception is what went wrong with
            the window as a whole.
        """

    def survey(self, operator: str, items: list[Any]) -> list[Any]:
        """Let an operator examine tuples in parallel, and wait for it.

        Returns:
            For each item, in order, what was found, or the DagflowError that was raised.

        Raises:
            DagflowError: The survey failed as a whole.
        """

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply a picklable function to items in parallel, and wait for it.

        Returns:
            The results, in the order of the items.

        Raises:
            DagflowError: The tasks failed.
        """

    def cancel(self) -> None:
        """Abandon the windows under way; their tasks may write on for a while."""

    def close(self) -> None:
        """Give back what the runtime holds."""


def level_zero(program: Program, window: WindowTask) -> list[list[Any]]:
    """What the driver sends to each slot of the lowest level; what is meant for a higher one travels with slot 0."""
    levels = program.plan.levels
    slots: list[list[Any]] = [list(share) for stage in levels[0] for share in window.assigned[stage.head]]
    for level in levels[1:]:
        first_slot = 0
        for stage in level:
            for partition, share in enumerate(window.assigned.get(stage.head, [])):
                slots[0] += [
                    Parcel(stage.level, first_slot + partition, (-1, order), target, tuples)
                    for order, (target, tuples) in enumerate(share)
                ]
            first_slot += window.partitions[stage.head]
    return slots


def slot_of(item: Parcel | StageResult, next_level: int, slots: int) -> tuple[int, tuple[int, ...]]:
    """Where an item goes on its way up, and in which order it arrives there.

    Results travel with slot 0; a parcel for a higher level rests where its own slot number falls.
    """
    if isinstance(item, StageResult):
        return 0, (-1, item.stage, item.partition)
    return (item.slot if item.level == next_level else item.slot % slots), item.order


class InlineRuntime:
    """A runtime of one process and one thread.

    Args:
        program: The app.
        parallelism: What to report as such.
        before: Called with each window before it runs; a place for tests to fail.
    """

    def __init__(
        self, program: Program, *, parallelism: int = 2, before: Callable[[WindowTask], None] | None = None
    ) -> None:
        self._program = program
        self._before = before
        self.parallelism = parallelism

    def submit(self, window: WindowTask) -> Future[list[StageResult]]:
        """Run the window at once."""
        future: Future[list[StageResult]] = Future()
        try:
            if self._before is not None:
                self._before(window)
            future.set_result(self._run(window))
        except Exception as error:
            future.set_exception(error)
        return future

    def _run(self, window: WindowTask) -> list[StageResult]:
        levels = self._program.plan.levels
        slots = self._program.plan.partitions_by_level(window.partitions)
        inputs = level_zero(self._program, window)
        for level in range(len(levels)):
            left = [
                item
                for slot, items in enumerate(inputs)
                for item in run_level(self._program, window, level, slot, iter(items))
            ]
            if level + 1 == len(levels):
                return [item for item in left if isinstance(item, StageResult)]
            keyed = sorted(
                ((slot_of(item, level + 1, slots[level + 1]), n, item) for n, item in enumerate(left)),
                key=lambda k: k[:2],
            )
            inputs = [[] for _ in range(slots[level + 1])]
            for (slot, _), _, item in keyed:
                inputs[slot].append(item)
        return []

    def survey(self, operator: str, items: list[Any]) -> list[Any]:
        """Examine at once."""
        return list(run_survey(self._program, operator, items))

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply it at once."""
        return list(map(function, items))

    def cancel(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """Nothing is held."""
