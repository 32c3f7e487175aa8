"""Progress of the tasks of a window, sent to the driver while they run.

For display only: a lost message changes a figure on the screen for a moment, and nothing else. What a window has read
is counted anew, exactly, from the results of its tasks.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from dagflow.api.context import Progress

REPORT_EVERY_S = 0.2
"""A task reports at most this often, and once at its end."""

_MESSAGE = struct.Struct("!8sqiiq?")


@dataclass(frozen=True, slots=True)
class TaskReport:
    """How far one task of a window is.

    Every report repeats the whole count, so reports may be lost, and the second attempt of a task takes the place
    of the first one.

    Attributes:
        window_id: The window.
        stage: Index of the stage.
        partition: The partition within the stage.
        bytes_read: Bytes that the task has read so far.
        is_done: Whether the task has ended.
    """

    window_id: int
    stage: int
    partition: int
    bytes_read: int
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class ProgressAddress:
    """Where tasks in other processes send their reports.

    Attributes:
        host: Host of the driver, as executors reach it.
        port: UDP port.
        token: Tells the messages of this run from all others; 8 bytes.
    """

    host: str
    port: int
    token: bytes

    def message(self, report: TaskReport) -> bytes:
        """A report as it is sent."""
        return _MESSAGE.pack(
            self.token, report.window_id, report.stage, report.partition, report.bytes_read, report.is_done
        )

    def report(self, message: bytes) -> TaskReport | None:
        """The report in a message; None for a message that is not of this run."""
        if len(message) != _MESSAGE.size or not message.startswith(self.token):
            return None
        return TaskReport(*_MESSAGE.unpack(message)[1:])


class TaskProgress(Progress):
    """Counts what a task reads, and reports it from time to time.

    Args:
        send: Takes the reports; must neither wait nor raise.
        window_id: The window.
        stage: Index of the stage.
        partition: The partition within the stage.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        send: Callable[[TaskReport], None],
        window_id: int,
        stage: int,
        partition: int,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._send = send
        self._task = window_id, stage, partition
        self._now = now
        self._due = now() + REPORT_EVERY_S

    def add(self, bytes_read: int) -> None:
        """Count bytes, and report where the last report is old."""
        self.bytes_read += bytes_read
        now = self._now()
        if now >= self._due:
            self._due = now + REPORT_EVERY_S
            self._send(TaskReport(*self._task, self.bytes_read))

    def end(self) -> None:
        """Report that the task has ended."""
        self._send(TaskReport(*self._task, self.bytes_read, is_done=True))


class ProgressSender:
    """Sends reports to the driver in datagrams, which need no connection and never wait; use it as a context manager.

    Args:
        address: Where to; None sends nothing.
    """

    def __init__(self, address: ProgressAddress | None) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def send(self, report: TaskReport) -> None:
        """Send a report, or lose it."""
        if self._address is None:
            return
        # A host without this network has no progress to show, and loses nothing else.
        with contextlib.suppress(OSError):
            if self._socket is None:
                family = socket.AF_INET6 if ":" in self._address.host else socket.AF_INET
                self._socket = socket.socket(family, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto(self._address.message(report), (self._address.host, self._address.port))

    def __enter__(self) -> ProgressSender:
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
