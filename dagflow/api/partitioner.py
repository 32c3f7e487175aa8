"""How many partitions an operator has, and who decides: the interfaces, after Apache Apex.

An operator that implements Partitioner or StatsListener decides for itself.

Source:
    The two roles and their names follow com.datatorrent.api.Partitioner and StatsListener of Apache Apex.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class BacklogStats:
    """What is known about an operator's load at one moment.

    Attributes:
        now_millis: A monotonic clock.
        partitions: The current number of partitions.
        backlog: Tuples emitted to the operator and not yet processed.
        backlog_bytes: Sum of their sizes.
        bytes_per_second: Measured throughput of one partition, 0.0 before the first measurement.
    """

    now_millis: int
    partitions: int
    backlog: int
    backlog_bytes: int = 0
    bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class StatsResponse:
    """What a stats listener wants.

    Attributes:
        repartition: Whether define_partitions shall be called.
        reason: Why, for the journal and for people.
    """

    repartition: bool
    reason: str = ""


@runtime_checkable
class StatsListener(Protocol):
    """Watches an operator's load in the driver and may ask for a repartition."""

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Called before each window is planned."""
        ...


@runtime_checkable
class Partitioner(Protocol):
    """Decides how many partitions an operator has."""

    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of partitions from now on, at least 1.

        Called once at the start, with partitions = 0, and then whenever the stats listener asks.
        """
        ...


def size_bytes_of(item: Any) -> int:
    """The weight of a metadata tuple: its size_bytes, or 1."""
    return int(getattr(item, "size_bytes", 1))


def assign_balanced(sizes: Sequence[int], partitions: int) -> list[list[int]]:
    """Deal items out to partitions, balanced by size, neighbours together.

    Args:
        sizes: Size of each item in its unit, in the order of emission; 0 counts as 1.
        partitions: How many partitions, at least 1.

    Returns:
        For each partition the ascending, consecutive indices of its items; partitions beyond the
        number of items stay empty.
    """
    shares: list[list[int]] = [[] for _ in range(partitions)]
    remaining = float(sum(max(size, 1) for size in sizes))
    index = 0
    for partition, share in enumerate(shares):
        target = remaining / (partitions - partition)
        taken = 0.0
        # An item that would overshoot is taken when more than half of it fits: each share ends nearest its target.
        while index < len(sizes) and (
            partition == partitions - 1 or not share or taken + max(sizes[index], 1) / 2 <= target
        ):
            share.append(index)
            taken += max(sizes[index], 1)
            index += 1
        remaining -= taken
    return shares
