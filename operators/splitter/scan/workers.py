"""Processes that list and examine for a scan, so that it is not bound to one core."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from operators.splitter.scan import worker_program

AFTER_FILES = 20_000
"""So many files of a scan are examined in its own process: for fewer the helpers are not worth their start."""

HELPERS = 3
"""On two cores the third has work at hand whenever the scan is busy."""

_SET_PIPE_BYTES = getattr(fcntl, "F_SETPIPE_SZ", None)
_PIPE_BYTES = 1 << 20
"""An answer fits, so that a helper need not wait until somebody reads."""


class Helper:
    """A process that runs worker_program.

    Args:
        process: It.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None and process.stdout is not None
        self._requests, self._answers = process.stdin, process.stdout
        if _SET_PIPE_BYTES is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._answers, _SET_PIPE_BYTES, _PIPE_BYTES)

    @classmethod
    def started(cls) -> Helper | None:
        """A new one; None where that is refused."""
        # Without the packages of this Python, which it does not need, it starts in a fifth of the time.
        command = [sys.executable or "", "-I", "-S", str(Path(worker_program.__file__))]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        try:
            return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere))
        except OSError:
            return None

    def ask(self, request: bytes) -> bool:
        """Send a request; False where it is dead. The answer must be taken before the next request."""
        try:
            self._requests.write(worker_program.framed(request))
            self._requests.flush()
        except OSError:
            return False
        return True

    def fileno(self) -> int:
        """What is readable when the answer has begun to come, or the process is dead."""
        return self._answers.fileno()

    def answer(self) -> bytes | None:
        """What it says to the request; None if it died."""
        return worker_program.received(self._answers)

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        with contextlib.suppress(OSError):
            self._requests.close()
        self._answers.close()
        self.process.wait()


class Helpers:
    """The helpers of one scan, which begin with its larger part.

    Args:
        after_files: How many files are examined before helpers are started.
        count: How many are started.

    Attributes:
        most: How many are started.
    """

    def __init__(self, after_files: int = AFTER_FILES, count: int | None = None) -> None:
        self._here = after_files
        self.most = (HELPERS if (os.cpu_count() or 1) > 1 else 0) if count is None else count
        self._idle: list[Helper] | None = None
        self._started: list[Helper] = []

    @property
    def started(self) -> Sequence[Helper]:
        """Those that were started."""
        return tuple(self._started)

    @property
    def has_idle(self) -> bool:
        """Whether somebody has nothing to do."""
        return bool(self._idle)

    @property
    def may_be_asked(self) -> bool:
        """Whether it is time for helpers, and as far as is known somebody is free."""
        return self._here <= 0 and (self._idle is None or self.has_idle)

    def examined_here(self, files: int) -> bool:
        """Whether it is too early for helpers: the scan is to examine the next files itself, so many."""
        if self._here <= 0:
            return False
        self._here -= files
        return True

    def ask(self, request: bytes) -> Helper | None:
        """Somebody who has got the request, and is to be given to answer() later; None where nobody is free."""
        if self._here > 0:
            return None
        if self._idle is None:
            self._started = [helper for _ in range(self.most) if (helper := Helper.started()) is not None]
            self._idle = list(self._started)
        # One request at a time: two that both write, and neither reads, would wait for each other for ever.
        while self._idle:
            helper = self._idle.pop(0)
            if helper.ask(request):
                return helper
        return None

    @staticmethod
    def done(asked: Iterable[Helper], *, waits: bool) -> list[Helper]:
        """Those of whom an answer has begun to come; at least one if waits says so."""
        # Not select(), which knows no descriptor above 1023.
        poll = select.poll()
        by_descriptor = {helper.fileno(): helper for helper in asked}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        return [by_descriptor[descriptor] for descriptor, _ in poll.poll(None if waits else 0)]

    def answer(self, helper: Helper) -> bytes | None:
        """What somebody says to the request, waiting for it; None if it died."""
        if (said := helper.answer()) is not None and self._idle is not None:
            self._idle.append(helper)
        return said

    def close(self) -> None:
        """End them."""
        for helper in self._started:
            helper.close()
