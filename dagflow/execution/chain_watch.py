"""Finds calls of a chain that take no input, and a chain that makes no progress outside of all calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dagflow.execution.chain import Chain
from dagflow.execution.failures import ActiveCall
from dagflow.execution.stalls import Stall, StallDetector


@dataclass(slots=True)
class Watched:
    """A watched call.

    Attributes:
        call: The call; None for the chain while no operator works.
        detector: Compares its marks, by a clock that runs while its operator works.
        emitted: How much its operator had emitted when it last made progress.
    """

    call: ActiveCall | None
    detector: StallDetector
    emitted: int
    _first_emitted: int
    _mark: Hashable = None

    def emitted_in_it(self, emitted: int) -> int:
        return emitted - self._first_emitted

    def look(self, mark: Hashable, emitted: int) -> Stall | None:
        if mark != self._mark:
            self._mark, self.emitted = mark, emitted
        return self.detector.look(mark)


@dataclass(frozen=True, slots=True)
class StallNotice:
    """A call that stalls, or that makes progress again; `emitted` counts what it has emitted during the stall."""

    watched: Watched
    stall: Stall
    emitted: int = 0

    @property
    def call(self) -> ActiveCall | None:
        return self.watched.call


class ChainWatch:
    """Compares the input that calls of operators have taken; used by one thread, beside the one that runs the chain.

    Time counts against the operator that works: a call that emits does not stall because an operator downstream
    is slow.

    Args:
        progress: Returns a mark of the operators' own progress reports: equal as long as they report nothing.
        warning_s: Seconds after which a stall is reported.
        now: A clock, in seconds, for the time when no operator works.
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

    def look(self) -> list[StallNotice]:
        """The notices that are due: each stall once, and its end once."""
        calls: list[ActiveCall | None] = [*self._chain.calls]
        if self._chain.active_call is None:
            calls.append(None)
        ended = [self._watched.pop(call) for call in [*self._watched] if call not in calls]
        notices = [_over(watched) for watched in ended if watched.detector.is_reported]
        for call in calls:
            watched, emitted = self._watched_of(call), self._emitted_by(call)
            stall = watched.look(self._mark_of(watched, emitted), emitted)
            if stall is not None:
                notices.append(StallNotice(watched, stall, emitted - watched.emitted))
        if any(notice.stall.is_over for notice in notices):
            # The end is reported for the task as a whole: calls that still stall are reported again.
            for watched in self._watched.values():
                watched.detector.is_reported = False
        return notices

    def longest(self) -> StallNotice | None:
        watched = max(self._watched.values(), key=lambda call: call.detector.stood_s, default=None)
        if watched is None:
            return None
        stall = Stall(watched.detector.stood_s, is_over=False)
        return StallNotice(watched, stall, self._emitted_by(watched.call) - watched.emitted)

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


def _over(watched: Watched) -> StallNotice:
    return StallNotice(watched, Stall(watched.detector.stood_s, is_over=True))
