"""Reports a control operator or a commit that makes no progress, for example on a store that does not answer."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dagflow.errors import own_name
from dagflow.execution.chain import Chain
from dagflow.execution.chain_watch import EmissionWatch, StallNotice
from dagflow.execution.failures import ActiveCall
from dagflow.execution.stalls import DEFAULT_LIMITS, StallDetector, StallLimits, stack_mark, stacks_of

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Work:
    """What one thread does."""

    what: Callable[[], str]
    thread: int
    detector: StallDetector
    reported: str = ""


@dataclass(slots=True)
class _Emitting:
    """A chain of operators, and the thread that runs it."""

    watch: EmissionWatch
    thread: int
    reported: dict[ActiveCall | None, StallNotice] = field(default_factory=dict)


@dataclass(slots=True)
class DriverWatch:
    """Watches work of any thread of the driver; it stalls while the thread stays at one place in the code.

    An operator in a watched chain also counts as stalled while it emits without end and takes no input.

    Use it as a context manager; the watching thread ends with the block.

    Attributes:
        stall_limits: How long work may stall.
    """

    stall_limits: StallLimits = DEFAULT_LIMITS
    _work: dict[int, _Work] = field(default_factory=dict)
    _chains: list[_Emitting] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _is_over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def doing(self, what: str | Callable[[], str]) -> Iterator[None]:
        """Watch what the calling thread does within the block.

        Args:
            what: Description of the work: the beginning of a sentence, or a function that gives it.
        """
        number = next(self._numbers)
        say = what if callable(what) else lambda: what
        work = _Work(say, threading.get_ident(), StallDetector(self.stall_limits.warning_s))
        self._work[number] = work
        try:
            yield
        finally:
            del self._work[number]
            if work.reported:
                self._report_end(work)

    def watch_chain(self, chain: Chain) -> None:
        """Watch what the operators of a chain emit; called by the thread that will run it."""
        self._chains.append(_Emitting(EmissionWatch(chain, self.stall_limits.warning_s), threading.get_ident()))

    def stalls(self) -> list[str]:
        """The reported work that is stalled: its description and for how long, in words; any thread may call."""
        work = [each for each in list(self._work.values()) if each.reported]
        emitting = [found for chain in self._chains for found in list(chain.reported.values())]
        return [
            *(_line(each.reported, each.detector.stood_s) for each in work),
            *(_line(_place(found), found.watched.detector.stood_s) for found in emitting),
        ]

    def __enter__(self) -> DriverWatch:
        threading.Thread(target=self._run, name="driver-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for chain in self._chains:
            for call in list(chain.reported):
                self._report_chain_end(chain, call)

    def _run(self) -> None:
        while not self._is_over.wait(self.stall_limits.look_every_s):
            for work in list(self._work.values()):
                self._look(work)
            for chain in self._chains:
                # The driver changes what this thread reads; the next look sees a consistent state.
                with contextlib.suppress(Exception):
                    self._look_at_chain(chain)

    def _look(self, work: _Work) -> None:
        stall = work.detector.look(stack_mark(work.thread))
        if stall is None:
            return
        if stall.is_over:
            self._report_end(work)
        else:
            work.reported = work.what()
            logger.warning("%s\n%s", _line(work.reported, stall.seconds), stacks_of(work.thread))

    def _look_at_chain(self, chain: _Emitting) -> None:
        if any(work.reported and work.thread == chain.thread for work in list(self._work.values())):
            return  # its waiting has been reported
        for found in chain.watch.look():
            if not found.stall.is_over:
                chain.reported[found.call] = found
                line = _line(_place(found), found.stall.seconds)
                emitted = f"it takes no input, and has emitted {found.emitted} tuples meanwhile"
                logger.warning("%s; %s\n%s", line, emitted, stacks_of(chain.thread))
            else:
                self._report_chain_end(chain, found.call)

    def _report_chain_end(self, chain: _Emitting, call: ActiveCall | None) -> None:
        if (reported := chain.reported.pop(call, None)) is not None:
            logger.warning("%s: resumed", _place(reported))

    def _report_end(self, work: _Work) -> None:
        reported, work.reported = work.reported, ""
        if reported:
            logger.warning("%s: resumed", reported)


def _place(found: StallNotice) -> str:
    return f"operator '{own_name(found.call.operator)}' in {found.call}" if found.call is not None else "the driver"


def _line(work: str, seconds: float) -> str:
    return f"{work}: no progress for {seconds:.0f} s"
