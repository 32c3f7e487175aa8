"""As many partitions as it takes to be done in time."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from dagflow.api.partitioner import BacklogStats, StatsResponse
from dagflow.api.policy import PartitionPolicy
from dagflow.api.properties import Count, Millis

_DROP_SHARE = 0.5
"""A backlog that drops by less than this share of what was processed is being added to: speeds are measured, and far
from exact, but not that far."""

_MOST = 1_000_000_000
"""Stands for a number of partitions that is beyond all limits."""

_LAST_SHARE = 0.1
"""The last tenth of the target is not cut into any further: a deadline that has come would ask for infinitely many."""


class DrainPartitioner(PartitionPolicy):
    """Scales so that what waits is processed within a time, from the measured speed of one partition.

    The clock of a backlog starts when something is added to it. Partitions that were enough for it stay until
    it is drained, because with fewer the rest would be late. Nothing is decided before a speed was measured.

    Guarantee: two changes are at least cool_down_millis apart, none is by more than max_step times, and of those
    that stay when the count shrinks the share slack is not needed, so that figures that tremble change nothing.
    """

    target_drain_millis: Annotated[Millis, Field(ge=1, description="time in which what waits shall be processed")] = (
        60_000
    )
    min_partitions: Annotated[Count, Field(ge=1, description="partitions at least")] = 1
    max_partitions: Annotated[Count, Field(ge=1, description="partitions at most")] = 16
    cool_down_millis: Annotated[Millis, Field(description="time between two changes")] = 2_000
    max_step: Annotated[Count, Field(ge=2, description="at most so many times as many, or as few, in one change")] = 2
    slack: Annotated[
        float, Field(ge=0, lt=1, description="share of the partitions that must stay idle when some of them go")
    ] = 0.25

    _changed_at_millis: int | None = None
    _last: BacklogStats | None = None
    _deadline_millis: int = 0

    def check_properties(self) -> None:
        """Refuse a range that is empty."""
        if self.min_partitions > self.max_partitions:
            raise ValueError(f"min_partitions, {self.min_partitions}, is above max_partitions, {self.max_partitions}")

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Ask for a repartition when another count is called for, and the last change is old enough."""
        self._follow_arrivals(stats)
        wanted, why = self._wanted(stats)
        if wanted == stats.partitions:
            return StatsResponse(False, why)
        changed_at = self._changed_at_millis
        if changed_at is not None and stats.now_millis - changed_at < self.cool_down_millis:
            age = stats.now_millis - changed_at
            return StatsResponse(False, f"{why}: {wanted} wanted, but the last change is {age} ms old")
        self._changed_at_millis = stats.now_millis
        return StatsResponse(True, f"{why}: {stats.partitions} to {wanted}")

    def define_partitions(self, stats: BacklogStats) -> int:
        """The count for the backlog; at the start as few as are allowed."""
        return self._wanted(stats)[0] if stats.partitions else self.min_partitions

    def _follow_arrivals(self, stats: BacklogStats) -> None:
        """Start the clock anew when something was added: the newest byte has all of the target before it."""
        last, self._last = self._last, stats
        processed = before = 0.0
        if last is not None:
            processed = last.bytes_per_second * last.partitions * (stats.now_millis - last.now_millis) / 1000
            before = last.backlog_bytes
        is_added_to = before - stats.backlog_bytes < _DROP_SHARE * min(processed, before)
        if is_added_to or not before or stats.now_millis >= self._deadline_millis:
            self._deadline_millis = stats.now_millis + self.target_drain_millis

    def _wanted(self, stats: BacklogStats) -> tuple[int, str]:
        """The count that is called for, within all limits, and why."""
        current = stats.partitions
        if not stats.backlog_bytes:
            need, why = 0.0, "nothing waits"
        elif not stats.bytes_per_second:
            return current, "no speed is known yet"
        else:
            left_millis = max(self._deadline_millis - stats.now_millis, self.target_drain_millis * _LAST_SHARE)
            need = min(stats.backlog_bytes / (left_millis / 1000) / stats.bytes_per_second, _MOST)
            speed = f"{stats.bytes_per_second:.0f} bytes/s each"
            why = f"{stats.backlog_bytes} bytes within {left_millis:.0f} ms at {speed} take {math.ceil(need)}"
        enough = self._limited(need)
        if enough > current:
            return min(enough, current * self.max_step), why
        # With fewer there must be slack left, or the next figure that trembles would bring them back.
        ample = self._limited(need / (1 - self.slack))
        return max(min(ample, current), math.ceil(current / self.max_step)), why

    def _limited(self, need: float) -> int:
        return min(max(math.ceil(need), self.min_partitions), self.max_partitions)
