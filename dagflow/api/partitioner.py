"""How many partitions an operator has, and who decides: the interfaces, after Apache Apex.

An operator that implements Partitioner or StatsListener decides for itself.

Source:
    The two roles and their names follow com.datatorrent.api.Partitioner and StatsListener of Apache Apex.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from dagflow.api.bundle import Bundle


@dataclass(frozen=True, slots=True)
class BacklogStats:
    """What is known about an operator's load at one moment.

    Attributes:
        now_millis: A monotonic clock.
        partitions: The current number of partitions.
        backlog: Tuples emitted to the operator and not yet processed.
        backlog_bytes: Sum of their sizes.
        bytes_per_second: Measured throughput of one partition, 0.0 before the first measurement.
        unemitted_bytes: What control operators know to come behind the backlog; there may be more.
        processed_bytes: What this run has processed and published.
    """

    now_millis: int
    partitions: int
    backlog: int
    backlog_bytes: int = 0
    bytes_per_second: float = 0.0
    unemitted_bytes: int = 0
    processed_bytes: int = 0

    @property
    def known_bytes(self) -> int:
        """All that is known to wait, emitted or not."""
        return self.backlog_bytes + self.unemitted_bytes


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
    borders = _borders(np.array(sizes, np.int64), partitions)
    return [list(range(start, end)) for start, end in itertools.pairwise(borders)]


def deal_out(items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """Deal tuples out to partitions as assign_balanced does, member by member where they are bundled.

    Args:
        items: Tuples and bundles, in the order of emission.
        partitions: How many partitions, at least 1.

    Returns:
        For each partition its tuples and bundles; a divisible bundle that lies across a border is sliced.
    """
    weights = [
        item.weights if isinstance(item, Bundle) and item.is_divisible else [size_bytes_of(item)] for item in items
    ]
    borders = _borders(np.concatenate(weights) if weights else np.empty(0, np.int64), partitions)
    shares: list[list[Any]] = [[] for _ in range(partitions)]
    partition = position = 0
    for item, members in zip(items, map(len, weights), strict=True):
        done = 0
        while done < members:
            while borders[partition + 1] <= position:
                partition += 1
            count = min(members - done, borders[partition + 1] - position)
            shares[partition].append(item if count == members else item.slice(done, done + count))
            done += count
            position += count
    return shares


def _borders(sizes: npt.NDArray[Any], partitions: int) -> list[int]:
    """Where each partition's consecutive items begin, and behind the last the number of items."""
    weights = np.maximum(sizes, 1).astype(np.float64)
    stops = np.cumsum(weights)
    # An item that would overshoot is taken when more than half of it fits: each share ends nearest its target.
    middles = stops - weights / 2
    borders = [0]
    for partition in range(partitions - 1):
        first = borders[-1]
        taken = stops[first - 1] if first else 0.0
        target = ((stops[-1] if len(stops) else 0.0) - taken) / (partitions - partition)
        end = int(np.searchsorted(middles, taken + target, side="right"))
        borders.append(min(max(end, first + 1), len(stops)))
    return [*borders, len(stops)]
