"""Divides the rate limit of an operator among the partitions of a window.

The limit itself is enforced by the operator, in its tasks; see OperatorContext.share.
"""

from __future__ import annotations

from dataclasses import replace

from dagflow.execution.balancing import assign_balanced, size_bytes_of
from dagflow.execution.messages import WindowTask
from dagflow.plan.physical import PhysicalPlan


def with_rate_shares(plan: PhysicalPlan, task: WindowTask, parallelism: int) -> WindowTask:
    """A window whose partitions of the lowest level run in at most `parallelism` tasks and know their share of a limit.

    Tasks that all run at the same time divide the limit in proportion to their bytes, so that all of them finish at
    the same time and no share stays unused.

    Args:
        plan: The physical plan.
        task: The window.
        parallelism: Tasks that run at the same time. Where there are more, because the cluster has grown since, the
            rate is kept all the same.
    """
    slots = [(stage.head, partition) for stage in plan.levels[0] for partition in range(task.partitions[stage.head])]
    sizes = {slot: _size_bytes(task, *slot) for slot in slots}
    busy = sum(map(bool, sizes.values()))
    together = assign_balanced(list(sizes.values()), max(min(parallelism, busy), 1))
    shares: dict[tuple[str, int], float] = {}
    for stage in plan.levels[0]:
        total = sum(size_bytes for (head, _), size_bytes in sizes.items() if head == stage.head)
        for group in together:
            own = [slots[index] for index in group if slots[index][0] == stage.head]
            part = sum(sizes[slot] for slot in own)
            shares.update((slot, part / total) for slot in own if part)
    return replace(task, together=[group for group in together if group], shares=shares)


def _size_bytes(task: WindowTask, head: str, partition: int) -> int:
    return sum(size_bytes_of(item) for _, items in task.assigned[head][partition] for item in items)
