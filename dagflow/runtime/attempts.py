"""Attempts of Spark tasks: whether the results of a window tell of what its tasks have used.

When an executor dies with what its tasks have sent, Spark runs these tasks again for those slots of the next level that
are not done. The second attempt may send something else, or fail, and its result goes to a slot that may be done: the
driver has the result of the first attempt, and what the other slots made of the second one.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagflow.runtime.slots import slot_of

_ORDER = (-1,)
"""The place of numbers and attempts in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What an attempt of a Spark task tells the driver, beside its results.

    Attributes:
        level: The level of the task.
        slot: Its slot; 0 for tasks of the lowest level, which may run several.
        number: Random, so that sums of other numbers differ.
        used: The sum of the numbers of the attempts whose items it has received.
        slots: The slots of the next level that its items and its number went to.
    """

    level: int
    slot: int
    number: int
    used: int
    slots: frozenset[int]


class AttemptWatch:
    """Follows an attempt of a Spark task: which attempts it uses, and who uses it.

    Args:
        level: The level of the task.
        slot: Its slot.
    """

    def __init__(self, level: int, slot: int = 0) -> None:
        self._level = level
        self._slot = slot
        self._used = 0
        # Not of the module random, of which forked processes have the same state.
        self._number = secrets.randbits(64)

    def received(self, items: Iterable[Any]) -> Iterator[Any]:
        """What arrives, without the numbers of the attempts that have sent it."""
        for item in items:
            if isinstance(item, int):
                self._used += item
            else:
                yield item

    def sent(self, items: Iterable[Any], slots: int) -> Iterator[Any]:
        """Each item with its place; the number behind the items for each slot that gets some, and the attempt itself.

        A number costs as much as an item, so there is none where there are no items.

        Args:
            items: What leaves.
            slots: How many slots the next level has; 0 where there is none, and all goes to the driver as it is.
        """
        if not slots:
            yield from items
            yield Attempt(self._level, self._slot, self._number, self._used, frozenset())
            return
        receivers = {0}
        for item in items:
            place = (0, _ORDER) if isinstance(item, Attempt) else slot_of(item, self._level + 1, slots)
            receivers.add(place[0])
            yield place, item
        yield (0, _ORDER), Attempt(self._level, self._slot, self._number, self._used, frozenset(receivers))
        for slot in receivers:
            yield (slot, _ORDER), self._number


def have_used_each_other(attempts: Sequence[Attempt]) -> bool:
    """Whether the tasks of a window have used all of what the attempts given here have sent, and nothing else.

    Args:
        attempts: One attempt of each Spark task.
    """
    sums: Counter[tuple[int, int]] = Counter()
    for attempt in attempts:
        sums.update({(attempt.level + 1, slot): attempt.number for slot in attempt.slots})
    return all(attempt.used == sums[attempt.level, attempt.slot] for attempt in attempts)
