"""Gives everything in a picture its place across the flow: in an order with few crossings, near its neighbours.

Source:
    Order by barycentre, in sweeps forth and back: Sugiyama, Tagawa and Toda, "Methods for visual understanding of
    hierarchical system structures" (1981).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from dagflow.plan.render.ranks import GAP, LABEL_GAP, Item, Ranks
from dagflow.plan.render.sizes import Sizes
from dagflow.plan.render.spreading import spread, total

_SWEEPS = 3
_SETTLING = 10
_LANE_GAP = 6.0

_Neighbours = Mapping[Item, Sequence[Item]]


@dataclass(slots=True)
class _Unit:
    """A unit that is moved as a whole: a frame, or the lane of a passing arrow.

    Attributes:
        frame: The frame's index; None for a lane.
        rows: The items by row.
        size: Pixels that it takes across the flow.
        gap: Pixels that it wants beside it.
        margins: Pixels between its sides and its content.
    """

    frame: int | None
    rows: dict[int, list[Item]] = field(default_factory=dict)
    size: float = 0.0
    gap: float = _LANE_GAP
    margins: tuple[float, float] = (0.0, 0.0)

    def items(self) -> Iterable[Item]:
        """All items, row by row."""
        return (item for row in self.rows.values() for item in row)


class RowPlacement:
    """Places the items of all rows."""

    def __init__(self, ranks: Ranks, sizes: Sizes) -> None:
        self._ranks = ranks
        self._middle: dict[Item, float] = {}
        self.frame_spans: dict[int, tuple[float, float]] = {}
        self._before: dict[Item, list[Item]] = defaultdict(list)
        self._after: dict[Item, list[Item]] = defaultdict(list)
        for chain in ranks.chains:
            for one, other in pairwise(chain):
                self._after[one].append(other)
                self._before[other].append(one)
        items = [*ranks.row, *(item for chain in ranks.chains for item in chain[1:-1])]
        self._breadth = {item: ranks.breadth(item, sizes) for item in items}
        self._gap = {item: self._gap_of(item) for item in items}
        self._unit_of: dict[Item, _Unit] = {}
        self._bands = self._units()
        for unit in (unit for band in self._bands for unit in band):
            self._measure(unit, sizes)
        self.whole = max(total([unit.size for unit in band], [unit.gap for unit in band]) for band in self._bands)

    def place(self) -> Mapping[Item, float]:
        """The middle of every item across the flow; those of frames are in `frame_spans` afterwards."""
        for band in self._bands:
            self._place_band(band, self._before)
        for _ in range(_SWEEPS):
            for band in reversed(self._bands):
                self._sweep(band, self._after)
            for band in self._bands:
                self._sweep(band, self._before)
        nearest = {item: self._nearest(item) for item in self._middle}
        for _ in range(_SETTLING):
            for band in self._bands:
                self._place_band(band, nearest)
        return self._middle

    def _nearest(self, item: Item) -> list[Item]:
        """The items that an item should finally be near to: for a label, the end of its arrow with fewer arrows."""
        before, after = self._before[item], self._after[item]
        if not isinstance(item, tuple):
            return before + after
        chain = self._ranks.chains[item[0]]
        return after if len(self._before[chain[-1]]) <= len(self._after[chain[0]]) else before

    def _units(self) -> list[list[_Unit]]:
        """The units side by side in each band."""
        ranks = self._ranks
        bands: dict[int, dict[tuple[str, int], _Unit]] = {band: {} for band in sorted(set(ranks.bands))}

        def add(band: int, key: tuple[str, int], row: int, item: Item) -> None:
            unit = bands[band].setdefault(key, _Unit(key[1] if key[0] == "frame" else None))
            unit.rows.setdefault(row, []).append(item)
            self._unit_of[item] = unit

        for name, row in ranks.row.items():
            add(ranks.bands[row], ("frame", ranks.frame_of[name]), row, name)
        for index, chain in enumerate(ranks.chains):
            ends = [ranks.frame_of[end] for end in (chain[0], chain[-1]) if isinstance(end, str)]
            for item in chain[1:-1]:
                assert isinstance(item, tuple)  # only operators are at the ends
                band = ranks.bands[item[1]]
                own = [("frame", frame) for frame in ends if ranks.band_of[frame] == band]
                add(band, own[0] if own else ("lane", index), item[1], item)
        return [list(units.values()) for units in bands.values()]

    def _measure(self, unit: _Unit, sizes: Sizes) -> None:
        rows = unit.rows.values()
        unit.size = max(total([self._breadth[item] for item in row], [self._gap[item] for item in row]) for row in rows)
        if unit.frame is not None:
            _, _, before, behind = sizes.frame_margins(unit.frame)
            unit.size += before + behind
            unit.gap = GAP
            unit.margins = before, behind

    def _gap_of(self, item: Item) -> float:
        return GAP if isinstance(item, str) else LABEL_GAP if self._ranks.is_label(item) else _LANE_GAP

    def _wanted(self, item: Item, neighbours: Iterable[Item]) -> float | None:
        """The middle of an item's neighbours; its own if it has none; None if that is not known yet."""
        known = [self._middle[other] for other in neighbours if other in self._middle]
        return sum(known) / len(known) if known else self._middle.get(item)

    def _unit_wanted(self, unit: _Unit, neighbours: _Neighbours) -> float:
        """The middle of the outside items that a unit's items are joined to."""
        found = []
        for item in unit.items():
            outside = [other for other in neighbours.get(item, ()) if self._unit_of[other] is not unit]
            if outside:
                found.append(self._wanted(item, outside))
        known = [middle for middle in found if middle is not None]
        if not known:
            known = [self._middle[item] for item in unit.items() if item in self._middle]
        return sum(known) / len(known) if known else self.whole / 2

    def _sweep(self, band: list[_Unit], neighbours: _Neighbours) -> None:
        """Sort the units of a band, and the items of each row, by their neighbours."""
        band.sort(key=lambda unit: self._unit_wanted(unit, neighbours))
        for unit in band:
            for row in unit.rows.values():
                row.sort(key=lambda item: self._wanted(item, neighbours.get(item, ())) or 0.0)
        self._place_band(band, neighbours)

    def _place_band(self, band: Sequence[_Unit], neighbours: _Neighbours) -> None:
        # A frame's title shifts its middle away from that of its content.
        wanted = [self._unit_wanted(unit, neighbours) + (unit.margins[1] - unit.margins[0]) / 2 for unit in band]
        middles = spread(wanted, [unit.size for unit in band], [unit.gap for unit in band], 0.0, self.whole)
        for unit, middle in zip(band, middles, strict=True):
            start, end = middle - unit.size / 2, middle + unit.size / 2
            if unit.frame is not None:
                self.frame_spans[unit.frame] = (start, unit.size)
            for row in sorted(unit.rows, reverse=neighbours is self._after):
                self._place_row(unit.rows[row], neighbours, start + unit.margins[0], end - unit.margins[1])

    def _place_row(self, row: Sequence[Item], neighbours: _Neighbours, start: float, end: float) -> None:
        found = [self._wanted(item, neighbours.get(item, ())) for item in row]
        wanted = [(start + end) / 2 if middle is None else middle for middle in found]
        breadths, gaps = [self._breadth[item] for item in row], [self._gap[item] for item in row]
        self._middle.update(zip(row, spread(wanted, breadths, gaps, start, end), strict=True))
