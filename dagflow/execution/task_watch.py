"""Watches a task from a thread beside it: reports what it has at hand, and tells when it stands still."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType

from dagflow.execution.breakpoints import is_debugging
from dagflow.execution.stalls import StallLimits, StandstillDetector, stacks_of
from dagflow.execution.task_progress import StallReport, TaskMessage, WorkAtHand

TIMEOUT_CODE = 75
"""The exit code of a worker process that ends itself."""

_STDERR = 2
"""The descriptor where the interpreter writes the stacks."""

GRACE_S = 5.0
"""How much longer native code may keep this watch from looking before the process is ended all the same."""


class TaskTimeoutError(Exception):
    """A task stood still for longer than the app allows."""

    def __str__(self) -> str:
        return "no progress for as long as task_timeout_millis allows"


@dataclass(frozen=True, slots=True)
class TaskHost:
    """Where a task runs.

    Attributes:
        owns_process: Whether the process may be ended to end the task.
        is_retry: Whether an earlier attempt of the task has failed, perhaps with its process.
    """

    owns_process: bool = False
    is_retry: bool = False


SHARED_HOST = TaskHost()


class TaskWatch:
    """Watches the task of the thread that enters this context manager.

    Args:
        limits: How long the task may stand still.
        host: Where it runs.
        work: What it has at hand now; called by the watching thread.
        mark: A mark of what it has done; called by the watching thread.
        report: Sends an ordinary report; called by the watching thread, as a sign of life.
        send: Takes the reports; must neither wait nor raise.
    """

    def __init__(
        self,
        limits: StallLimits,
        host: TaskHost,
        work: Callable[[], WorkAtHand],
        mark: Callable[[], Hashable],
        report: Callable[[], None],
        send: Callable[[TaskMessage], None],
    ) -> None:
        self._limits = limits
        self._host = host
        self._work = work
        self._mark = mark
        self._report = report
        self._send = send
        self._detector = StandstillDetector(limits.warning_s)
        self._is_over = threading.Event()
        self._told: WorkAtHand | None = None
        self._task = 0
        self._threads_before: frozenset[int | None] = frozenset()

    def __enter__(self) -> TaskWatch:
        self._task = threading.get_ident()
        self._threads_before = frozenset(thread.ident for thread in threading.enumerate())
        threading.Thread(target=self._run, name="task-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._ends_process:
            faulthandler.cancel_dump_traceback_later()
        if self._told is not None:
            self._tell(self._detector.stood_s, is_over=True)

    @property
    def _ends_process(self) -> bool:
        return self._host.owns_process and self._limits.timeout_s > 0

    def _run(self) -> None:
        while not self._is_over.wait(self._limits.look_every_s):
            try:
                self._look()
            except Exception:
                # The task changes what this thread reads; the next look sees a state in rest.
                continue

    def _look(self) -> None:
        if is_debugging():
            return
        if self._ends_process:
            # A watch of the interpreter's own, which needs no lock of Python's: native code may hold it.
            faulthandler.dump_traceback_later(self._limits.timeout_s + GRACE_S, exit=True, file=_STDERR)
        standstill = self._detector.look(self._mark())
        if standstill is not None:
            self._tell(standstill.seconds, is_over=standstill.is_over)
        self._report()
        if 0 < self._limits.timeout_s <= self._detector.stood_s:
            self._end()

    def _tell(self, seconds: float, *, is_over: bool, is_ended: bool = False) -> None:
        stack = "" if is_over else stacks_of(self._task, self._is_of_task)
        work = self._told if is_over and self._told is not None else self._work()
        self._told = None if is_over or is_ended else work
        self._send(StallReport(work, seconds, stack, is_over, is_ended, self._limits.timeout_s))

    def _is_of_task(self, thread: threading.Thread) -> bool:
        return thread.ident not in self._threads_before and thread is not threading.current_thread()

    def _end(self) -> None:
        self._tell(self._detector.stood_s, is_over=False, is_ended=True)
        if self._host.owns_process:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(TIMEOUT_CODE)
        # In a process that others use the task is asked to end; it does so where it next runs Python code.
        self._is_over.set()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._task), ctypes.py_object(TaskTimeoutError))
