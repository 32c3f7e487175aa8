"""Slots: the numbered partitions of one level, over all its stages, and the input of each slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.execution.messages import PickledTuples, ShuffleItem, TaskResult, WindowJob
from dagflow.execution.program import Program


def driver_inputs(program: Program, window: WindowJob) -> list[list[Any]]:
    """The driver's input for each slot of the lowest level; items for higher levels go with slot 0."""
    levels = program.plan.levels
    slots: list[list[Any]] = [list(share) for stage in levels[0] for share in window.assigned[stage.head]]
    for level in levels[1:]:
        first_slot = 0
        for stage in level:
            for partition, share in enumerate(window.assigned.get(stage.head, [])):
                slots[0] += [
                    ShuffleItem(stage.level, first_slot + partition, (-1, order), target, PickledTuples.of(tuples))
                    for order, (target, tuples) in enumerate(share)
                ]
            first_slot += window.partitions[stage.head]
    return slots


def slot_of(item: ShuffleItem | TaskResult, next_level: int, slots: int) -> tuple[int, tuple[int, ...]]:
    """The slot of the next level that an item goes to, and its place in the order of arrival there.

    Results go with slot 0. An item for a level above the next one goes to the slot given by its own number.
    """
    if isinstance(item, TaskResult):
        return 0, (-1, item.stage, item.partition)
    return (item.slot if item.level == next_level else item.slot % slots), item.order


def group_slots(shares: Sequence[list[Any]], together: Sequence[Sequence[int]]) -> list[list[tuple[int, list[Any]]]]:
    """The slots that each task of the lowest level runs, with their inputs; `together` is empty for one task each."""
    return [[(slot, shares[slot]) for slot in slots] for slots in together or [[slot] for slot in range(len(shares))]]
