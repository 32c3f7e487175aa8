"""Reports a control operator or a commit that makes no progress, for example on a store that does not answer."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import field

from dagflow.execution.stalls import DEFAULT_LIMITS, StallDetector, StallLimits, stack_mark, stacks_of
from dagflow.frozen import mutable

logger = logging.getLogger(__name__)

LASTING_TIMES = 10
"""How many times later a call is reported that works on and on: it may scan any number of files."""


@mutable
class _Work:
    """What one thread does.

    Attributes:
        stands: Reports that the thread stays at one place in the code.
        lasts: Reports that the described call does not end, wherever its thread is.
    """

    what: Callable[[], str]
    mark: Callable[[], object]
    thread: int
    stands: StallDetector
    lasts: StallDetector
    reported: str = ""

    @property
    def line(self) -> str:
        detector = self.stands if self.stands.is_reported else self.lasts
        return f"{self.reported}: no progress for {detector.stood_s:.0f} s"


@mutable
class DriverWatch:
    """Watches work of any thread of the driver: whether the thread stays at one place, or in one call of an operator.

    Use it as a context manager; the watching thread ends with the block.
    """

    stall_limits: StallLimits = DEFAULT_LIMITS
    _work: dict[int, _Work] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def doing(self, what: str | Callable[[], str]) -> Iterator[None]:
        """Watch what the calling thread does within the block.

        Args:
            what: Description of the work: the beginning of a sentence, or a function that names the current call.
        """
        number = next(self._numbers)
        warning_s = self.stall_limits.warning_s
        stands, lasts = StallDetector(warning_s), StallDetector(LASTING_TIMES * warning_s)
        # A text does not show how far the work is: any object differs from all others.
        say, mark = (what, what) if callable(what) else (lambda: what, object)
        work = self._work[number] = _Work(say, mark, threading.get_ident(), stands, lasts)
        try:
            yield
        finally:
            del self._work[number]
            self._report_end(work)

    def stalls(self) -> list[str]:
        """The reported work that is stalled, in words; any thread may call."""
        return [work.line for work in list(self._work.values()) if work.reported]

    def __enter__(self) -> DriverWatch:
        threading.Thread(target=self._run, name="driver-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self.stall_limits.look_every_s):
            for work in list(self._work.values()):
                # The driver changes what this thread reads; the next look sees a consistent state.
                with contextlib.suppress(Exception):
                    self._look(work)

    def _look(self, work: _Work) -> None:
        found = [work.stands.look(stack_mark(work.thread)), work.lasts.look(work.mark())]
        if any(stall is not None and not stall.is_over for stall in found) and not work.reported:
            work.reported = work.what()
            logger.warning("%s\n%s", work.line, stacks_of(work.thread))
        elif not work.stands.is_reported and not work.lasts.is_reported:
            self._report_end(work)

    def _report_end(self, work: _Work) -> None:
        reported, work.reported = work.reported, ""
        if reported:
            logger.warning("%s: resumed", reported)
