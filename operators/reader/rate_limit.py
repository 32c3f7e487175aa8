"""Limits the bytes per second that a task reads: to its share of the operator's rate, see OperatorContext.share."""

from __future__ import annotations

import time
from collections.abc import Callable

from dagflow.storage.files import ReadableFile
from operators.reader.byte_source import MeasuredFile

PIECE_S = 0.1
"""Reads are cut into pieces that take this time, so that a store sees an even stream and no bursts.

Waits are cut into it as well, so that the stall watch of the task, which looks in between, sees progress.
"""


class RateLimiter:
    """Lets a read begin once the time has passed that all earlier bytes take at the rate.

    The time of a read, and of processing its bytes, counts as well, so that the limit costs nothing
    where a store, or an operator, is slower than the rate.

    step notes progress of the task: after each slice of a wait, and each read that gave bytes.
    """

    def __init__(
        self,
        bytes_per_s: float,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._now = now
        self._wait = wait
        self._step = step
        self._free_at = self._began_at = now()

    @property
    def piece_bytes(self) -> int:
        """The largest number of bytes that should be read at once."""
        return max(int(self._bytes_per_s * PIECE_S), 1)

    def begin(self) -> None:
        """Wait until another read may begin; called before each read, and at the end."""
        while (left_s := self._free_at - self._now()) > 0:
            self._wait(min(left_s, PIECE_S))
            self._step()
        self._began_at = self._now()

    def count(self, size_bytes: int) -> None:
        """Count bytes that were read since begin."""
        # Idle time is not saved up, because using it later would be a burst.
        self._free_at = max(self._free_at, self._began_at) + size_bytes / self._bytes_per_s
        if size_bytes:
            self._step()


class RateLimitedFile(MeasuredFile):
    """A file that is read at a limited rate."""

    def __init__(self, file: ReadableFile, limiter: RateLimiter) -> None:
        super().__init__(file)
        self._limiter = limiter

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
        done = 0
        while done < len(buffer):
            piece = buffer[done : done + self._limiter.piece_bytes]
            self._limiter.begin()
            count = super().read_into(offset + done, piece)
            self._limiter.count(count)
            done += count
            if count < len(piece):
                break
        return done
