"""Lays out a drawing of a plan in layers, from left to right.

Each operator has a rank, and each frame a range of ranks that it shares only with frames of the same
column. An arrow that skips ranks gets a way-point in each of them, so that it passes no box.

Source:
    The steps are those of Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical
    system structures" (1981): ranks, way-points, order by barycentre, coordinates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from dagflow.plan.render.drawing import Arrow, Drawing, Frame

BOX_HEIGHT = 54.0
FRAME_PAD = 22.0
FRAME_TITLE = 46.0
_ROW_GAP = 26.0
_UNIT_GAP = 30.0
_LANE = 18.0
_CURVE = 44.0
_ARROW_HEAD = 12.0


def text_width(text: str, size: float) -> float:
    """About how wide a text is in a sans-serif face; wide letters of other scripts count double."""
    return sum(1.0 if ord(char) < 0x1100 else 1.8 for char in text) * size * 0.56


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; x and y are its left upper corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """An arrow's way.

    Attributes:
        arrow: The arrow.
        points: Corners from the source's right side to the target's left side; between the first two of each
            pair it bends, and from the last but one on it runs level, below its label.
    """

    arrow: Arrow
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is.

    Attributes:
        boxes: The operators' boxes by name.
        frames: The frames' boxes, in the order of the drawing.
        routes: The arrows' ways, in the order of the drawing.
        width: Of the whole.
        height: Of the whole.
    """

    boxes: dict[str, Box]
    frames: tuple[Box, ...]
    routes: tuple[Route, ...]
    width: float
    height: float


_Item = str | tuple[int, int]
"""What takes room in a rank: an operator, or the way-point of an arrow (arrow's index, rank)."""


class LayeredLayout:
    """Computes the layout of one drawing."""

    def __init__(self, drawing: Drawing, label_size: float) -> None:
        self._drawing = drawing
        self._label_size = label_size
        self._frame_of = {name: index for index, frame in enumerate(drawing.frames) for name in frame.operators}
        self._local = self._local_ranks()
        self._first_rank, self._columns = self._rank_ranges()
        self._rank = {name: self._first_rank[self._frame(name).column] + self._local[name] for name in self._frame_of}
        self._before: dict[_Item, list[_Item]] = defaultdict(list)
        self._chains = [self._chain(index, arrow) for index, arrow in enumerate(drawing.arrows)]
        self._x, self._widths = self._horizontal()
        self._y: dict[_Item, float] = {}
        self._frame_spans: dict[int, tuple[float, float]] = {}

    def compute(self) -> Layout:
        """Place everything."""
        height = self._vertical()
        boxes = {
            name: Box(self._x[rank], self._y[name] - BOX_HEIGHT / 2, self._width(name), BOX_HEIGHT)
            for name, rank in self._rank.items()
        }
        frames = tuple(self._frame_box(index, boxes) for index in range(len(self._drawing.frames)))
        routes = self._routes(boxes)
        return Layout(boxes, frames, routes, max(box.x + box.width for box in frames), height)

    def _frame(self, name: str) -> Frame:
        return self._drawing.frames[self._frame_of[name]]

    def _width(self, name: str) -> float:
        return max(text_width(name, 14.5), text_width(self._drawing.classes[name], 12)) + 34

    def _local_ranks(self) -> dict[str, int]:
        """Longest way to each operator inside of its frame; operators stand upstream first in their frames."""
        local = dict.fromkeys(self._frame_of, 0)
        sources: dict[str, list[str]] = defaultdict(list)
        for arrow in self._drawing.arrows:
            source, target = arrow.edge.source.operator, arrow.edge.target.operator
            if self._frame_of[source] == self._frame_of[target]:
                sources[target].append(source)
        for frame in self._drawing.frames:
            for name in frame.operators:
                local[name] = max((local[source] + 1 for source in sources[name]), default=0)
        return local

    def _rank_ranges(self) -> tuple[dict[int, int], dict[int, range]]:
        """The first rank of each column, and all of its ranks."""
        first: dict[int, int] = {}
        ranges: dict[int, range] = {}
        rank = 0
        for column in sorted({frame.column for frame in self._drawing.frames}):
            names = [name for frame in self._drawing.frames if frame.column == column for name in frame.operators]
            depth = 1 + max(self._local[name] for name in names)
            first[column], ranges[column] = rank, range(rank, rank + depth)
            rank += depth
        return first, ranges

    def _chain(self, index: int, arrow: Arrow) -> list[_Item]:
        source, target = arrow.edge.source.operator, arrow.edge.target.operator
        between: list[_Item] = [(index, rank) for rank in range(self._rank[source] + 1, self._rank[target])]
        chain: list[_Item] = [source, *between, target]
        for before, after in pairwise(chain):
            self._before[after].append(before)
        return chain

    def _horizontal(self) -> tuple[list[float], list[float]]:
        """The left side of each rank, and its width."""
        ranks = 1 + max(self._rank.values())
        widths = [0.0] * ranks
        for name, rank in self._rank.items():
            widths[rank] = max(widths[rank], self._width(name))
        labels = [0.0] * ranks
        for arrow in self._drawing.arrows:
            rank = self._rank[arrow.edge.target.operator]
            labels[rank] = max(labels[rank], text_width(arrow.label, self._label_size))
        starts = set(self._first_rank.values())
        spans: dict[int, tuple[int, int]] = {}
        for name, index in self._frame_of.items():
            first, last = spans.get(index, (ranks, 0))
            spans[index] = min(first, self._rank[name]), max(last, self._rank[name])
        x = [FRAME_PAD]
        for rank in range(ranks):
            if rank:
                borders = 2 * FRAME_PAD if rank in starts else 0.0
                x.append(x[-1] + widths[rank - 1] + _CURVE + labels[rank] + 2 * _ARROW_HEAD + borders)
            for index, (first, last) in spans.items():
                if last == rank:
                    widths[rank] = max(widths[rank], x[first] + self._title_width(index) - 2 * FRAME_PAD - x[rank])
        return x, widths

    def _vertical(self) -> float:
        """Give every item its middle; returns the height of the whole."""
        units = {column: self._units(column) for column in self._columns}
        heights = {
            column: sum(self._unit_height(unit, rows) for unit, rows in found.items()) + _UNIT_GAP * (len(found) - 1)
            for column, found in units.items()
        }
        whole = max(heights.values())
        for column, found in units.items():
            top = (whole - heights[column]) / 2
            for unit in sorted(found, key=lambda unit: self._unit_middle(found[unit])):
                height = self._unit_height(unit, found[unit])
                self._place_unit(unit, found[unit], top, height)
                top += height + _UNIT_GAP
        return whole

    def _units(self, column: int) -> dict[int, dict[int, list[_Item]]]:
        """What stands one above the other in a column: frames by index, and lanes of passing arrows by ~arrow.

        The rows of each are its items by rank.
        """
        units: dict[int, dict[int, list[_Item]]] = {}
        for name, rank in self._rank.items():
            if rank in self._columns[column]:
                units.setdefault(self._frame_of[name], {}).setdefault(rank, []).append(name)
        for index, chain in enumerate(self._chains):
            ends = [self._frame_of[end] for end in (chain[0], chain[-1]) if isinstance(end, str)]
            own = [frame for frame in ends if self._drawing.frames[frame].column == column]
            for item in chain[1:-1]:
                if isinstance(item, tuple) and item[1] in self._columns[column]:
                    units.setdefault(own[0] if own else ~index, {}).setdefault(item[1], []).append(item)
        return units

    @staticmethod
    def _item_height(item: _Item) -> float:
        return BOX_HEIGHT if isinstance(item, str) else _LANE

    def _row_height(self, row: Iterable[_Item]) -> float:
        heights = [self._item_height(item) for item in row]
        return sum(heights) + _ROW_GAP * (len(heights) - 1)

    def _unit_height(self, unit: int, rows: dict[int, list[_Item]]) -> float:
        inside = max(self._row_height(row) for row in rows.values())
        return inside + (FRAME_TITLE + FRAME_PAD if unit >= 0 else 0.0)

    def _middle_before(self, item: _Item) -> float:
        known = [self._y[before] for before in self._before[item] if before in self._y]
        return sum(known) / len(known) if known else 0.0

    def _unit_middle(self, rows: dict[int, list[_Item]]) -> float:
        middles = [self._middle_before(item) for row in rows.values() for item in row if self._before[item]]
        return sum(middles) / len(middles) if middles else 0.0

    def _place_unit(self, unit: int, rows: dict[int, list[_Item]], top: float, height: float) -> None:
        if unit >= 0:
            self._frame_spans[unit] = (top, height)
            top, height = top + FRAME_TITLE, height - FRAME_TITLE - FRAME_PAD
        for rank in sorted(rows):
            y = top + (height - self._row_height(rows[rank])) / 2
            for item in sorted(rows[rank], key=self._middle_before):
                self._y[item] = y + self._item_height(item) / 2
                y += self._item_height(item) + _ROW_GAP

    def _frame_box(self, index: int, boxes: dict[str, Box]) -> Box:
        inside = [boxes[name] for name in self._drawing.frames[index].operators]
        left = min(box.x for box in inside) - FRAME_PAD
        right = max(box.x + box.width for box in inside) + FRAME_PAD
        top, height = self._frame_spans[index]
        return Box(left, top, max(right - left, self._title_width(index)), height)

    def _title_width(self, index: int) -> float:
        frame = self._drawing.frames[index]
        return max(text_width(frame.title, 14), text_width(frame.subtitle, 12)) + 2 * FRAME_PAD

    def _routes(self, boxes: dict[str, Box]) -> tuple[Route, ...]:
        leaving = self._ports([(chain[0], chain[1], index) for index, chain in enumerate(self._chains)], boxes)
        reaching = self._ports([(chain[-1], chain[-2], index) for index, chain in enumerate(self._chains)], boxes)
        routes = []
        for index, (arrow, chain) in enumerate(zip(self._drawing.arrows, self._chains, strict=True)):
            source, target = boxes[arrow.edge.source.operator], boxes[arrow.edge.target.operator]
            points = [(source.x + source.width, leaving[index])]
            for item in chain[1:-1]:
                assert isinstance(item, tuple)  # only way-points stand between the ends
                left = self._x[item[1]]
                points += [(left, self._y[item]), (left + self._widths[item[1]], self._y[item])]
            is_crossing = self._frame_of[arrow.edge.source.operator] != self._frame_of[arrow.edge.target.operator]
            label = text_width(arrow.label, self._label_size) + 2 * _ARROW_HEAD + (FRAME_PAD if is_crossing else 0.0)
            points += [(target.x - label, reaching[index]), (target.x, reaching[index])]
            routes.append(Route(arrow, tuple(points)))
        return tuple(routes)

    def _ports(self, ends: list[tuple[_Item, _Item, int]], boxes: dict[str, Box]) -> dict[int, float]:
        """Where on a box's side each arrow ends: spread evenly, in the order of where they come from."""
        by_box: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for end, neighbour, index in ends:
            by_box[str(end)].append((self._y[neighbour], index))
        return {
            index: boxes[name].y + BOX_HEIGHT * (position + 1) / (len(found) + 1)
            for name, found in by_box.items()
            for position, (_, index) in enumerate(sorted(found))
        }
