"""Places intervals on a line, each near to its wanted place, so that they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


def total(sizes: Sequence[float], gaps: Sequence[float]) -> float:
    """The room that intervals take at most, in any order: their sizes and the gaps between neighbours."""
    return sum(sizes) + sum(gaps) - min(gaps, default=0.0)


def spread(
    wanted: Sequence[float], sizes: Sequence[float], gaps: Sequence[float], start: float, end: float
) -> list[float]:
    """The middles of placed intervals, in their order.

    Args:
        wanted: Where each middle should be.
        sizes: The length of each interval.
        gaps: The room that each wants beside it; between neighbours it is half of both.
        start: No interval begins before this.
        end: No interval ends after this; total() of them must fit between.

    Source:
        The pool-adjacent-violators algorithm of isotonic regression: the wanted middles, less the room that goes
        before, must not decrease, and the nearest such sequence consists of means.
    """
    steps = [(one + other) / 2 for one, other in pairwise([size + gap for size, gap in zip(sizes, gaps, strict=True)])]
    offsets = list(accumulate(steps, initial=0.0))
    pools: list[tuple[float, int]] = []
    for middle, offset in zip(wanted, offsets, strict=False):
        mean, count = middle - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    if not pools:
        return []
    first = start + sizes[0] / 2
    last = max(first, end - sizes[-1] / 2 - offsets[-1])
    means = [min(max(mean, first), last) for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
