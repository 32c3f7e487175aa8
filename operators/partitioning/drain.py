"""As many partitions as it takes to be done in time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dagflow.api.partitioner import BacklogStats, StatsResponse
from dagflow.api.policy import PartitionPolicy
from dagflow.api.properties import Count, Millis

_MOST = 1_000_000_000
"""Stands for a number of partitions that is beyond all limits."""

_LAST_SHARE = 0.1
"""The last tenth of the target is not cut into any further: a deadline that has come would ask for infinitely many."""


_GRAIN_SHARE = 0.1
"""What arrives within this share of the target is taken together, so that what must be remembered is bounded."""


@dataclass(frozen=True, slots=True)
class _Cohort:
    """What arrived at about the same time.

    Attributes:
        end: How many bytes had arrived by then since the run began.
        deadline_millis: When all of them shall be processed.
    """

    end: int
    deadline_millis: int


class DrainPartitioner(PartitionPolicy):
    """Scales so that what waits is processed within a time, from the measured speed of one partition.

    What waits is what was emitted, and what is known to come. Each byte has its time from when it is first known, or
    from when a speed is: nothing is decided before. Partitions that were enough stay until what they are for is
    processed, because with fewer the rest would be late.

    Guarantee: two changes are at least cool_down_millis apart, none is by more than max_step times, and of those
    that stay when the count shrinks the share slack is not needed, so that figures that tremble change nothing.
    """

    steers_by_speed = True

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
    _cohorts: deque[_Cohort]

    def check_properties(self) -> None:
        """Refuse a range that is empty; begin with nothing that waits."""
        if self.min_partitions > self.max_partitions:
            raise ValueError(f"min_partitions, {self.min_partitions}, is above max_partitions, {self.max_partitions}")
        self._cohorts = deque()

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
        """Note what was added and by when it shall be done, and forget what is done."""
        cohorts = self._cohorts
        if not stats.bytes_per_second:
            cohorts.clear()  # what waits before anything can be decided has all of its time from then on
            return
        arrived = stats.processed_bytes + stats.known_bytes
        while cohorts and cohorts[0].end <= stats.processed_bytes:
            cohorts.popleft()
        while len(cohorts) > 1 and cohorts[1].deadline_millis <= stats.now_millis:
            cohorts.popleft()  # both are late
        if arrived > (cohorts[-1].end if cohorts else stats.processed_bytes):
            deadline = stats.now_millis + self.target_drain_millis
            if len(cohorts) > 1 and cohorts[-1].deadline_millis - cohorts[-2].deadline_millis < self._grain_millis:
                cohorts.pop()  # what arrives at nearly the same time is due together, when the newest is
            cohorts.append(_Cohort(arrived, deadline))

    @property
    def _grain_millis(self) -> float:
        return self.target_drain_millis * _GRAIN_SHARE

    def _wanted(self, stats: BacklogStats) -> tuple[int, str]:
        """The count that is called for, within all limits, and why."""
        current = stats.partitions
        if not stats.known_bytes:
            need, why = 0.0, "nothing waits"
        elif not stats.bytes_per_second:
            return current, "no speed is known yet"
        else:
            size_bytes, left_millis = max(self._due(stats), key=lambda due: due[0] / due[1])
            need = min(size_bytes / (left_millis / 1000) / stats.bytes_per_second, _MOST)
            speed = f"{stats.bytes_per_second:.0f} bytes/s each"
            why = f"{size_bytes} bytes within {left_millis:.0f} ms at {speed} take {math.ceil(need)}"
        enough = self._limited(need)
        if enough > current:
            return min(enough, current * self.max_step), why
        # With fewer there must be slack left, or the next figure that trembles would bring them back.
        ample = self._limited(need / (1 - self.slack))
        return max(min(ample, current), math.ceil(current / self.max_step)), why

    def _due(self, stats: BacklogStats) -> Iterator[tuple[int, float]]:
        """How many bytes must be done within how many milliseconds: all that came first, and so on."""
        least_millis = self.target_drain_millis * _LAST_SHARE
        for cohort in self._cohorts:
            size_bytes = min(cohort.end - stats.processed_bytes, stats.known_bytes)
            yield size_bytes, max(cohort.deadline_millis - stats.now_millis, least_millis)
        if not self._cohorts:
            yield stats.known_bytes, float(self.target_drain_millis)

    def _limited(self, need: float) -> int:
        return min(max(math.ceil(need), self.min_partitions), self.max_partitions)
