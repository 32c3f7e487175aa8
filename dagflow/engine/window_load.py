"""How much a window holds, by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagflow.api.ports import tuple_count
from dagflow.execution.balancing import size_bytes_of
from dagflow.execution.messages import WindowTask
from dagflow.journal import WindowPlan
from dagflow.plan.physical import PhysicalPlan, PortRef


@dataclass(frozen=True, slots=True)
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


def load_of_task(plan: PhysicalPlan, planned: WindowPlan, task: WindowTask) -> Load:
    """The load of a planned window; tuples that every partition gets count once."""
    tuples: dict[PortRef, list[Any]] = {}
    for shares in task.assigned.values():
        for partition, share in enumerate(shares):
            for target, items in share:
                if not partition or planned.inputs[str(target)].lengths is not None:
                    tuples.setdefault(target, []).extend(items)
    return load_of(plan, tuples)
