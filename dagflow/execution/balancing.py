"""Distributes tuples over partitions, balanced by size and with neighbours together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.ports import TupleBatch


def size_bytes_of(item: Any) -> int:
    """The weight of a metadata tuple: its size_bytes, or 1 for a tuple of an author's own type that has none."""
    try:
        return int(item.size_bytes)
    except AttributeError:
        return 1


def assign_balanced(sizes: Sequence[int], partitions: int) -> list[list[int]]:
    """Distribute items over partitions, balanced by size, neighbours together.

    Args:
        sizes: Size of each item in its unit, in the order of emission; 0 counts as 1.
        partitions: How many partitions, at least 1.

    Returns:
        For each partition the ascending, consecutive indices of its items; partitions beyond the
        number of items stay empty.
    """
    borders = _borders(np.array(sizes, np.int64), partitions)
    return [list(range(start, end)) for start, end in pairwise(borders)]


def distribute(items: Sequence[Any], partitions: int) -> list[list[Any]]:
    """Distribute tuples over partitions as assign_balanced does, member by member of tuple batches.

    Returns:
        For each partition its tuples and tuple batches; a divisible tuple batch that lies across a border is sliced.
    """
    weights = [
        item.weights if isinstance(item, TupleBatch) and item.is_divisible else [size_bytes_of(item)] for item in items
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
    """Where the consecutive items of each partition begin, followed by the number of items."""
    weights = np.maximum(sizes, 1).astype(np.float64)
    stops = np.cumsum(weights)
    # A share takes an item if more than half of it fits, so that the share ends as near to its target as possible.
    middles = stops - weights / 2
    borders = [0]
    for partition in range(partitions - 1):
        first = borders[-1]
        taken = stops[first - 1] if first else 0.0
        target = ((stops[-1] if len(stops) else 0.0) - taken) / (partitions - partition)
        end = int(np.searchsorted(middles, taken + target, side="right"))
        borders.append(min(max(end, first + 1), len(stops)))
    return [*borders, len(stops)]
