"""What a task of Spark does, and how the driver notices that tasks have used different attempts of one below them."""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from dagflow.execution.messages import Program, WindowJob
from dagflow.execution.task import run_level
from dagflow.execution.task_process import warm, withhold_sockets
from dagflow.execution.task_watch import ProgressSender, TaskHost
from dagflow.frozen import frozen
from dagflow.runtime.base import slot_of


class SentProgram(Protocol):
    """The program as tasks get it, such as a broadcast."""

    @property
    def value(self) -> Program: ...


def lowest_task(sent: SentProgram, window: WindowJob, next_slots: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each task of the lowest level; next_slots is 0 where it is the only level."""

    def run(arrived: Iterable[list[tuple[int, list[Any]]]]) -> Iterator[Any]:
        program = sent.value
        host, attempt = _host()
        with warm(), ProgressSender(program.progress, attempt) as sender:
            slots = [*itertools.chain.from_iterable(arrived)]
            results = run_level(program, window, 0, slots, sender.send, host)
            yield from AttemptWatch(level=0).sent(results, next_slots)

    return run


def higher_task(
    sent: SentProgram, window: WindowJob, level: int, next_slots: int
) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each slot of a higher level, with what has arrived there in order.

    Args:
        next_slots: How many slots the next level has; 0 at the last one.
    """

    def run(slot: int, items: Iterable[Any]) -> Iterator[Any]:
        program = sent.value
        host, attempt = _host()
        with warm(), ProgressSender(program.progress, attempt) as sender:
            watch = AttemptWatch(level, slot)
            results = run_level(program, window, level, [(slot, watch.received(items))], sender.send, host)
            yield from watch.sent(results, next_slots)

    return run


def _host() -> tuple[TaskHost, int]:
    # Imported late: a driver without Spark's own classes, as of pyspark-client, has this module too.
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskHost(), -1
    withhold_sockets()
    return TaskHost(owns_process=True, is_retry=context.attemptNumber() > 0), context.taskAttemptId()


_ORDER = (-1,)
"""The place of numbers and attempts in the order of arrival."""


@frozen
class Attempt:
    """The report of a Spark task's attempt to the driver, beside its results.

    Attributes:
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
    """Follows an attempt of a Spark task: which attempts it uses, and which slots use it."""

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
    """Whether the tasks of a window have used all items that these attempts have sent, and no others."""
    sums: Counter[tuple[int, int]] = Counter()
    for attempt in attempts:
        sums.update({(attempt.level + 1, slot): attempt.number for slot in attempt.slots})
    return all(attempt.used == sums[attempt.level, attempt.slot] for attempt in attempts)
