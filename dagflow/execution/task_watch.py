"""Watches a task from a thread beside it: reports its current work, and when it stalls."""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import msgspec
from msgspec import structs

from dagflow.api.context import Progress
from dagflow.errors import RunStoppedError, own_name
from dagflow.execution.failures import ActiveCall
from dagflow.execution.stalls import ChainWatch, Stall, StallLimits, stacks_of
from dagflow.frozen import frozen
from dagflow.metrics.counters import OperatorReport

TIMEOUT_CODE = 75
"""The exit code of a worker process that ends itself."""

_STDERR = 2
"""The descriptor to which the interpreter writes the stacks."""

GRACE_S = 5.0
"""Seconds beyond the timeout for which native code may keep this watch from checking, before the process is ended."""


class TaskTimeoutError(Exception):
    """A task was stalled for longer than the app allows."""

    def __str__(self) -> str:
        return "no progress for as long as task_timeout_millis allows"


@frozen
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
        work: Returns the current work of the task in a call, None for none; called by the watching thread.
        chain: Finds calls without progress; used by the watching thread.
        report: Sends an ordinary report; called by the watching thread, as a sign of life.
    """

    def __init__(
        self,
        stall_limits: StallLimits,
        host: TaskHost,
        work: Callable[[ActiveCall | None], TaskActivity],
        chain: ChainWatch,
        report: Callable[[], None],
        send: Callable[[TaskMessage], None],
    ) -> None:
        self._stall_limits = stall_limits
        self._host = host
        self._work = work
        self._chain = chain
        self._report = report
        self._send = send
        self._is_over = threading.Event()
        # Held while the task is ended: then its thread, or process, works for no later task. Also held while a stall is
        # reported: a task that ends meanwhile has to report that the stall is over.
        self._ending = threading.Lock()
        self._reported: dict[ActiveCall | None, StallReport] = {}
        self._task = 0
        self._threads_before: frozenset[int | None] = frozenset()

    def __enter__(self) -> TaskWatch:
        self._task = threading.get_ident()
        self._threads_before = frozenset(thread.ident for thread in threading.enumerate())
        self._wind_up()
        # Thread.start() waits until the new thread has run: a millisecond of each task where all cores are busy.
        _thread.start_new_thread(self._run, ())
        return self

    def __exit__(self, *_: object) -> None:
        with self._ending:
            self._is_over.set()
            if self._ends_process:
                faulthandler.cancel_dump_traceback_later()
        for call, report in list(self._reported.items()):
            self._send_end(report, self._chain.stood_s(call))

    @property
    def _ends_process(self) -> bool:
        return self._host.owns_process and self._stall_limits.timeout_s > 0

    def _run(self) -> None:
        while not self._is_over.wait(self._stall_limits.look_every_s):
            try:
                self._look()
            except Exception:
                # The task changes what this thread reads; the next look sees a consistent state.
                continue

    def _wind_up(self) -> None:
        """Restart the interpreter's own watch, which needs no Python lock: native code may hold that lock."""
        if not self._ends_process:
            return
        with self._ending:
            # A finished task has cancelled it: it would end the process during a later task.
            if not self._is_over.is_set():
                faulthandler.dump_traceback_later(self._stall_limits.timeout_s + GRACE_S, exit=True, file=_STDERR)

    def _look(self) -> None:
        if is_debugging():
            return
        self._wind_up()
        for notice in self._chain.look():
            with self._ending:
                if self._is_over.is_set():
                    return
                if notice.is_over:
                    self._send_end(self._reported.pop(notice.call), notice.seconds)
                else:
                    self._reported[notice.call] = self._send_stall(notice)
        self._report()
        longest = self._chain.longest() if self._stall_limits.timeout_s > 0 else None
        if longest is not None and longest.seconds >= self._stall_limits.timeout_s:
            self._end(longest)

    def _send_stall(self, notice: Stall, *, is_ended: bool = False) -> StallReport:
        stack, work = stacks_of(self._task, self._is_of_task), self._work(notice.call)
        seconds, timeout_s = notice.seconds, self._stall_limits.timeout_s
        report = StallReport(work, seconds, stack, False, is_ended, timeout_s, notice.emitted)
        self._send(report)
        return report

    def _send_end(self, report: StallReport, seconds: float) -> None:
        self._send(structs.replace(report, seconds=seconds, is_over=True, stack=""))

    def _is_of_task(self, thread: threading.Thread) -> bool:
        return thread.ident not in self._threads_before and thread.ident != threading.get_ident()

    def _end(self, notice: Stall) -> None:
        with self._ending:
            if self._is_over.is_set():
                return
            self._send_stall(notice, is_ended=True)
            self._reported.clear()
            if self._host.owns_process:
                with contextlib.suppress(Exception):
                    sys.stderr.flush()
                os._exit(TIMEOUT_CODE)
            # In a shared process the task is asked to end; it does so when it next runs Python code.
            self._is_over.set()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._task), ctypes.py_object(TaskTimeoutError))


_DEBUGGING = threading.Event()
"""Whether a debugger waits for commands."""


class NoTerminalError(Exception):
    """breakpoint() was called in a process without a terminal."""

    def __str__(self) -> str:
        return "breakpoint() finds no terminal in a task of its own process; use: dagflow run APP --local --workers 1"


def is_debugging() -> bool:
    """Whether a debugger waits for commands: then nothing counts as late, and nothing else should use the terminal."""
    return _DEBUGGING.is_set()


@contextlib.contextmanager
def breakpoints(*, is_shared: bool) -> Iterator[None]:
    """Adapt breakpoint() to the process of a task within the block.

    A debugger that the environment or another program, such as a notebook, has chosen stays in place.
    """
    is_chosen = sys.breakpointhook is not sys.__breakpointhook__ or "PYTHONBREAKPOINT" in os.environ
    if is_chosen:
        yield
        return
    sys.breakpointhook = _debug if is_shared else _refuse
    try:
        yield
    finally:
        sys.breakpointhook = sys.__breakpointhook__


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NoTerminalError


def _debug(*_: Any, **__: Any) -> None:
    # Imported late: only debugging needs it.
    import pdb

    class TerminalDebugger(pdb.Pdb):
        """Uses the terminal, although operators' output goes elsewhere."""

        def interaction(self, *arguments: Any, **options: Any) -> None:
            with contextlib.redirect_stdout(sys.__stdout__):
                self.stdout = sys.stdout
                _DEBUGGING.set()
                try:
                    super().interaction(*arguments, **options)
                finally:
                    _DEBUGGING.clear()
            if self.quitting:
                raise RunStoppedError("the debugger was left")

    TerminalDebugger().set_trace(sys._getframe(1))


REPORT_EVERY_S = 0.2
"""A task reports at most this often, and once at its end."""

MAX_MESSAGE = 60_000
"""Bytes of a message: a datagram can hold a little more."""


class TaskActivity(msgspec.Struct, frozen=True, array_like=True):
    """What a task is doing: `what` is a method and its input as the end of a sentence, attempt Spark's number or -1."""

    window_id: int
    stage: int
    partition: int
    operator: str = ""
    what: str = ""
    attempt: int = -1

    def __str__(self) -> str:
        operator = f", operator '{own_name(self.operator)}'" if self.operator else ", stage" + f" {self.stage}"
        return f"window {self.window_id}{operator} partition {self.partition}"


class TaskReport(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """The progress of one task of a window.

    Every report has the whole count, so reports may be lost, and the second attempt of a task replaces the first.
    """

    work: TaskActivity
    bytes_read: int
    is_done: bool = False
    operators: dict[str, OperatorReport] = {}


class StallReport(msgspec.Struct, frozen=True, array_like=True, tag="stall"):
    """A task that is stalled, or that makes progress again.

    Attributes:
        is_ended: Whether it is ended now because of it.
        timeout_s: Seconds after which it is ended, 0 for never.
        emitted: How much its operator has emitted during the stall, without taking input.
    """

    work: TaskActivity
    seconds: float
    stack: str = ""
    is_over: bool = False
    is_ended: bool = False
    timeout_s: float = 0.0
    emitted: int = 0

    @property
    def line(self) -> str:
        place = f" in {self.work.what}" if self.work.what else ""
        emitted = f"; it takes no input, and has emitted {self.emitted} records meanwhile" if self.emitted else ""
        return f"{self.work}: no progress for {self.seconds:.0f} s{place}{emitted}"

    def __str__(self) -> str:
        if self.is_over:
            return f"{self.work}: resumed after {self.seconds:.0f} s"
        text = self.line
        if self.is_ended:
            return f"{text}; the task is ended, and counts as a failed attempt (task_timeout_millis)"
        hint = "the run waits for it; attributes: {task_timeout_millis: N} would end such a task"
        if self.timeout_s:
            hint = f"task_timeout_millis ends it after {self.timeout_s:g} s"
        return f"{text}\n    {hint}" + (f"\n{self.stack}" if self.stack else "")


class OutputReport(msgspec.Struct, frozen=True, array_like=True, tag="output"):
    """Lines that an operator has printed."""

    work: TaskActivity
    text: str
    is_last: bool = False


TaskMessage = TaskReport | StallReport | OutputReport
"""A message of a task to the driver while it runs."""

_DECODER = msgspec.msgpack.Decoder(TaskMessage)


@frozen
class ProgressAddress:
    """The UDP address of the driver, as executors reach it; the token distinguishes the messages of this run."""

    host: str
    port: int
    token: bytes

    def message(self, report: TaskMessage) -> bytes:
        return self.token + msgspec.msgpack.encode(report)

    def report(self, message: bytes) -> TaskMessage | None:
        """The report in a message; None for a message of another run."""
        if not message.startswith(self.token):
            return None
        try:
            decoded: TaskMessage = _DECODER.decode(memoryview(message)[len(self.token) :])
        except msgspec.DecodeError:
            return None
        return decoded


class TaskProgress(Progress):
    """Counts what a task reads, and reports it from time to time by send, which must neither wait nor raise."""

    def __init__(
        self,
        send: Callable[[TaskReport], None],
        work: Callable[[], TaskActivity],
        now: Callable[[], float] = time.monotonic,
        operators: Callable[[], dict[str, OperatorReport]] = dict,
    ) -> None:
        super().__init__()
        self._send = send
        self._work = work
        self._operators = operators
        self._now = now
        self._due = now() + REPORT_EVERY_S

    def add(self, bytes_read: int) -> None:
        """Count bytes, and send a report if the last one is old."""
        self.bytes_read += bytes_read
        if self._now() >= self._due:
            self.report()

    def report(self, *, is_done: bool = False) -> None:
        self._due = self._now() + REPORT_EVERY_S
        self._send(TaskReport(self._work(), self.bytes_read, is_done, self._operators()))


class ProgressSender:
    """Sends reports to the driver in datagrams, which need no connection and never wait; a context manager."""

    def __init__(self, address: ProgressAddress | None, attempt: int = -1) -> None:
        self._address = address
        self._attempt = attempt
        self._socket: socket.socket | None = None

    def send(self, report: TaskMessage) -> None:
        if self._address is None:
            return
        # A host without this network has no progress to show, and loses nothing else.
        with contextlib.suppress(OSError):
            if self._socket is None:
                self._socket = _socket_to(self._address)
            report = structs.replace(report, work=structs.replace(report.work, attempt=self._attempt))
            self._socket.send(self._address.message(report))

    def __enter__(self) -> ProgressSender:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()


def _socket_to(address: ProgressAddress) -> socket.socket:
    """A socket that sends to the driver; if the driver's host is unknown, messages are dropped.

    The host's name is looked up once, not for every datagram: a lookup is a request, and may wait for its answer.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.setblocking(False)
    with contextlib.suppress(OSError):
        sender.connect(socket.getaddrinfo(address.host, address.port, family, socket.SOCK_DGRAM)[0][4])
    return sender
