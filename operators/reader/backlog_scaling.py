"""The number of readers for a backlog of blocks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dagflow.api.operator import Operator
from dagflow.api.partitioning import BacklogStats, Partitioner, StatsListener, StatsResponse
from dagflow.api.properties import Count, Millis, Tuning


def readers_for(backlog: int, min_readers: int, max_readers: int) -> int:
    """The number of readers for a backlog.

    A backlog above max_readers calls for max_readers; any other is rounded down to a power of two, and
    then brought between min_readers and max_readers.

    Args:
        backlog: Blocks that are planned and not yet read.
        min_readers: At least 1.
        max_readers: At least min_readers.

    Source:
        AbstractBlockReader of Apache Apex Malhar, which clamps before it rounds, and so gives 2 for a minimum of 3.
    """
    if backlog > max_readers:
        return max_readers
    rounded = 1 << (backlog.bit_length() - 1) if backlog > 0 else min_readers
    return max(min_readers, min(max_readers, rounded))


class BacklogScaled(Operator, Partitioner, StatsListener):
    """An operator that decides itself how many partitions it has, by the number of blocks that wait."""

    min_readers: Annotated[Count, Tuning(), Field(ge=1, description="minimum number of partitions")] = 1
    max_readers: Annotated[Count, Tuning(), Field(ge=1, description="maximum number of partitions")] = 16
    collect_stats: Annotated[
        bool, Tuning(), Field(description="whether the number of partitions follows the backlog")
    ] = True
    interval_millis: Annotated[
        Millis, Tuning(), Field(description="time between two changes of the number of partitions")
    ] = 500

    shrink_after_millis: Annotated[
        Millis, Tuning(), Field(description="how long the backlog must not need partitions before they are removed")
    ] = 10_000

    _changed_at_millis: int | None = None
    _needs: tuple[tuple[int, int], ...] = ()
    """Time and count of each need that no later need has reached, the greatest first."""

    def check_properties(self) -> None:
        """Refuse a range of readers that is empty."""
        super().check_properties()
        if self.min_readers > self.max_readers:
            raise ValueError(f"min_readers, {self.min_readers}, is above max_readers, {self.max_readers}")

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Ask for a repartition when the backlog needs more readers, or no recent one needs as many.

        Source:
            The stabilization window of Kubernetes' HorizontalPodAutoscaler: up at once, down to the recent peak.
        """
        if not self.collect_stats:
            return StatsResponse(False, f"collect_stats is off: {stats.partitions} stay")
        self._remember(stats)
        wanted = self.define_partitions(stats)
        blocks = "1 block" if stats.backlog == 1 else f"{stats.backlog} blocks"
        rule = f"backlog of {blocks}, {self.min_readers} to {self.max_readers} readers"
        if wanted == stats.partitions:
            return StatsResponse(False, f"{rule}: {wanted} is right")
        changed_at = self._changed_at_millis
        if changed_at is not None and stats.now_millis - changed_at < self.interval_millis:
            age = stats.now_millis - changed_at
            return StatsResponse(False, f"{rule}: {wanted} wanted, but the last change is {age} ms old")
        self._changed_at_millis = stats.now_millis
        return StatsResponse(True, f"{rule}: {stats.partitions} to {wanted}")

    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of readers for the recent backlogs; at the start, and without stats, as few as are allowed."""
        if not self.collect_stats:
            return stats.partitions or self.min_readers
        needed = readers_for(stats.backlog, self.min_readers, self.max_readers)
        return max(needed, self._needs[0][1]) if self._needs else needed

    def _remember(self, stats: BacklogStats) -> None:
        needed = readers_for(stats.backlog, self.min_readers, self.max_readers)
        since = stats.now_millis - self.shrink_after_millis
        kept = (each for each in self._needs if each[0] > since and each[1] > needed)
        self._needs = (*kept, (stats.now_millis, needed))
