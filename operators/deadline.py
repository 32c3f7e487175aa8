"""Deadline autoscaler: as many partitions as it takes to process the backlog in a given time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from dagflow.api.partitioning import BacklogStats, PartitionPolicy, StatsResponse
from dagflow.api.properties import Count, Millis
from dagflow.frozen import frozen

_MOST = 1_000_000_000
"""A number of partitions beyond every limit."""

_LAST_SHARE = 0.1
"""The time left counts as at least this share of the target: an expired deadline would ask for infinitely many."""


_GRAIN_SHARE = 0.1
"""Bytes that arrive within this share of the target share a deadline, which bounds the number of deadlines held."""


@frozen
class _Cohort:
    """Bytes that arrived at about the same time.

    Attributes:
        end: Bytes that had arrived by then since the run began.
        deadline_millis: Time by which all of them must be processed.
    """

    end: int
    deadline_millis: int


class DeadlinePartitioner(PartitionPolicy):
    """Scales so that the backlog is processed within a target time, from the measured speed of one partition.

    The backlog is what was emitted and not processed, and what the input operators know they will emit. The deadline
    of a byte counts from when the byte becomes known, or from when a speed is measured; before that the count stays.
    Partitions stay until the bytes they were added for are processed: with fewer the rest would be late.

    Guarantee: two changes are at least cool_down_millis apart, no change is by more than a factor of max_step, and the
    count shrinks only so far that the share slack of the rest is idle, so that noise in the figures changes nothing.
    """

    steers_by_speed = True

    target_millis: Annotated[Millis, Field(ge=1, description="time in which the backlog must be processed")] = 60_000
    min_partitions: Annotated[Count, Field(ge=1, description="minimum number of partitions")] = 1
    max_partitions: Annotated[Count, Field(ge=1, description="maximum number of partitions")] = 16
    cool_down_millis: Annotated[Millis, Field(description="shortest time between two changes")] = 2_000
    max_step: Annotated[
        Count, Field(ge=2, description="largest factor by which one change grows or shrinks the count")
    ] = 2
    slack: Annotated[
        float, Field(ge=0, lt=1, description="share of the partitions that must be idle after the count shrinks")
    ] = 0.25

    _changed_at_millis: int | None = None
    _cohorts: deque[_Cohort]

    def check_properties(self) -> None:
        """Refuse an empty range of counts; start with an empty backlog."""
        if self.min_partitions > self.max_partitions:
            raise ValueError(f"min_partitions, {self.min_partitions}, is above max_partitions, {self.max_partitions}")
        self._cohorts = deque()

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
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
        """The count that the backlog needs; the fewest allowed at the start."""
        return self._wanted(stats)[0] if stats.partitions else self.min_partitions

    def _follow_arrivals(self, stats: BacklogStats) -> None:
        """Give new bytes their deadline and drop the deadlines of processed bytes."""
        cohorts = self._cohorts
        if not stats.bytes_per_second:
            cohorts.clear()  # the backlog's time counts from the first measured speed
            return
        arrived = stats.processed_bytes + stats.known_bytes
        while cohorts and cohorts[0].end <= stats.processed_bytes:
            cohorts.popleft()
        while len(cohorts) > 1 and cohorts[1].deadline_millis <= stats.now_millis:
            cohorts.popleft()  # both are late
        if arrived > (cohorts[-1].end if cohorts else stats.processed_bytes):
            deadline = stats.now_millis + self.target_millis
            if len(cohorts) > 1 and cohorts[-1].deadline_millis - cohorts[-2].deadline_millis < self._grain_millis:
                cohorts.pop()  # close arrivals share the deadline of the newest
            cohorts.append(_Cohort(arrived, deadline))

    @property
    def _grain_millis(self) -> float:
        return self.target_millis * _GRAIN_SHARE

    def _wanted(self, stats: BacklogStats) -> tuple[int, str]:
        current = stats.partitions
        if not stats.known_bytes:
            need, why = 0.0, "the backlog is empty"
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
        # Without slack the next noisy figure would bring the removed partitions back.
        ample = self._limited(need / (1 - self.slack))
        return max(min(ample, current), math.ceil(current / self.max_step)), why

    def _due(self, stats: BacklogStats) -> Iterator[tuple[int, float]]:
        """Pairs of bytes and milliseconds left for them, cumulative from the oldest deadline on."""
        least_millis = self.target_millis * _LAST_SHARE
        for cohort in self._cohorts:
            size_bytes = min(cohort.end - stats.processed_bytes, stats.known_bytes)
            yield size_bytes, max(cohort.deadline_millis - stats.now_millis, least_millis)
        if not self._cohorts:
            yield stats.known_bytes, float(self.target_millis)

    def _limited(self, need: float) -> int:
        return min(max(math.ceil(need), self.min_partitions), self.max_partitions)


class StatelessPartitioner(PartitionPolicy):
    """Always the same number of partitions; `partition: N` of an operator is the short form.

    Source:
        com.datatorrent.common.partitioner.StatelessPartitioner of Apache Apex.
    """

    count: Annotated[Count, Field(ge=1, description="the number of partitions")]

    def define_partitions(self, stats: BacklogStats) -> int:
        return self.count
