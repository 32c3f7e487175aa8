"""Scanning again and again beside the windows."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator

from dagflow.errors import TransientStorageError
from dagflow.metrics import names
from operators.splitter.change_detection import Candidate
from operators.splitter.clock import Clock

logger = logging.getLogger(__name__)

QUEUED_CANDIDATES = 10_000  # a scan pauses when this many wait, so that memory does not grow with what is new


class TimeBasedDirectoryScanner:
    """Scans in a thread of its own, once in each interval and whenever it is asked to.

    Guarantee: a scan begins only when every candidate of the scan before has been taken, so that each is
    compared with an index that knows all of them.

    Args:
        scan: Makes one scan.
        interval_millis: From the end of a scan to the begin of the next.
        clock: The time.
        counters: Where failed scans are counted.
    """

    def __init__(
        self, scan: Callable[[], Iterator[Candidate]], interval_millis: int, clock: Clock, counters: Counter[str]
    ) -> None:
        self._scan = scan
        self._interval_s = interval_millis / 1000
        self._clock = clock
        self._counters = counters
        self._changed = threading.Condition()
        self._queue: deque[Candidate] = deque()
        self._found_bytes = 0
        self._error: BaseException | None = None
        self._stopping = False
        self._asked = False
        self._scans = 0
        self._thread = threading.Thread(target=self._run, name="directory-scanner", daemon=True)

    def start(self) -> None:
        """Begin with a first scan at once."""
        self._thread.start()

    def peek(self) -> Candidate | None:
        """The next candidate, or None where there is none for now.

        Raises:
            DagflowError: The scan failed.
        """
        with self._changed:
            if self._queue:
                return self._queue[0]
            if self._error is not None:
                raise self._error
            return None

    @property
    def found_bytes(self) -> int:
        """Bytes in the candidates that wait."""
        return self._found_bytes

    def pop(self, _: int = 1) -> None:
        """Take the candidate that peek gave; the index knows it now."""
        with self._changed:
            self._found_bytes -= self._queue.popleft().found_bytes
            self._changed.notify_all()

    def scan_now(self) -> None:
        """Ask for a scan without waiting for the interval to pass."""
        with self._changed:
            self._asked = True
            self._changed.notify_all()

    def wait_for_scans(self, count: int, timeout_s: float) -> bool:
        """Wait until that many scans are complete, or one has failed; False where it takes too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._scans >= count or self._error is not None, timeout_s)

    def stop(self) -> None:
        """End the thread; what waits will be found again."""
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
        # Asked while a scan is under way means another scan: this one may have passed what is new.
        with self._changed:
            self._asked = False
        try:
            for candidate in self._scan():
                if not self._offer(candidate):
                    return
        except TransientStorageError as error:
            self._counters[names.FAILED_SCANS] += 1
            logger.warning("scan failed, will scan again error=%s", error)
        with self._changed:
            self._scans += 1
            self._changed.notify_all()

    def _offer(self, candidate: Candidate) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or len(self._queue) < QUEUED_CANDIDATES)
            if not self._stopping:
                self._queue.append(candidate)
                self._found_bytes += candidate.found_bytes
            return not self._stopping

    def _wait_for_turn(self) -> None:
        due_s = self._clock.elapsed_s() + self._interval_s
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or not self._queue)
            while not self._stopping and not self._asked and self._clock.elapsed_s() < due_s:
                self._clock.wait_until(self._changed, due_s)
