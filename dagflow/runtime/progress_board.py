"""Gathers what the tasks of windows report while they run."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from dataclasses import dataclass

from dagflow.execution.task_progress import ProgressAddress, TaskReport

_WAKE_EVERY_S = 0.5
"""How often the receiving thread looks whether it is to end."""


@dataclass(frozen=True, slots=True)
class WindowProgress:
    """How far the tasks of a running window are, as far as is known.

    Attributes:
        bytes_read: Bytes that its tasks have read.
        tasks_done: Tasks that have ended.
    """

    bytes_read: int = 0
    tasks_done: int = 0


class ProgressBoard:
    """Holds the newest report of each task of the windows that run. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[int, dict[tuple[int, int], TaskReport]] = {}

    def open(self, window_id: int) -> None:
        """Take reports of a window from now on."""
        with self._lock:
            self._windows[window_id] = {}

    def close(self, window_id: int) -> None:
        """Forget a window, and ignore tasks of it that are still at work somewhere."""
        with self._lock:
            self._windows.pop(window_id, None)

    def record(self, report: TaskReport) -> None:
        """Take a report; of several attempts of a task the one that has read most counts."""
        with self._lock:
            tasks = self._windows.get(report.window_id)
            if tasks is None:
                return
            known = tasks.get((report.stage, report.partition))
            if known is None or (report.is_done, report.bytes_read) >= (known.is_done, known.bytes_read):
                tasks[report.stage, report.partition] = report

    def progress(self, window_id: int) -> WindowProgress:
        """How far a window is; nothing is known of a window that does not run."""
        with self._lock:
            reports = list(self._windows.get(window_id, {}).values())
        return WindowProgress(sum(report.bytes_read for report in reports), sum(report.is_done for report in reports))


class ProgressReceiver:
    """Receives the reports of tasks in other processes, on a thread of its own.

    Args:
        board: Takes the reports.
        host: The address of this host to listen on: loopback where all tasks run on this host.

    Attributes:
        address: Where tasks send their reports; None where nothing can be received.
    """

    def __init__(self, board: ProgressBoard, host: str) -> None:
        self._board = board
        self.address: ProgressAddress | None = None
        self._is_closed = threading.Event()
        # Without a socket the run goes on, and shows progress window by window.
        with contextlib.suppress(OSError):
            receiving = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
            try:
                receiving.bind((host, 0))
            except OSError:
                receiving.close()
                raise
            receiving.settimeout(_WAKE_EVERY_S)
            self.address = ProgressAddress(host, receiving.getsockname()[1], os.urandom(8))
            threading.Thread(target=self._receive, args=(receiving, self.address), name="progress", daemon=True).start()

    def _receive(self, receiving: socket.socket, address: ProgressAddress) -> None:
        with receiving:
            while not self._is_closed.is_set():
                try:
                    message = receiving.recv(256)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if (report := address.report(message)) is not None:
                    self._board.record(report)

    def close(self) -> None:
        """End the thread, soon."""
        self._is_closed.set()
