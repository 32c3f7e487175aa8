"""Files that a scan leaves for later scans, and how long."""

from __future__ import annotations

from collections import Counter

from operators.splitter.changes.renames.verdicts import Suspect
from operators.splitter.scan.clock import Clock
from operators.splitter.scan.listed_stats import ListedStat

COPY_GRACE_S = 1.0
"""Seconds for which a copy of a log beside it must stay unchanged to be a file of its own, not a rotation under way."""

INCOMPLETE_GRACE_S = 10.0
"""The same for a copy that is shorter than the log, since a compressing program may write slowly."""

MAX_REPEATS = 3
"""How many times a file that changes while it is scanned is left for another scan."""


class LeftFiles:
    """Files that are left for later scans: copies until they stay unchanged, and files that change during a scan.

    Args:
        clock: The time.

    Attributes:
        has_more: Whether files that changed while they were scanned are left for a scan that follows at once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Copies of files that still exist: the time since which each is unchanged.
        self._waiting: dict[bytes, tuple[ListedStat, float]] = {}
        self._still_waiting: dict[bytes, tuple[ListedStat, float]] = {}
        self._repeats: Counter[bytes] = Counter()
        self.has_more = False

    @property
    def has_waiting(self) -> bool:
        """Whether copies are left until they have been unchanged for COPY_GRACE_S."""
        return bool(self._waiting)

    def begin_scan(self) -> None:
        """Begin a scan."""
        self._still_waiting = {}
        self.has_more = False

    def end_scan(self) -> None:
        """End a scan, after it has left all files that it leaves."""
        self._waiting = self._still_waiting
        if not self.has_more:
            self._repeats.clear()

    def leave_for_next_scan(self, suspect: Suspect) -> None:
        """Leave a file that changed while it was scanned."""
        self._repeats[suspect.name] += 1
        self.has_more = True

    def was_left_often(self, suspect: Suspect) -> bool:
        """Whether a file was left MAX_REPEATS times, so that its current verdict counts."""
        return self._repeats[suspect.name] >= MAX_REPEATS

    def leave_new_copy(self, suspect: Suspect, grace_s: float) -> bool:
        """Leave a copy that changed recently; returns whether it was left."""
        now_s = self._clock.elapsed_s()
        stat, since_s = self._waiting.get(suspect.name, (None, now_s))
        if stat != suspect.stat:
            since_s = now_s
        if now_s - since_s >= grace_s:
            return False
        self._still_waiting[suspect.name] = (suspect.stat, since_s)
        return True
