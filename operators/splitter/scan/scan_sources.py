"""The sources of a splitter's files: one scan, or repeated scans in a thread beside the windows."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

from dagflow.errors import TransientStorageError
from dagflow.metrics import names
from operators.splitter.scan.listed_files import ListedFiles

logger = logging.getLogger(__name__)

MAX_QUEUED_FILES = 10_000
"""Number of waiting files at which a scan pauses, so that memory does not grow with the number of new files."""


class SingleScan:
    """The files of one scan, which continues as they are taken."""

    def __init__(self, files: Generator[ListedFiles]) -> None:
        self._files = files
        self._head: ListedFiles | None = None

    def peek(self) -> ListedFiles | None:
        if self._head is None:
            self._head = next(self._files, None)
        return self._head

    def pop(self, count: int) -> None:
        head, self._head = self._head, None
        if head is not None and count < len(head):
            self._head = head.slice(count, len(head))

    @property
    def queued_bytes(self) -> int:
        return 0 if self._head is None else self._head.unread_bytes

    def stop(self) -> None:
        self._files.close()


def watched(
    scan: Callable[[], Iterator[ListedFiles]], watch: Callable[[str], contextlib.AbstractContextManager[None]]
) -> Iterator[ListedFiles]:
    """The steps of a scan, each of them found under the stall watch; see ControlServices.watched."""
    steps = scan()
    while True:
        with watch("a scan"):
            step = next(steps, None)
        if step is None:
            return
        yield step


class TimeBasedDirectoryScanner:
    """Scans in a thread of its own, once in each interval and whenever a scan is requested.

    Guarantee: a scan begins only when all files of the scan before have been taken, so that they are compared
    with an index that has all of them.

    Args:
        interval_millis: From the end of a scan to the start of the next.
    """

    def __init__(
        self, scan: Callable[[], Iterator[ListedFiles]], interval_millis: int, clock: Clock, counters: Counter[str]
    ) -> None:
        self._scan = scan
        self._interval_s = interval_millis / 1000
        self._clock = clock
        self._counters = counters
        self._changed = threading.Condition()
        self._queue: deque[ListedFiles] = deque()
        self._queued_files = self._queued_bytes = 0
        self._error: BaseException | None = None
        self._stopping = False
        self._is_requested = False
        self._scans = 0
        self._due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="directory-scanner", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def peek(self) -> ListedFiles | None:
        with self._changed:
            if self._queue:
                return self._queue[0]
            if self._error is not None:
                raise self._error
            return None

    def pop(self, count: int) -> None:
        with self._changed:
            head = self._queue.popleft()
            taken = head.slice(0, count)
            if count < len(head):
                self._queue.appendleft(head.slice(count, len(head)))
            self._queued_files -= len(taken)
            self._queued_bytes -= taken.unread_bytes
            self._changed.notify_all()

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def scan_now(self) -> None:
        with self._changed:
            self._is_requested = True
            self._changed.notify_all()

    def wait_for_scans(self, count: int, timeout_s: float) -> bool:
        """Wait until that many scans are complete, or one has failed; False after timeout_s."""
        with self._changed:
            return self._changed.wait_for(lambda: self._scans >= count or self._error is not None, timeout_s)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._scan_once()
                self._wait_for_turn()
        except BaseException as error:  # raised in the driver's thread, by peek
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _scan_once(self) -> None:
        # A request during a scan asks for another one: this scan may have passed the new files.
        with self._changed:
            self._is_requested = False
        try:
            for files in self._scan():
                if not self._offer(files):
                    return
        except TransientStorageError as error:
            self._counters[names.FAILED_SCANS] += 1
            logger.warning("scan failed, will scan again error=%s", error)
        with self._changed:
            # Together, so that the interval begins before the result of the scan is visible.
            self._scans += 1
            self._due_s = self._clock.elapsed_s() + self._interval_s
            self._changed.notify_all()

    def _offer(self, files: ListedFiles) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._queued_files < MAX_QUEUED_FILES)
            if not self._stopping:
                self._queue.append(files)
                self._queued_files += len(files)
                self._queued_bytes += files.unread_bytes
            return not self._stopping

    def _wait_for_turn(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._queue)
            while not self._stopping and not self._is_requested and self._clock.elapsed_s() < self._due_s:
                self._clock.wait_until(self._changed, self._due_s)


class Clock(Protocol):
    def now_millis(self) -> int:
        """Milliseconds since 1970, as files are dated; may jump."""

    def elapsed_s(self) -> float:
        """Seconds since a fixed moment; never goes back."""

    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        """Wait until the condition, which the caller holds, is notified or elapsed_s() has reached the deadline."""


class SystemClock:
    def now_millis(self) -> int:
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        return time.monotonic()

    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        condition.wait(max(0.0, deadline_s - self.elapsed_s()))
