"""Straightens arrows: the items of an arrow in consecutive rows are moved to one line where there is room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from dagflow.plan.render.ranks import Item, Ranks
from dagflow.plan.render.sizes import Sizes

_APART = 6.0


class Straightening:
    """Moves labels and way-points across the flow; operators and frames stay.

    Args:
        ranks: The rows of the picture.
        sizes: The sizes of its parts.
        middles: The middle of every item across the flow.
        frame_spans: The start and the breadth of each frame across the flow.
        whole: The breadth of the picture across the flow.
    """

    def __init__(
        self,
        ranks: Ranks,
        sizes: Sizes,
        middles: Mapping[Item, float],
        frame_spans: Mapping[int, tuple[float, float]],
        whole: float,
    ) -> None:
        self._ranks = ranks
        self._sizes = sizes
        self._middles = dict(middles)
        self._spans = frame_spans
        self._whole = whole
        self._items: dict[int, list[Item]] = defaultdict(list)
        for name, row in ranks.row.items():
            self._items[row].append(name)
        for chain in ranks.chains:
            for item in chain[1:-1]:
                self._items[item[1]].append(item)  # type: ignore[index]  # operators stand at the ends alone

    def straighten(self) -> Mapping[Item, float]:
        """The middle of every item, afterwards."""
        leaving: dict[Item, int] = defaultdict(int)
        for chain in self._ranks.chains:
            leaving[chain[0]] += 1
        for chain in self._ranks.chains:
            run: list[Item] = []
            bounds = (0.0, self._whole)
            # Aligning the first run with the arrow's source, if no other arrow leaves that, makes the whole
            # arrow straight.
            wish = self._middles[chain[0]] if leaving[chain[0]] == 1 else None
            for item in chain[1:-1]:
                free = self._free(item, chain)
                narrower = max(bounds[0], free[0]), min(bounds[1], free[1])
                if run and narrower[0] > narrower[1]:
                    self._align(run, bounds, wish)
                    run, narrower, wish = [], free, None
                run.append(item)
                bounds = narrower
            if run:
                self._align(run, bounds, wish)
        return self._middles

    def _align(self, run: list[Item], bounds: tuple[float, float], wish: float | None) -> None:
        middle = sum(self._middles[item] for item in run) / len(run) if wish is None else wish
        self._middles.update(dict.fromkeys(run, min(max(middle, bounds[0]), bounds[1])))

    def _free(self, item: Item, chain: list[Item]) -> tuple[float, float]:
        """The range of middles to which an item can be moved without touching its neighbours in the row."""
        ranks = self._ranks
        own_middle, half = self._middles[item], ranks.breadth(item, self._sizes) / 2
        start, end = half, self._whole - half
        row = item[1] if isinstance(item, tuple) else ranks.row[item]
        ends = [ranks.frame_of[each] for each in (chain[0], chain[-1]) if isinstance(each, str)]
        taken = []
        for frame, band in ranks.band_of.items():
            if band != ranks.bands[row]:
                continue
            first, breadth = self._spans[frame]
            if frame in ends:
                _, _, before, behind = self._sizes.frame_margins(frame)
                start, end = max(start, first + before + half), min(end, first + breadth - behind - half)
            else:
                taken.append((first, first + breadth))
        for other in self._items[row]:
            if other != item:
                breadth = ranks.breadth(other, self._sizes)
                taken.append((self._middles[other] - breadth / 2, self._middles[other] + breadth / 2))
        for first, last in taken:
            if (first + last) / 2 < own_middle:
                start = max(start, last + _APART + half)
            else:
                end = min(end, first - _APART - half)
        return (start, end) if start <= end else (own_middle, own_middle)
