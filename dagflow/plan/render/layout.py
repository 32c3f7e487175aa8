"""Places operators, frames, arrows and their labels, so that arrows lead onward and nothing lies on anything else.

Operators and labels stand in rows across the flow. An arrow that passes a row has a way-point in it, so that it crosses
neither box nor label. Frames of one column share a band of rows. Where the room is bounded, rows and bands are broken
like lines of text.

Source:
    Layers, and order by barycentre: Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
    structures" (1981).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

from dagflow.frozen import frozen

Thing = TypeVar("Thing")
Size = tuple[float, float]
"""Pixels along the flow of the arrows, and across it."""

_ROOMS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)
"""Shares of the width that operators and labels may take in a row; passing arrows take the rest."""
_GAP, _LABEL_GAP, _LANE_GAP = 24.0, 10.0, 6.0
"""Pixels beside operators and frames, labels, and passing arrows."""
_LANE = 12.0
_BEND, _HEAD, _LINE = 36.0, 18.0, 8.0
"""Pixels before a row: behind operators, where arrows bend; for the heads of arrows; between labels."""
_BEND_PART, _MAX_BEND = 0.12, 40.0
"""The further room for arrows that come from far aside."""
_PASSES, _SORTED = 12, 5
"""How often places are improved, and how often the order is before."""


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


@frozen
class Group:
    """Operators with a frame around them.

    Attributes:
        column: Its position along the flow; arrows between groups lead to higher columns.
        title: The room for a title across the flow, before the operators.
    """

    operators: Sequence[str]
    column: int
    title: float = 0.0


@frozen
class Parts:
    """What is to be placed.

    Attributes:
        is_downward: Whether arrows lead from top to bottom; otherwise from left to right.
    """

    groups: Sequence[Group]
    arrows: Sequence[tuple[str, str]]
    operators: Mapping[str, Size]
    labels: Sequence[Size]
    pad: float
    is_downward: bool


@frozen
class Layout:
    """Where everything is.

    Attributes:
        lines: The corners of each arrow; it bends between the first two of each pair.
        is_downward: Whether arrows lead from top to bottom; otherwise from left to right.
    """

    boxes: dict[str, Box]
    frames: list[Box]
    lines: list[list[tuple[float, float]]]
    labels: list[Box]
    width: float
    height: float
    is_downward: bool

    def path(self, arrow: int) -> str:
        (x, y), *others = self.lines[arrow]
        path = f"M{x:.1f} {y:.1f}"
        for to_x, to_y in others:
            middle_x, middle_y = (x + to_x) / 2, (y + to_y) / 2
            bend = (x, middle_y, to_x, middle_y) if self.is_downward else (middle_x, y, middle_x, to_y)
            is_straight = x == to_x or y == to_y
            path += " L" if is_straight else f" C{' '.join(f'{place:.1f}' for place in bend)} "
            path += f"{to_x:.1f} {to_y:.1f}"
            x, y = to_x, to_y
        return path


def layout_of(parts: Callable[[bool], Parts], max_width: float) -> Layout:
    """Lay out from left to right where that is not too wide, otherwise from top to bottom."""
    best = place(parts(False))
    for part in _ROOMS:
        if best.width <= max_width:
            break
        best = min(best, place(parts(True), part * max_width), key=lambda layout: layout.width)
    return best


def place(parts: Parts, room: float = math.inf) -> Layout:
    """Lay out parts; operators and labels of a row take no more than this many pixels across the flow."""
    placement = _Placement(parts, room)
    placement.spread_rows()
    return placement.layout()


@dataclass(slots=True, eq=False)
class _Item:
    """An operator, a label, or the way-point of an arrow, in a row.

    Attributes:
        unit: What it is moved with.
        middle: Its place across the flow; not a number before it has one.
    """

    row: int
    unit: _Unit
    length: float
    breadth: float
    gap: float
    joined: list[_Item] = field(default_factory=list)
    middle: float = math.nan

    def wanted(self, is_back: bool, otherwise: float) -> float:
        """The middle of what is next to it: behind it on the way back, otherwise before it."""
        next_to = _mean(other.middle for other in self.joined if (other.row > self.row) == is_back)
        both = _mean((other.middle for other in self.joined), otherwise)
        return both if math.isnan(next_to) else next_to

    @property
    def start(self) -> float:
        return self.middle - self.breadth / 2


@dataclass(slots=True, eq=False)
class _Unit:
    """What is moved as a whole: the content of a frame, or an item between frames."""

    before: float
    behind: float
    gap: float
    rows: dict[int, list[_Item]] = field(default_factory=lambda: defaultdict(list))
    start: float = 0.0
    breadth: float = 0.0

    def wanted(self, otherwise: float) -> float:
        """The middle of what its items are joined to, shifted as its content is."""
        items = [item for row in self.rows.values() for item in row]
        outside = [_mean(other.middle for other in item.joined if other.unit is not self) for item in items]
        return _mean(outside, otherwise) + (self.behind - self.before) / 2


class _Placement:
    """Places everything in rows, then across the flow, then along it."""

    def __init__(self, parts: Parts, room: float) -> None:
        self._parts = parts
        self._room = room
        self._bands: list[int] = []  # of each row; an odd band has frames, an even one is between them
        self._units: dict[tuple[int, str, int], _Unit] = {}
        self._operators: dict[str, _Item] = {}
        self._label_rows: dict[int, int] = {}
        self._group_of = {name: index for index, group in enumerate(parts.groups) for name in group.operators}
        for column in sorted({group.column for group in parts.groups}):
            members = [index for index, group in enumerate(parts.groups) if group.column == column]
            for groups in broken(members, self._group_breadth, room):
                self._add_rows(groups, max(self._bands, default=-1) // 2 * 2 + 3)
        self._chains = [self._chain(index) for index in range(len(parts.arrows))]
        for one, other in (pair for chain in self._chains for pair in pairwise(chain)):
            one.joined.append(other)
            other.joined.append(one)

    def _breadth(self, name: str) -> float:
        return self._parts.operators[name][1] + _GAP

    def _group_breadth(self, index: int) -> float:
        content = max(sum(map(self._breadth, row)) for row in self._rows_of(index))
        return content + self._parts.groups[index].title + 2 * self._parts.pad

    def _rows_of(self, index: int) -> list[list[str]]:
        """The rows of a group: each operator behind its sources there."""
        group = self._parts.groups[index]
        depth: dict[str, int] = {}
        for name in group.operators:
            sources = [source for source, target in self._parts.arrows if target == name and source in depth]
            depth[name] = max((depth[source] + 1 for source in sources), default=0)
        room = self._room - group.title - 2 * self._parts.pad
        levels = ([name for name in depth if depth[name] == level] for level in sorted(set(depth.values())))
        return [row for level in levels for row in broken(level, self._breadth, room)]

    def _add_rows(self, groups: Sequence[int], band: int) -> None:
        """Add the rows of a band: of operators, and before each of them the labels of the arrows that lead to it."""
        rows = [self._rows_of(index) for index in groups]
        for depth in range(max(map(len, rows))):
            names = [name for own in rows for row in own[depth : depth + 1] for name in row]
            arriving = [index for index, (_, target) in enumerate(self._parts.arrows) if target in names]
            for line in broken(arriving, lambda arrow: self._parts.labels[arrow][1] + _LABEL_GAP, self._room):
                self._label_rows.update(dict.fromkeys(line, len(self._bands)))
                self._bands.append(band if depth else band - 1)
            self._bands.append(band)
            for name in names:
                row = len(self._bands) - 1
                self._operators[name] = self._item(row, self._parts.operators[name], _GAP, self._group_of[name])

    def _item(self, row: int, size: Size, gap: float, group: int | None, arrow: int = 0) -> _Item:
        key = (self._bands[row], "arrow", arrow) if group is None else (self._bands[row], "group", group)
        if key not in self._units:
            pad, title = (0.0, 0.0) if group is None else (self._parts.pad, self._parts.groups[group].title)
            self._units[key] = _Unit(pad + title, pad, _LANE_GAP if group is None else _GAP)
        item = _Item(row, self._units[key], *size, gap)
        item.unit.rows[row].append(item)
        return item

    def _chain(self, index: int) -> list[_Item]:
        """The source of an arrow, its label or a way-point in each row between, and its target."""
        source, target = (self._operators[name] for name in self._parts.arrows[index])
        groups = {self._bands[self._operators[name].row]: self._group_of[name] for name in self._parts.arrows[index]}
        between = []
        for row in range(source.row + 1, target.row):
            is_label = self._label_rows[index] == row
            size, gap = (self._parts.labels[index], _LABEL_GAP) if is_label else ((0.0, _LANE), _LANE_GAP)
            between.append(self._item(row, size, gap, groups.get(self._bands[row]), index))
        return [source, *between, target]

    def spread_rows(self) -> None:
        """Place everything across the flow: near to what arrows join it to, in an order with few crossings."""
        bands: dict[int, list[_Unit]] = defaultdict(list)
        for key, unit in sorted(self._units.items(), key=lambda entry: entry[0][0]):
            rows = unit.rows.values()
            content = max(total([item.breadth for item in row], [item.gap for item in row]) for row in rows)
            unit.breadth = unit.before + content + unit.behind
            bands[key[0]].append(unit)
        self._whole = max(
            total([unit.breadth for unit in band], [unit.gap for unit in band]) for band in bands.values()
        )
        for number in range(_PASSES):
            for band in reversed(bands.values()) if number % 2 else bands.values():
                if number < _SORTED:
                    band.sort(key=lambda unit: unit.wanted(self._whole / 2))
                self._spread_band(band, number)

    def _spread_band(self, band: Sequence[_Unit], number: int) -> None:
        is_back = number % 2 == 1
        breadths, gaps = [unit.breadth for unit in band], [unit.gap for unit in band]
        middles = spread([unit.wanted(self._whole / 2) for unit in band], breadths, gaps, 0.0, self._whole)
        for unit, middle in zip(band, middles, strict=True):
            unit.start = middle - unit.breadth / 2
            start, end = unit.start + unit.before, unit.start + unit.breadth - unit.behind
            for _, row in sorted(unit.rows.items(), reverse=is_back):
                wanted = {item: item.wanted(is_back, (start + end) / 2) for item in row}
                if number < _SORTED:
                    row.sort(key=wanted.__getitem__)
                sizes, gaps = [item.breadth for item in row], [item.gap for item in row]
                places = spread([wanted[item] for item in row], sizes, gaps, start, end)
                for item, place in zip(row, places, strict=True):
                    item.middle = place

    def layout(self) -> Layout:
        starts, lengths, whole = self._along()
        pad = self._parts.pad

        def turned(along: float, across: float) -> Size:
            return (across, along) if self._parts.is_downward else (along, across)

        def box(along: float, across: float, length: float, breadth: float) -> Box:
            return Box(*turned(along, across), *turned(length, breadth))

        frames = []
        for group in self._parts.groups:
            items = [self._operators[name] for name in group.operators]
            rows, unit = [item.row for item in items], items[0].unit
            length = starts[max(rows)] + lengths[max(rows)] - starts[min(rows)] + 2 * pad
            frames.append(box(starts[min(rows)] - pad, unit.start, length, unit.breadth))
        ends = self._ends(0), self._ends(-1)
        labels, lines = [], []
        for index, chain in enumerate(self._chains):
            points = [(starts[chain[0].row] + lengths[chain[0].row], ends[0][index])]
            for item in chain[1:-1]:
                start, length = starts[item.row], lengths[item.row]
                points += [(start, item.middle), (start + length, item.middle)]
                if item.row == self._label_rows[index]:
                    labels.append(box(start + (length - item.length) / 2, item.start, item.length, item.breadth))
            points.append((starts[chain[-1].row], ends[1][index]))
            lines.append([turned(*point) for point in points])
        boxes = {
            name: box(starts[item.row], item.start, lengths[item.row], item.breadth)
            for name, item in self._operators.items()
        }
        return Layout(boxes, frames, lines, labels, *turned(whole, self._whole), self._parts.is_downward)

    def _along(self) -> tuple[list[float], list[float], float]:
        """Where each row begins along the flow, how long it is, and the length of all."""
        lengths, far, starts = [0.0] * len(self._bands), [0.0] * len(self._bands), []
        for item in (item for unit in self._units.values() for row in unit.rows.values() for item in row):
            lengths[item.row] = max(lengths[item.row], item.length)
        for one, other in (pair for chain in self._chains for pair in pairwise(chain)):
            far[other.row] = max(far[other.row], abs(one.middle - other.middle))
        labels = set(self._label_rows.values())
        end = 0.0
        for row, (before, band, after) in enumerate(
            zip([0, *self._bands[:-1]], self._bands, [*self._bands[1:], 0], strict=True)
        ):
            if row:
                gap = _BEND if row - 1 not in labels else _LINE if row in labels else _HEAD
                end += gap + min(_MAX_BEND, _BEND_PART * far[row])
            end += self._parts.pad * (band % 2 == 1 and before != band)
            starts.append(end)
            end += lengths[row] + self._parts.pad * (band % 2 == 1 and after != band)
        return starts, lengths, end

    def _ends(self, end: int) -> dict[int, float]:
        """Where on a box's side each arrow begins (0) or ends (-1): spread evenly, in the order of what is next."""
        by_box: dict[_Item, list[tuple[float, int]]] = defaultdict(list)
        for index, chain in enumerate(self._chains):
            by_box[chain[end]].append((chain[-2 if end else 1].middle, index))
        return {
            index: item.start + item.breadth * (position + 1) / (len(arrows) + 1)
            for item, arrows in by_box.items()
            for position, (_, index) in enumerate(sorted(arrows))
        }


def _mean(values: Iterable[float], otherwise: float = math.nan) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else otherwise


def broken(things: Iterable[Thing], size: Callable[[Thing], float], room: float) -> list[list[Thing]]:
    """Things in lines of at most this room, and at least one thing in each."""
    lines: list[list[Thing]] = []
    taken = 0.0
    for thing in things:
        if not lines or taken + size(thing) > room:
            lines.append([])
            taken = 0.0
        lines[-1].append(thing)
        taken += size(thing)
    return lines


def total(sizes: Sequence[float], gaps: Sequence[float]) -> float:
    """The room that intervals take at most, in any order: their sizes and the gaps between neighbours."""
    return sum(sizes) + sum(gaps) - min(gaps, default=0.0)


def spread(
    wanted: Sequence[float], sizes: Sequence[float], gaps: Sequence[float], start: float, end: float
) -> list[float]:
    """The middles of intervals in their order, each near to its wanted place, so that they do not overlap.

    Args:
        gaps: The room that each wants beside it; between neighbours it is half of both.
        end: No interval ends after this; total() of them must fit between.

    Source:
        The pool-adjacent-violators algorithm of isotonic regression: the wanted middles, less the room that goes
        before, must not decrease, and the nearest such sequence consists of means.
    """
    steps = [(one + other) / 2 for one, other in pairwise([size + gap for size, gap in zip(sizes, gaps, strict=True)])]
    offsets = list(accumulate(steps, initial=0.0))
    pools: list[tuple[float, int]] = []
    for middle, offset in zip(wanted, offsets, strict=True):
        mean, count = middle - offset, 1
        while pools and pools[-1][0] > mean:
            other, more = pools.pop()
            mean, count = (mean * count + other * more) / (count + more), count + more
        pools.append((mean, count))
    first = start + sizes[0] / 2
    last = max(first, end - sizes[-1] / 2 - offsets[-1])
    means = [min(max(mean, first), last) for mean, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
