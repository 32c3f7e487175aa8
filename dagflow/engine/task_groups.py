"""Decides which partitions of a window's lowest level run together in one task, and how these divide a rate limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dagflow.api.ports import tuple_count
from dagflow.execution.messages import WindowJob
from dagflow.execution.routing import assign_balanced, size_bytes_of
from dagflow.plan.physical import PhysicalPlan

LIGHT_BYTES_PER_S = 1e9
LIGHT_TUPLE_S = 2e-5
"""Before anything was measured, work counts as light: filtering lines on a prefix and writing them, and small files.
Heavier work has longer tasks than it should until its first window is committed."""


def with_task_groups(
    plan: PhysicalPlan,
    job: WindowJob,
    bytes_per_s: Mapping[str, float],
    *,
    parallelism: int,
    min_task_s: float,
    may_grow: bool = False,
) -> WindowJob:
    """A window whose partitions of the lowest level run in tasks that are not shorter than they should be.

    All cores have the same number of tasks, and at least one. Partitions without input go with the last task. Where no
    partition has input, each has a task of its own: operators that emit without input do so in parallel.

    Args:
        bytes_per_s: The speed of one partition of each stage, by the stage's head, as far as it was measured.
        min_task_s: Seconds that a task should work at least; 0 where a task costs next to nothing.
        may_grow: Whether more tasks may run at the same time as soon as some wait. Then partitions of unknown speed
            stay apart.
    """
    slots = _lowest_slots(plan, job)
    busy = [index for index, (head, partition) in enumerate(slots) if job.assigned[head][partition]]
    idle = sorted(set(range(len(slots))) - set(busy))
    together = [[index] for index in busy]
    if min_task_s and busy and not (may_grow and any(slots[index][0] not in bytes_per_s for index in busy)):
        work_s = [_work_s(job, *slots[index], bytes_per_s) for index in busy]
        tasks = parallelism * max(int(sum(work_s) / parallelism / min_task_s), 1)
        if tasks < len(busy):
            dealt = assign_balanced([int(seconds * 1e6) for seconds in work_s], tasks)
            together = [[busy[index] for index in group] for group in dealt if group]
    if busy:
        together[-1] += idle
    elif any(share for shares in job.assigned.values() for share in shares):
        together = [idle]
    else:
        together = [[index] for index in idle]
    return replace(job, together=together)


def with_shared_rate(plan: PhysicalPlan, job: WindowJob, parallelism: int) -> WindowJob:
    """A window whose partitions of the lowest level run in at most `parallelism` tasks and know their shares of a rate.

    Operators enforce the limit in their tasks, see OperatorContext.share. Tasks that run at the same time divide it in
    proportion to their bytes, so that all of them finish at the same time and no share stays unused. Partitions know
    nothing of those of other windows: where there is a limit, windows run one at a time.

    Args:
        parallelism: Tasks that run at the same time. Where there are more, because the cluster has grown since, the
            rate is kept all the same.
    """
    slots = _lowest_slots(plan, job)
    sizes = {slot: _slot_bytes(job, *slot) for slot in slots}
    busy = sum(map(bool, sizes.values()))
    together = assign_balanced(list(sizes.values()), max(min(parallelism, busy), 1))
    shares: dict[tuple[str, int], float] = {}
    for stage in plan.levels[0]:
        total = sum(size_bytes for (head, _), size_bytes in sizes.items() if head == stage.head)
        for group in together:
            own = [slots[index] for index in group if slots[index][0] == stage.head]
            part = sum(sizes[slot] for slot in own)
            shares.update((slot, part / total) for slot in own if part)
    return replace(job, together=[group for group in together if group], shares=shares)


def _work_s(job: WindowJob, head: str, partition: int, bytes_per_s: Mapping[str, float]) -> float:
    """About how many seconds a partition works; it counts as light work where its speed was not measured."""
    size_bytes = _slot_bytes(job, head, partition)
    if head in bytes_per_s:
        return size_bytes / bytes_per_s[head]
    tuples = sum(tuple_count(items) for _, items in job.assigned[head][partition])
    return size_bytes / LIGHT_BYTES_PER_S + tuples * LIGHT_TUPLE_S


def _lowest_slots(plan: PhysicalPlan, job: WindowJob) -> Sequence[tuple[str, int]]:
    """The partitions of the lowest level as (head of the stage, partition), in the order of their slots."""
    return [(stage.head, partition) for stage in plan.levels[0] for partition in range(job.partitions[stage.head])]


def _slot_bytes(job: WindowJob, head: str, partition: int) -> int:
    return sum(size_bytes_of(item) for _, items in job.assigned[head][partition] for item in items)
