"""Progress of the tasks of a window, sent to the driver while they run.

For display only: a lost message changes a figure on the screen for a moment, and nothing else. The bytes that a window
has read are counted again, exactly, from the results of its tasks.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import msgspec
from msgspec import structs

from dagflow.api.context import Progress
from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.metrics.counters import OperatorReport

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
        stack: The stacks of its threads, as Python prints them.
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
