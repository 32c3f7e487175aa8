"""Gives everything in a picture its row across the flow, so that all arrows lead to later rows.

Operators and labels have rows of their own. An arrow that passes a row has a way-point in it, so that it crosses
neither box nor label. Frames of one column of the plan share a band of rows. Where the room across is bounded, rows and
bands are broken like lines of text.

Source:
    Layers of bounded width: Coffman and Graham, "Optimal scheduling for two-processor systems" (1972).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagflow.plan.render.drawing import Drawing
from dagflow.plan.render.sizes import LANE, Sizes

Item = str | tuple[int, int]
"""An item of a row: an operator, or an arrow's label or way-point (the arrow's index, the row)."""

GAP = 24.0
"""Pixels between operators, and between frames, across the flow."""
LABEL_GAP = 10.0
"""Pixels between labels, across the flow."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The rows of a picture.

    Attributes:
        row: The row of each operator.
        label_rows: The row of each arrow's label.
        chains: Each arrow's items: its source, an item in every row between, its target.
        bands: The band of each row; rows between frames are in bands of their own.
        frame_of: The index of each operator's frame.
        band_of: The band of each frame.
    """

    row: dict[str, int] = field(default_factory=dict)
    label_rows: dict[int, int] = field(default_factory=dict)
    chains: list[list[Item]] = field(default_factory=list)
    bands: list[int] = field(default_factory=list)
    frame_of: dict[str, int] = field(default_factory=dict)
    band_of: dict[int, int] = field(default_factory=dict)

    def is_label(self, item: Item) -> bool:
        """Whether an item is an arrow's label."""
        return isinstance(item, tuple) and self.label_rows[item[0]] == item[1]

    def breadth(self, item: Item, sizes: Sizes) -> float:
        """How much room an item takes across the flow."""
        if isinstance(item, str):
            return sizes.operators[item][1]
        return sizes.labels[item[0]][1] if self.is_label(item) else LANE


def ranks_of(drawing: Drawing, sizes: Sizes, room: float) -> Ranks:
    """Give everything its row.

    Args:
        drawing: The drawing.
        sizes: The sizes of its parts.
        room: How much of a row may be taken across the flow, in pixels; infinite where rows are not broken.
    """
    ranks = Ranks(frame_of={name: index for index, frame in enumerate(drawing.frames) for name in frame.operators})
    local = _rows_in_frames(drawing, ranks.frame_of, sizes, room)
    arriving: dict[tuple[int, int], list[int]] = defaultdict(list)
    grouped = _bands(drawing, local, sizes, room)
    for band, frames in enumerate(grouped):
        ranks.band_of.update(dict.fromkeys(frames, 2 * band + 1))
    for index, arrow in enumerate(drawing.arrows):
        target = arrow.edge.target.operator
        arriving[ranks.band_of[ranks.frame_of[target]], local[target]].append(index)
    for band, frames in enumerate(grouped):
        names = [name for frame in frames for name in drawing.frames[frame].operators]
        for depth in range(1 + max(local[name] for name in names)):
            _add_labels(ranks, arriving[2 * band + 1, depth], 2 * band + (depth > 0), sizes, room)
            ranks.row.update((name, len(ranks.bands)) for name in names if local[name] == depth)
            ranks.bands.append(2 * band + 1)
    for index, arrow in enumerate(drawing.arrows):
        source, target = arrow.edge.source.operator, arrow.edge.target.operator
        between: list[Item] = [(index, row) for row in range(ranks.row[source] + 1, ranks.row[target])]
        ranks.chains.append([source, *between, target])
    return ranks


def _rows_in_frames(drawing: Drawing, frame_of: dict[str, int], sizes: Sizes, room: float) -> dict[str, int]:
    """Each operator's row in its frame: behind its sources there, in the first row that has room."""
    sources: dict[str, list[str]] = defaultdict(list)
    for arrow in drawing.arrows:
        source, target = arrow.edge.source.operator, arrow.edge.target.operator
        if frame_of[source] == frame_of[target]:
            sources[target].append(source)
    local: dict[str, int] = {}
    for frame in drawing.frames:
        taken: dict[int, float] = defaultdict(float)
        for name in frame.operators:  # upstream first
            across = sizes.operators[name][1] + GAP
            row = max((local[source] + 1 for source in sources[name]), default=0)
            while taken[row] and taken[row] + across > room:
                row += 1
            local[name] = row
            taken[row] += across
    return local


def _bands(drawing: Drawing, local: dict[str, int], sizes: Sizes, room: float) -> list[list[int]]:
    """The frames that are side by side, band by band."""
    bands: list[list[int]] = []
    for column in sorted({frame.column for frame in drawing.frames}):
        begun, taken = False, 0.0
        for index, frame in enumerate(drawing.frames):
            if frame.column != column:
                continue
            rows: dict[int, float] = defaultdict(float)
            for name in frame.operators:
                rows[local[name]] += sizes.operators[name][1] + GAP
            across = max(rows.values()) + sum(sizes.frame_margins(index)[2:])
            if not begun or taken + across > room:
                bands.append([])
                begun, taken = True, 0.0
            bands[-1].append(index)
            taken += across
    return bands


def _add_labels(ranks: Ranks, arrows: Sequence[int], band: int, sizes: Sizes, room: float) -> None:
    """Add the rows with the labels of arrows that arrive in the next row: neighbours in different ones."""
    taken = sum(sizes.labels[index][1] + LABEL_GAP for index in arrows)
    count = min(len(arrows), max(1, math.ceil(taken / room)))
    for position, index in enumerate(arrows):
        ranks.label_rows[index] = len(ranks.bands) + position % count
    ranks.bands.extend([band] * count)
