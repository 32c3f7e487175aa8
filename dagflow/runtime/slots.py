"""Slots: the numbered partitions of one level, over all its stages, and what each of them receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.execution.messages import ShuffleItem, TaskResult, WindowTask
from dagflow.execution.program import Program


def driver_inputs(program: Program, window: WindowTask) -> list[list[Any]]:
    """What the driver sends to each slot of the lowest level; what is meant for a higher one travels with slot 0."""
    levels = program.plan.levels
    slots: list[list[Any]] = [list(share) for stage in levels[0] for share in window.assigned[stage.head]]
    for level in levels[1:]:
        first_slot = 0
        for stage in level:
            for partition, share in enumerate(window.assigned.get(stage.head, [])):
                slots[0] += [
                    ShuffleItem(stage.level, first_slot + partition, (-1, order), target, tuples)
                    for order, (target, tuples) in enumerate(share)
                ]
            first_slot += window.partitions[stage.head]
    return slots


def slot_of(item: ShuffleItem | TaskResult, next_level: int, slots: int) -> tuple[int, tuple[int, ...]]:
    """Where an item goes on its way up, and in which order it arrives there.

    Results travel with slot 0; an item for a higher level stays where its own slot number falls.
    """
    if isinstance(item, TaskResult):
        return 0, (-1, item.stage, item.partition)
    return (item.slot if item.level == next_level else item.slot % slots), item.order


def group_slots(
    shares: Sequence[list[Any]], together: Sequence[Sequence[int]] = ()
) -> list[list[tuple[int, list[Any]]]]:
    """What each Spark task of the lowest level runs: one slot; the slots that got nothing go with the last one.

    A Spark task costs 5 to 10 ms, a partition without work 0.3 ms.

    Args:
        shares: What each slot got.
        together: The slots of each task, where the window says it.
    """
    if together:
        return [[(slot, shares[slot]) for slot in slots] for slots in together]
    tasks = [[(slot, share)] for slot, share in enumerate(shares) if share]
    idle = [(slot, share) for slot, share in enumerate(shares) if not share]
    if not tasks:
        return [[one] for one in idle]  # operators that make something out of nothing do so side by side
    tasks[-1] += idle
    return tasks
