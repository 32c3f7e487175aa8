"""Detects stalled work, and shows what its threads are doing."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import FrameType

from dagflow.errors import cut_text

LOOK_EVERY_S = 1.0
"""Seconds between checks of the work, at most; fewer where the warning time is short."""

MAX_FRAMES = 12
"""How many of the innermost frames of a thread are shown."""

MAX_STACK = 6000
"""Characters of all stacks of a stall, which are sent in one datagram."""


@dataclass(frozen=True, slots=True)
class StallLimits:
    """How long work may stall: it is reported after warning_s, and ended after timeout_s, which is 0 for never."""

    warning_s: float = 60.0
    timeout_s: float = 0.0

    @property
    def look_every_s(self) -> float:
        shortest = min(self.warning_s, self.timeout_s or self.warning_s)
        return min(LOOK_EVERY_S, shortest / 4)


DEFAULT_LIMITS = StallLimits()


@dataclass(frozen=True, slots=True)
class Stall:
    """A stall of some work, or its end."""

    seconds: float
    is_over: bool


_OWN_FRAMES = f"{os.sep}dagflow{os.sep}execution{os.sep}"
"""Part of the paths of frames that call operators: the frames after the last of them show what an operator does."""


class StallDetector:
    """Compares marks of the same work: equal marks mean that nothing has been done in between."""

    def __init__(self, warning_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.warning_s = warning_s
        self._now = now
        self._mark: Hashable = None
        self._since = now()
        self.is_reported = False

    @property
    def stood_s(self) -> float:
        return self._now() - self._since

    def look(self, mark: Hashable) -> Stall | None:
        """Compare the current mark of the work with the last one.

        Returns:
            A stall, once, and its end, once; None where there is nothing to report.
        """
        if mark != self._mark:
            over = Stall(self.stood_s, is_over=True) if self.is_reported else None
            self._mark, self._since, self.is_reported = mark, self._now(), False
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
    frames = traceback.extract_stack(frame)
    callers = [at for at, call in enumerate(frames) if _OWN_FRAMES in call.filename]
    inner = frames[callers[-1] + 1 :] if callers else frames
    return "".join(traceback.StackSummary.from_list((inner or frames)[-MAX_FRAMES:]).format())
