"""Lays out a picture of a plan: from left to right where that is not too wide, otherwise from top to bottom."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from dagflow.plan.render.drawing import Drawing
from dagflow.plan.render.picture import Box, Layout, Route
from dagflow.plan.render.ranks import Item, Ranks, ranks_of
from dagflow.plan.render.row_placement import RowPlacement
from dagflow.plan.render.sizes import FRAME_PAD, Sizes
from dagflow.plan.render.straightening import Straightening

_ROOMS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)
"""Shares of the width that operators and labels may take in a row; passing arrows take the rest."""
_BEND = {False: 42.0, True: 30.0}
"""Pixels behind a box at which its arrows bend, from left to right and from top to bottom."""
_BEND_PART = 0.12
_MAX_BEND = 40.0
_HEAD = 18.0
"""Room for the head of an arrow."""
_LINE = 8.0
"""Pixels between rows of labels."""


def layout_of(drawing: Drawing, max_width: float) -> Layout:
    """Place everything.

    Args:
        drawing: The drawing.
        max_width: The width of the picture in pixels, at most, unless more arrows pass each other than fit side by
            side.
    """
    found = _Placement(drawing, False, math.inf).layout()
    for part in _ROOMS:
        if found.width <= max_width:
            break
        narrower = _Placement(drawing, True, part * max_width).layout()
        if narrower.width < found.width:
            found = narrower
    return found


class _Placement:
    """One way to place everything."""

    def __init__(self, drawing: Drawing, is_downward: bool, room: float) -> None:
        self._drawing = drawing
        self._sizes = Sizes(drawing, is_downward)
        self._ranks: Ranks = ranks_of(drawing, self._sizes, room)
        rows = RowPlacement(self._ranks, self._sizes)
        middles = rows.place()
        self._spans = rows.frame_spans
        self._whole = rows.whole
        straightening = Straightening(self._ranks, self._sizes, middles, self._spans, self._whole)
        self._middles: Mapping[Item, float] = straightening.straighten()
        self._starts, self._lengths = self._rows()

    def layout(self) -> Layout:
        """Place everything in pixels from left and top."""
        boxes = {name: self._operator_box(name) for name in self._ranks.row}
        frames = tuple(self._frame_box(index) for index in range(len(self._drawing.frames)))
        length = max(along + size for along, _, size, _ in frames)
        turned = {name: self._turned(*box) for name, box in boxes.items()}
        width, height = (self._whole, length) if self._sizes.is_downward else (length, self._whole)
        return Layout(
            turned,
            tuple(self._turned(*frame) for frame in frames),
            self._routes(boxes),
            width,
            height,
            self._sizes.titles,
            self._sizes.is_downward,
        )

    def _turned(self, along: float, across: float, length: float, breadth: float) -> Box:
        return Box(across, along, breadth, length) if self._sizes.is_downward else Box(along, across, length, breadth)

    def _point(self, along: float, across: float) -> tuple[float, float]:
        return (across, along) if self._sizes.is_downward else (along, across)

    def _rows(self) -> tuple[list[float], list[float]]:
        """Where each row begins along the flow, and how long it is."""
        ranks, sizes = self._ranks, self._sizes
        lengths = [0.0] * len(ranks.bands)
        for name, row in ranks.row.items():
            lengths[row] = max(lengths[row], sizes.operators[name][0])
        for index, row in ranks.label_rows.items():
            lengths[row] = max(lengths[row], sizes.labels[index][0])
        bends = self._bends()
        label_rows = set(ranks.label_rows.values())
        lasts = self._frame_rows()
        starts: list[float] = []
        end = 0.0
        for row, band in enumerate(ranks.bands):
            if row:
                was_label = row - 1 in label_rows
                end += (_LINE if row in label_rows else _HEAD) if was_label else _BEND[sizes.is_downward]
                end += bends[row]
                is_crossing = band != ranks.bands[row - 1]
                end += FRAME_PAD if is_crossing and ranks.bands[row - 1] % 2 else 0.0
            end += FRAME_PAD if band % 2 and (not row or ranks.bands[row - 1] != band) else 0.0
            starts.append(end)
            for index, (first, last) in lasts.items():
                if last == row:
                    inside = sizes.least_length(index) - 2 * FRAME_PAD
                    lengths[row] = max(lengths[row], starts[first] + inside - end)
            end += lengths[row]
        return starts, lengths

    def _bends(self) -> dict[int, float]:
        """The further room that arrows need before each row, because they come from far aside."""
        far: dict[int, float] = defaultdict(float)
        for chain in self._ranks.chains:
            for item, other in pairwise(chain):
                row = other[1] if isinstance(other, tuple) else self._ranks.row[other]
                far[row] = max(far[row], abs(self._middles[item] - self._middles[other]))
        return defaultdict(float, {row: min(_MAX_BEND, _BEND_PART * distance) for row, distance in far.items()})

    def _frame_rows(self) -> dict[int, tuple[int, int]]:
        """The first and the last row of each frame's operators."""
        rows: dict[int, list[int]] = defaultdict(list)
        for name, row in self._ranks.row.items():
            rows[self._ranks.frame_of[name]].append(row)
        return {frame: (min(found), max(found)) for frame, found in rows.items()}

    def _operator_box(self, name: str) -> tuple[float, float, float, float]:
        row = self._ranks.row[name]
        breadth = self._sizes.operators[name][1]
        return self._starts[row], self._middles[name] - breadth / 2, self._lengths[row], breadth

    def _frame_box(self, index: int) -> tuple[float, float, float, float]:
        first, last = self._frame_rows()[index]
        along = self._starts[first] - FRAME_PAD
        end = self._starts[last] + self._lengths[last] + FRAME_PAD
        across, breadth = self._spans[index]
        return along, across, end - along, breadth

    def _routes(self, boxes: Mapping[str, tuple[float, float, float, float]]) -> tuple[Route, ...]:
        chains = self._ranks.chains
        leaving = self._ends([(chain[0], chain[1], index) for index, chain in enumerate(chains)], boxes)
        reaching = self._ends([(chain[-1], chain[-2], index) for index, chain in enumerate(chains)], boxes)
        routes = []
        for index, (arrow, chain) in enumerate(zip(self._drawing.arrows, chains, strict=True)):
            source, target = boxes[arrow.edge.source.operator], boxes[arrow.edge.target.operator]
            points = [self._point(source[0] + source[2], leaving[index])]
            label = (0.0, 0.0, 0.0, 0.0)
            for item in chain[1:-1]:
                assert isinstance(item, tuple)  # only operators are at the ends
                start, length, middle = self._starts[item[1]], self._lengths[item[1]], self._middles[item]
                points += [self._point(start, middle), self._point(start + length, middle)]
                if self._ranks.is_label(item):
                    own, breadth = self._sizes.labels[index]
                    label = (start + (length - own) / 2, middle - breadth / 2, own, breadth)
            points.append(self._point(target[0], reaching[index]))
            routes.append(Route(arrow, tuple(points), self._turned(*label)))
        return tuple(routes)

    def _ends(
        self, ends: list[tuple[Item, Item, int]], boxes: Mapping[str, tuple[float, float, float, float]]
    ) -> dict[int, float]:
        """Where on a box's side each arrow ends: spread evenly, in the order of their sources."""
        by_box: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for end, neighbour, index in ends:
            by_box[str(end)].append((self._middles[neighbour], index))
        return {
            index: boxes[name][1] + boxes[name][3] * (position + 1) / (len(found) + 1)
            for name, found in by_box.items()
            for position, (_, index) in enumerate(sorted(found))
        }
