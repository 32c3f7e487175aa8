"""The watch beside a task, where it would end the task."""

from __future__ import annotations

import subprocess
import sys
import threading

from typing_extensions import override

from dagflow.execution.failures import ActiveCall
from dagflow.execution.stalls import ChainWatch, Stall, StallLimits
from dagflow.execution.task_watch import (
    SHARED_HOST,
    StallReport,
    TaskActivity,
    TaskMessage,
    TaskTimeoutError,
    TaskWatch,
)
from tests.cli.processes import PATIENCE_S

HELD = """
import ctypes
from dagflow.execution import task_watch
from dagflow.execution.stalls import StallLimits

task_watch.GRACE_S = 0.1
host = task_watch.TaskHost(owns_process=True)
with task_watch.TaskWatch(StallLimits(0.1, 0.1), host, None, None, lambda: None, print):
    ctypes.PyDLL(None).sleep(3600)
"""
"""A task whose native code does not let go of Python's lock from the beginning."""

LATE = """
import ctypes
from dagflow.execution import task_watch
from dagflow.execution.stalls import StallLimits

task_watch.GRACE_S = 0.05
host = task_watch.TaskHost(owns_process=True)
with task_watch.TaskWatch(StallLimits(60, 0.05), host, None, None, lambda: None, print) as watch:
    pass
try:
    watch._look()
except AttributeError:
    ctypes.CDLL(None).usleep(500_000)
    print("next task")
"""
"""A look at a task that has just ended, as the thread beside it may take."""


class StillAfterTheEnd(ChainWatch):
    """Finds, when the task is over, that it has stalled for too long."""

    def __init__(self) -> None:
        self.is_looking, self.is_over = threading.Event(), threading.Event()
        self.thread = 0

    @override
    def look(self) -> list[Stall]:
        self.thread = threading.get_ident()
        self.is_looking.set()
        assert self.is_over.wait(30)
        return []

    @override
    def longest(self) -> Stall:
        return Stall(3600.0, is_over=False)


def test_a_task_that_is_over_is_not_ended() -> None:
    """Its thread works for another task by then, or its id is that of a new thread."""
    chain = StillAfterTheEnd()
    reported: list[TaskMessage] = []

    def work(call: ActiveCall | None) -> TaskActivity:
        return TaskActivity(1, 0, 0)

    with TaskWatch(StallLimits(0.01, 0.01), SHARED_HOST, work, chain, lambda: None, reported.append):
        assert chain.is_looking.wait(30)
    try:
        chain.is_over.set()
        while chain.thread in sys._current_frames():
            pass  # until the watch has ended
        reached = sum(range(1000))
    except TaskTimeoutError:
        reached = 0
    assert (reached, reported) == (499500, [])


class StillAtItsEnd(ChainWatch):
    """Finds once that the task is stalled."""

    def __init__(self) -> None:
        self._found = [Stall(1.0, is_over=False)]

    @override
    def look(self) -> list[Stall]:
        return [self._found.pop()] if self._found else []

    @override
    def longest(self) -> Stall | None:
        return None

    @override
    def stood_s(self, call: ActiveCall | None) -> float:
        return 1.0


def test_a_task_that_ends_while_a_stall_is_reported_says_it_has_gone_on() -> None:
    """Otherwise the log would have a warning without its end."""
    is_reporting, is_over = threading.Event(), threading.Event()
    reported: list[TaskMessage] = []

    def send(message: TaskMessage) -> None:
        is_reporting.set()
        is_over.wait(0.05)
        reported.append(message)

    def work(call: ActiveCall | None) -> TaskActivity:
        return TaskActivity(1, 0, 0)

    with TaskWatch(StallLimits(0.01, 0), SHARED_HOST, work, StillAtItsEnd(), lambda: None, send):
        assert is_reporting.wait(PATIENCE_S)
    is_over.set()
    assert [isinstance(each, StallReport) and each.is_over for each in reported] == [False, True]


def test_native_code_that_never_lets_go_is_ended() -> None:
    """It does not leave the thread beside the task the moment that it needs to begin."""
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Timeout (0:00:00.200000)!")


def test_a_late_look_does_not_end_the_process_of_the_next_task() -> None:
    """The process works on, and nothing of the task that has ended would take back its end."""
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "next task\n", "")
