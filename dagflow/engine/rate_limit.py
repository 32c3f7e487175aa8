"""Limits of the bytes per second that an operator reads, which the tasks of a window divide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dagflow.api.operator import Operator
from dagflow.engine.task_groups import lowest_slots, slot_bytes
from dagflow.execution.balancing import assign_balanced
from dagflow.execution.messages import WindowJob
from dagflow.plan.physical import PhysicalPlan


class RateLimit:
    """The rate limits of an app's operators.

    Partitions know nothing of those of other windows: where there is a limit, windows run one at a time.

    Args:
        plan: The physical plan.
        operators: The operators by name.

    Attributes:
        is_set: Whether any operator has a limit.
    """

    def __init__(self, plan: PhysicalPlan, operators: Mapping[str, Operator]) -> None:
        self._plan = plan
        self.is_set = any(operator.rate_limit() is not None for operator in operators.values())

    def divided(self, job: WindowJob, parallelism: int) -> WindowJob:
        """A window whose partitions of the lowest level run in at most `parallelism` tasks and know their shares.

        Operators enforce the limit in their tasks, see OperatorContext.share. Tasks that run at the same time divide
        it in proportion to their bytes, so that all of them finish at the same time and no share stays unused.

        Args:
            job: The window.
            parallelism: Tasks that run at the same time. Where there are more, because the cluster has grown since,
                the rate is kept all the same.
        """
        slots = lowest_slots(self._plan, job)
        sizes = {slot: slot_bytes(job, *slot) for slot in slots}
        busy = sum(map(bool, sizes.values()))
        together = assign_balanced(list(sizes.values()), max(min(parallelism, busy), 1))
        shares: dict[tuple[str, int], float] = {}
        for stage in self._plan.levels[0]:
            total = sum(size_bytes for (head, _), size_bytes in sizes.items() if head == stage.head)
            for group in together:
                own = [slots[index] for index in group if slots[index][0] == stage.head]
                part = sum(sizes[slot] for slot in own)
                shares.update((slot, part / total) for slot in own if part)
        return replace(job, together=[group for group in together if group], shares=shares)
