"""How it is noticed that tasks of a window have used different attempts of a task below them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.serializers import CPickleSerializer

from dagflow.execution.messages import PickledTuples, ShuffleItem
from dagflow.plan.physical import PortRef
from dagflow.runtime.spark_tasks import Attempt, AttemptWatch, have_used_each_other

PICKLED: Any = CPickleSerializer()
"""How PySpark writes what goes from one level to the next."""

SLOTS = 2
"""Slots of each level."""

Blocks = dict[int, bytes]
"""What an attempt has sent to each slot, as Spark keeps it; what goes to the driver comes from slot 0."""


def sent(level: int, slot: int, used: Iterable[Blocks], to: Iterable[int], slots: int = SLOTS) -> Blocks:
    """What a new attempt sends that has used these, with an item for each slot that it sends something."""
    watch = AttemptWatch(level, slot)
    arrived = [item for blocks in used if slot in blocks for _, item in PICKLED.loads(blocks[slot])]
    passing = [item for item in watch.received(arrived) if isinstance(item, Attempt)]
    payload = PickledTuples.of([level])
    items = [ShuffleItem(level + 1, target, (0, level, slot), PortRef("next", "input"), payload) for target in to]
    parts: Mapping[int, list[Any]] = defaultdict(list)
    for each in watch.sent([*passing, *items], slots):
        (place, _), item = each if slots else ((0, ()), each)
        parts[place].append((place, item))
    return {place: PICKLED.dumps(part) for place, part in parts.items()}


def arrived(last: Iterable[Blocks]) -> list[Attempt]:
    """The attempts that the driver learns of from those of the last level."""
    return [item for blocks in last for _, item in PICKLED.loads(blocks[0]) if isinstance(item, Attempt)]


def lowest(slot: int, to: Iterable[int] = range(SLOTS)) -> Blocks:
    """A new attempt of a task of the lowest level."""
    return sent(0, slot, (), to)


def last(slot: int, used: Iterable[Blocks], level: int = 1) -> Blocks:
    """A new attempt of a task of the last level."""
    return sent(level, slot, used, (), slots=0)


def test_tasks_that_use_the_same_attempts_are_consistent() -> None:
    """Also where some of these have nothing for some of them."""
    below = [lowest(0), lowest(1, to=[1])]
    attempts = arrived([last(0, below), last(1, below)])
    assert have_used_each_other(attempts)
    assert len(attempts) == 4


def test_tasks_that_use_different_attempts_are_not_consistent() -> None:
    """Whatever the second attempt has sent, its result may be another one."""
    first, second, other = lowest(0), lowest(0), lowest(1)
    assert not have_used_each_other(arrived([last(0, [first, other]), last(1, [second, other])]))


def test_an_attempt_that_leaves_out_a_slot_is_not_consistent() -> None:
    """A task that gets nothing of a second attempt, and had got something of the first one, lacks it."""
    first, second = lowest(0), lowest(0, to=[])
    assert 1 not in second
    assert not have_used_each_other(arrived([last(0, [first]), last(1, [second])]))


def test_an_attempt_that_adds_a_slot_is_not_consistent() -> None:
    """A task that gets something of a second attempt, and had got nothing of the first one, has too much."""
    first, second = lowest(0, to=[]), lowest(0)
    assert not have_used_each_other(arrived([last(0, [first]), last(1, [second])]))


def test_different_attempts_two_levels_below_are_not_consistent() -> None:
    """The tasks of the last level have used the same attempts, and these have not."""
    first, second = lowest(0), lowest(0)
    assert have_used_each_other(arrived(through(first, first)))
    assert not have_used_each_other(arrived(through(first, second)))


def through(first: Blocks, second: Blocks) -> list[Blocks]:
    """The last of three levels, where the slots of the middle one have used these."""
    middle = [sent(1, 0, [first], range(SLOTS)), sent(1, 1, [second], range(SLOTS))]
    return [last(slot, middle, level=2) for slot in range(SLOTS)]
