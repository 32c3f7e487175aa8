"""Detects stalled work, and shows what its threads are doing."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from dagflow import errors
from dagflow.errors import cut_text
from dagflow.execution.chain import Chain
from dagflow.execution.failures import ActiveCall
from dagflow.frozen import frozen, mutable

LOOK_EVERY_S = 1.0
"""Seconds between checks of the work, at most; fewer where the warning time is short."""

MAX_FRAMES = 12
"""How many of the innermost frames of a thread are shown."""

MAX_STACK = 6000
"""Characters of all stacks of a stall, which are sent in one datagram."""


@frozen
class StallLimits:
    """How long work may stall: it is reported after warning_s, and ended after timeout_s, which is 0 for never."""

    warning_s: float = 60.0
    timeout_s: float = 0.0

    @property
    def look_every_s(self) -> float:
        shortest = min(self.warning_s, self.timeout_s or self.warning_s)
        return min(LOOK_EVERY_S, shortest / 4)


DEFAULT_LIMITS = StallLimits()


@frozen
class Stall:
    """A stall of some work, or its end.

    Attributes:
        call: The call that stalls; None for work outside of all calls.
        emitted: How much its operator has emitted during the stall, without taking input.
    """

    seconds: float
    is_over: bool
    call: ActiveCall | None = None
    emitted: int = 0


_PACKAGE = f"{Path(errors.__file__).parent}{os.sep}"
_CALLS_OPERATORS = f"{_PACKAGE}execution{os.sep}"
"""How the paths of frames begin that are dagflow's, and that call operators."""


class StallDetector:
    """Compares marks of the same work: equal marks mean that nothing has been done in between."""

    def __init__(self, warning_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.warning_s = warning_s
        self._now = now
        self.mark: Hashable = None
        self._since = now()
        self.is_reported = False

    @property
    def stood_s(self) -> float:
        return self._now() - self._since

    def look(self, mark: Hashable) -> Stall | None:
        """Compare the current mark of the work with the last one; returns a stall once, and its end once."""
        if mark != self.mark:
            over = Stall(self.stood_s, is_over=True) if self.is_reported else None
            self.mark, self._since, self.is_reported = mark, self._now(), False
            return over
        if self.is_reported or self.stood_s < self.warning_s:
            return None
        self.is_reported = True
        return Stall(self.stood_s, is_over=False)


def stack_mark(thread_id: int) -> Hashable:
    """A mark of a thread's position in the code: equal as long as it waits at one place."""
    frame, mark = sys._current_frames().get(thread_id), []
    while frame is not None:
        mark.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return tuple(mark)


def stacks_of(first: int, others: Callable[[threading.Thread], bool] = lambda _: False) -> str:
    """The stacks of threads, as Python prints them: the innermost frames, the newest last."""
    frames = sys._current_frames()
    parts = [_stack(frames[first])] if first in frames else []
    for thread in threading.enumerate():
        if thread.ident in frames and thread.ident != first and others(thread):
            parts.append(f"  thread {thread.name}:\n{_stack(frames[thread.ident])}")
    return cut_text("".join(parts), MAX_STACK).rstrip("\n")


def _stack(frame: FrameType) -> str:
    frames = operators_frames(traceback.extract_stack(frame))
    return "".join(traceback.StackSummary.from_list(frames[-MAX_FRAMES:]).format())


def operators_frames(frames: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames that show what an operator does: from its own on, also where it has called dagflow; or all."""
    called = itertools.dropwhile(lambda frame: not frame.filename.startswith(_CALLS_OPERATORS), frames)
    inner = list(itertools.dropwhile(lambda frame: frame.filename.startswith(_PACKAGE), called))
    return inner or list(frames)


@mutable
class Watched:
    """A watched call.

    Attributes:
        detector: Compares its marks, by a clock that runs while its operator works.
        emitted: How much its operator had emitted when it last made progress.
    """

    call: ActiveCall | None
    detector: StallDetector
    emitted: int
    _first_emitted: int

    def emitted_in_it(self, emitted: int) -> int:
        return emitted - self._first_emitted

    def look(self, mark: Hashable, emitted: int) -> Stall | None:
        if mark != self.detector.mark:
            self.emitted = emitted
        return self.detector.look(mark)


class ChainWatch:
    """Compares the input that calls of operators have taken; used by one thread, beside the one that runs the chain.

    Time counts against the operator that works: a call that emits does not stall because an operator downstream
    is slow.

    Args:
        progress: Returns a mark of the operators' own progress reports: equal as long as they report nothing.
    """

    def __init__(
        self,
        chain: Chain,
        progress: Callable[[], Hashable],
        warning_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._chain = chain
        self._progress = progress
        self._warning_s = warning_s
        self._now = now
        self._watched: dict[ActiveCall | None, Watched] = {}

    def look(self) -> list[Stall]:
        """The notices that are due: each stall once, and its end once."""
        calls: list[ActiveCall | None] = [*self._chain.calls]
        if self._chain.active_call is None:
            calls.append(None)
        ended = [self._watched.pop(call) for call in [*self._watched] if call not in calls]
        notices = [
            Stall(watched.detector.stood_s, is_over=True, call=watched.call)
            for watched in ended
            if watched.detector.is_reported
        ]
        for call in calls:
            watched, emitted = self._watched_of(call), self._emitted_by(call)
            stall = watched.look(self._mark_of(watched, emitted), emitted)
            if stall is not None:
                notices.append(replace(stall, call=call, emitted=emitted - watched.emitted))
        if any(notice.is_over for notice in notices):
            # The end is reported for the task as a whole: calls that still stall are reported again.
            for watched in self._watched.values():
                watched.detector.is_reported = False
        return notices

    def stood_s(self, call: ActiveCall | None) -> float:
        return self._watched[call].detector.stood_s if call in self._watched else 0.0

    def longest(self) -> Stall | None:
        watched = max(self._watched.values(), key=lambda call: call.detector.stood_s, default=None)
        if watched is None:
            return None
        emitted = self._emitted_by(watched.call) - watched.emitted
        return Stall(watched.detector.stood_s, is_over=False, call=watched.call, emitted=emitted)

    def _watched_of(self, call: ActiveCall | None) -> Watched:
        if call not in self._watched:
            operator = None if call is None else call.operator
            now = self._now if operator is None else lambda: self._chain.clock.worked_s(operator)
            emitted = self._emitted_by(call)
            self._watched[call] = Watched(call, StallDetector(self._warning_s, now), emitted, emitted)
        return self._watched[call]

    def _emitted_by(self, call: ActiveCall | None) -> int:
        return 0 if call is None else self._chain.emitted_by(call.operator)

    def _mark_of(self, watched: Watched, emitted: int) -> Hashable:
        if watched.call is None:
            return self._chain.mark(), self._progress()
        return self._chain.mark_of(watched.call, watched.emitted_in_it(emitted)), self._progress()
