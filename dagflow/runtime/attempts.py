"""Attempts of Spark tasks: whether the results of a window report all that its tasks have used.

When an executor dies with the items that its tasks have sent, Spark runs these tasks again for those slots of the next
level that are not done. The second attempt may send other items, or fail, and its result goes to a slot that may be
done. Then the driver has the result of the first attempt, and what the other slots made of the second one.
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
    """The report of a Spark task's attempt to the driver, beside its results.

    Attributes:
        level: The level of the task.
        slot: Its slot; 0 for tasks of the lowest level, which may run several.
        number: A random number, so that different sets of attempts have different sums.
        used: The sum of the numbers of the attempts whose items it has received.
        slots: The slots of the next level that its items and its number went to.
    """

    level: int
    slot: int
    number: int
    used: int
    slots: frozenset[int]


class AttemptWatch:
    """Follows an attempt of a Spark task: which attempts it uses, and which slots use it.

    Args:
        level: The level of the task.
        slot: Its slot.
    """

    def __init__(self, level: int, slot: int = 0) -> None:
        self._level = level
        self._slot = slot
        self._used = 0
        # Not from the module random, whose state forked processes share.
        self._number = secrets.randbits(64)

    def received(self, items: Iterable[Any]) -> Iterator[Any]:
        """The received items, without the numbers of the attempts that have sent them."""
        for item in items:
            if isinstance(item, int):
                self._used += item
            else:
                yield item

    def sent(self, items: Iterable[Any], slots: int) -> Iterator[Any]:
        """Each item with its place; then the attempt itself, and its number for each slot that gets items.

        A number costs as much as an item, so a slot without items gets none.

        Args:
            items: The items that the task sends.
            slots: How many slots the next level has; 0 where there is none, and all goes to the driver unchanged.
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
    """Whether the tasks of a window have used all items that these attempts have sent, and no others.

    Args:
        attempts: One attempt of each Spark task.
    """
    sums: Counter[tuple[int, int]] = Counter()
    for attempt in attempts:
        sums.update({(attempt.level + 1, slot): attempt.number for slot in attempt.slots})
    return all(attempt.used == sums[attempt.level, attempt.slot] for attempt in attempts)
