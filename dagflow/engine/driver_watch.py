"""Watches the driver: tells when a control operator, or a commit, stands still, for example on a store that is gone."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dagflow.execution.stalls import DEFAULT_LIMITS, StallLimits, StandstillDetector, stack_mark, stacks_of

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Work:
    """What one thread does."""

    what: Callable[[], str]
    thread: int
    detector: StandstillDetector
    told: str = ""


@dataclass(slots=True)
class DriverWatch:
    """Watches work of any thread of the driver; it stands still while the thread waits at one place.

    Use it as a context manager, which the watching thread ends with.

    Attributes:
        limits: How long work may stand still.
    """

    limits: StallLimits = DEFAULT_LIMITS
    _work: dict[int, _Work] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def doing(self, what: str | Callable[[], str]) -> Iterator[None]:
        """Watch what the calling thread does within the block.

        Args:
            what: What it does: the beginning of a sentence, or a function that gives it.
        """
        number = next(self._numbers)
        say = what if callable(what) else lambda: what
        work = _Work(say, threading.get_ident(), StandstillDetector(self.limits.warning_s))
        self._work[number] = work
        try:
            yield
        finally:
            del self._work[number]
            if work.told:
                self._tell_end(work)

    def stalls(self) -> list[str]:
        """The work that stands still and has been told: what it is and for how long, in words; any thread may call."""
        work = [each for each in list(self._work.values()) if each.told]
        return [_line(each.told, each.detector.stood_s) for each in work]

    def __enter__(self) -> DriverWatch:
        threading.Thread(target=self._run, name="driver-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self.limits.look_every_s):
            for work in list(self._work.values()):
                self._look(work)

    def _look(self, work: _Work) -> None:
        standstill = work.detector.look(stack_mark(work.thread))
        if standstill is None:
            return
        if standstill.is_over:
            self._tell_end(work)
        else:
            work.told = work.what()
            logger.warning("%s\n%s", _line(work.told, standstill.seconds), stacks_of(work.thread))

    def _tell_end(self, work: _Work) -> None:
        told, work.told = work.told, ""
        if told:
            logger.warning("%s: went on", told)


def _line(work: str, seconds: float) -> str:
    return f"{work}: no progress for {seconds:.0f} s"
