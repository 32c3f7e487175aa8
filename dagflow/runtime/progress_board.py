"""Gathers the reports of the tasks of windows while they run."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from msgspec import structs

from dagflow.errors import OperatorError, own_name
from dagflow.execution.operator_output import OperatorOutput
from dagflow.execution.stalls import DEFAULT_LIMITS, StallLimits
from dagflow.execution.task_watch import (
    MAX_MESSAGE,
    OutputReport,
    ProgressAddress,
    StallReport,
    TaskActivity,
    TaskMessage,
    TaskReport,
)
from dagflow.frozen import frozen, mutable
from dagflow.metrics.counters import OperatorReport, sum_of

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
"""Seconds between checks of the receiving thread: whether tasks are silent, and whether it is to end."""


@frozen
class WindowProgress:
    """The progress of the tasks of a running window, as far as it is known."""

    bytes_read: int = 0
    tasks_done: int = 0
    stalls: tuple[str, ...] = ()
    operators: Mapping[str, OperatorReport] = field(default_factory=dict)


@frozen
class LastReport:
    """The last report of a task's attempt: what it worked on, and whether it was ended because it was stalled."""

    work: TaskActivity
    is_timed_out: bool = False


@mutable
class _Task:
    """The state of a running task.

    Attributes:
        stall: Its report of a stall; None while it makes progress.
        timed_out: The attempt that was ended because it was stalled; -1 for none.
    """

    report: TaskReport
    reported_s: float
    stall: StallReport | None = None
    stalled_s: float = 0.0
    is_silent: bool = False
    timed_out: int = -1

    def stall_line(self, now: float) -> str:
        """The stall in words, with its duration by now; "" for a task that makes progress."""
        stall = self.stall
        return "" if stall is None else structs.replace(stall, seconds=stall.seconds + now - self.stalled_s).line


class ProgressBoard:
    """Holds the newest report of each task of running windows, and warns of stalled tasks.

    May be used by several threads.

    Args:
        log: Where the complete output of operators is, as the end of a sentence.
    """

    def __init__(
        self,
        stall_limits: StallLimits = DEFAULT_LIMITS,
        now: Callable[[], float] = time.monotonic,
        log: str = "left out",
    ) -> None:
        self._stall_limits = stall_limits
        self._output = OperatorOutput(log, now)
        self._now = now
        self._lock = threading.Lock()
        self._windows: dict[int, dict[tuple[int, int], _Task]] = {}
        self._reported_s = now()
        self._is_start_reported = False

    def open(self, window_id: int) -> None:
        with self._lock:
            if not self._windows:
                self._reported_s = self._now()
            self._windows[window_id] = {}

    def close(self, window_id: int) -> None:
        """Drop a window; for its tasks that still run, only the ends of stalls are reported."""
        with self._lock:
            self._windows.pop(window_id, None)

    def record(self, message: TaskMessage) -> None:
        """Record a report; if a task has several attempts, the one that has read most counts."""
        if isinstance(message, OutputReport):
            self._print(message)
            return
        with self._lock:
            tasks = self._windows.get(message.work.window_id)
            if tasks is not None:
                self._take(tasks, message)
        # The end of a stall may arrive when its window is complete.
        if isinstance(message, StallReport) and (tasks is not None or message.is_over):
            logger.warning("%s", message)

    def _print(self, message: OutputReport) -> None:
        operator = f"operator '{own_name(message.work.operator)}'"
        for line in message.text.split("\n"):
            self._output.line(operator, str(message.work), line)
        if message.is_last:
            self._output.leave_out(operator)

    def _take(self, tasks: dict[tuple[int, int], _Task], message: TaskReport | StallReport) -> None:
        now, key = self._now(), (message.work.stage, message.work.partition)
        self._reported_s, self._is_start_reported = now, False
        if isinstance(message, TaskReport):
            self._take_report(tasks, key, message, now)
            return
        known = tasks.setdefault(key, _Task(TaskReport(message.work, 0), now))
        known.reported_s = known.stalled_s = now
        known.stall = None if message.is_over or message.is_ended else message
        if message.is_ended:
            known.report, known.timed_out = TaskReport(message.work, known.report.bytes_read), message.work.attempt

    def _take_report(
        self, tasks: dict[tuple[int, int], _Task], key: tuple[int, int], report: TaskReport, now: float
    ) -> None:
        known = tasks.get(key)
        if known is None:
            tasks[key] = _Task(report, now)
            return
        known.reported_s, known.is_silent = now, False
        older = known.report
        # The newest attempt's activity counts, and the most bytes that any attempt has read.
        known.report = TaskReport(
            older.work if report.work.attempt == older.work.attempt and not report.work.operator else report.work,
            max(report.bytes_read, older.bytes_read),
            report.is_done or older.is_done,
            report.operators if report.bytes_read >= older.bytes_read else older.operators,
        )
        if report.is_done or (known.stall is not None and known.stall.work.attempt != report.work.attempt):
            known.stall = None

    def progress(self, window_id: int) -> WindowProgress:
        """The progress of a window; empty for a window that does not run."""
        with self._lock:
            tasks = list(self._windows.get(window_id, {}).values())
        return WindowProgress(
            sum(task.report.bytes_read for task in tasks),
            sum(task.report.is_done for task in tasks),
            self._stalls_of(tasks),
            sum_of(task.report.operators for task in tasks),
        )

    def stalls(self) -> tuple[str, ...]:
        with self._lock:
            tasks = [task for window in self._windows.values() for task in window.values()]
        return self._stalls_of(tasks)

    def _stalls_of(self, tasks: Iterable[_Task]) -> tuple[str, ...]:
        now = self._now()
        return tuple(filter(None, (task.stall_line(now) for task in tasks)))

    def last_of(self, attempt: int) -> LastReport | None:
        """The last report of a running task's attempt; None where there is none."""
        with self._lock:
            tasks = [task for window in self._windows.values() for task in window.values()]
        for task in tasks:
            if task.report.work.attempt == attempt and not task.report.is_done:
                is_timed_out = task.timed_out == attempt or self.ends_after(self._now() - task.reported_s)
                return LastReport(task.report.work, is_timed_out)
        return None

    def ends_after(self, silent_s: float) -> bool:
        """Whether a process that was silent for this long before its end was ended because of it."""
        return 0 < self._stall_limits.timeout_s <= silent_s

    def look_for_silence(self) -> None:
        """Warn of tasks whose processes do not answer, and of windows whose tasks do not start; called now and then."""
        for text in self._silent():
            logger.warning("%s", text)

    def _silent(self) -> list[str]:
        notices = []
        with self._lock:
            now = self._now()
            for window in self._windows.values():
                for task in window.values():
                    silent_s = now - task.reported_s
                    if silent_s >= self._stall_limits.warning_s and not (
                        task.report.is_done or task.is_silent or task.stall
                    ):
                        task.is_silent = True
                        work = task.report.work
                        notices.append(
                            f"{work}: its process has not answered for {silent_s:.0f} s"
                            f"{f', last in {work.what}' if work.what else ''}: native code keeps Python from running, "
                            "or the host is gone"
                        )
            waiting = [window_id for window_id, tasks in self._windows.items() if not tasks]
            silent_s = now - self._reported_s
            if waiting and silent_s >= self._stall_limits.warning_s and not self._is_start_reported:
                self._is_start_reported = True
                notices.append(
                    f"window {waiting[0]}: none of its tasks has begun for {silent_s:.0f} s: is there a free executor?"
                )
        return notices


class ProgressReceiver:
    """Receives the reports of tasks in other processes, on a thread of its own.

    Args:
        host: The address of this host to listen on: loopback where all tasks run on this host.

    Attributes:
        address: Where tasks send their reports; None if none can be received.
    """

    def __init__(self, board: ProgressBoard, host: str) -> None:
        self._board = board
        self.address: ProgressAddress | None = None
        self._is_closed = threading.Event()
        # Without a socket the run continues, and shows progress window by window.
        with contextlib.suppress(OSError):
            receiving = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
            try:
                receiving.bind((host, 0))
            except OSError:
                receiving.close()
                raise
            receiving.settimeout(_LOOK_EVERY_S)
            self.address = ProgressAddress(host, receiving.getsockname()[1], os.urandom(8))
            threading.Thread(target=self._receive, args=(receiving, self.address), name="progress", daemon=True).start()

    def _receive(self, receiving: socket.socket, address: ProgressAddress) -> None:
        looked_s = 0.0
        with receiving:
            while not self._is_closed.is_set():
                # Not for each message: a check goes through all tasks.
                if (now := time.monotonic()) - looked_s >= _LOOK_EVERY_S:
                    looked_s = now
                    self._board.look_for_silence()
                try:
                    message = receiving.recv(MAX_MESSAGE)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if (report := address.report(message)) is not None:
                    self._board.record(report)

    def close(self) -> None:
        self._is_closed.set()


def death_of(last: LastReport, times: int, stack_is: str, fatal: str = "", trace: str = "") -> OperatorError:
    """The error for a task that lost its process in each attempt; `fatal` and `trace` are faulthandler's words."""
    work = last.work
    how = f"was killed {times} times, or called os._exit()"
    hint = "the system kills a process that takes more memory than there is, and `dmesg` says so"
    if last.is_timed_out:
        how, hint = f"was ended {times} times because it was stalled", "task_timeout_millis says after how long"
    elif fatal:
        how, hint = f"died {times} times: {fatal}", f"native code did this; {stack_is}"
    return OperatorError(
        f"its Python process {how}{f', in {work.what}' if work.what else ''}",
        operator=work.operator or f"stage {work.stage}",
        window_id=work.window_id,
        partition=work.partition,
        trace=trace,
        hint=hint,
    )
