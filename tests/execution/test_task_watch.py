"""The watch beside a task, where it would end the task."""

from __future__ import annotations

import threading

from typing_extensions import override

from dagflow.execution.chain import AtHand
from dagflow.execution.chain_watch import ChainWatch, Found, Watched
from dagflow.execution.stalls import StallLimits, Standstill, StandstillDetector
from dagflow.execution.task_progress import TaskMessage, WorkAtHand
from dagflow.execution.task_watch import SHARED_HOST, TaskTimeoutError, TaskWatch


class StillAfterTheEnd(ChainWatch):
    """Finds, when the task is over, that it has stood still for too long."""

    def __init__(self) -> None:
        self.is_looking, self.is_over = threading.Event(), threading.Event()

    @override
    def look(self) -> list[Found]:
        self.is_looking.set()
        assert self.is_over.wait(30)
        return []

    @override
    def longest(self) -> Found:
        return Found(Watched(None, StandstillDetector(1.0), 0, 0), Standstill(3600.0, is_over=False))


def test_a_task_that_is_over_is_not_ended() -> None:
    """Its thread works for another task by then, or its id is that of a new thread."""
    chain = StillAfterTheEnd()
    told: list[TaskMessage] = []

    def work(call: AtHand | None) -> WorkAtHand:
        return WorkAtHand(1, 0, 0)

    before = set(threading.enumerate())
    with TaskWatch(StallLimits(0.01, 0.01), SHARED_HOST, work, chain, lambda: None, told.append):
        assert chain.is_looking.wait(30)
        (watching,) = set(threading.enumerate()) - before
    try:
        chain.is_over.set()
        watching.join()
        reached = sum(range(1000))
    except TaskTimeoutError:
        reached = 0
    assert (reached, told) == (499500, [])
