"""How large the parts of a picture are, in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dagflow.plan.render.drawing import Arrow, Drawing
from dagflow.plan.render.text_metrics import clipped, text_width, wrapped

NAME, CLASS, LABEL, TITLE, SUBTITLE = 14.0, 12.0, 11.5, 14.0, 12.0
"""Sizes of text."""
MAX_TEXT = 210.0
"""No name and no label is wider; longer ones are clipped."""
FRAME_PAD = 20.0
TITLE_TOP = 21.0
"""From a frame's upper side to the foot of its title."""
LINE_HEIGHT = 16.0
_TITLE_PAD = 10.0
_SIDE_TEXT = 84.0
"""How wide the lines of a title beside the boxes are."""
_BOX_HEIGHT = 50.0
_BOX_PAD = 14.0
_LABEL_HEIGHT = 20.0
_LABEL_PAD = 7.0
LANE = 12.0
"""How much room an arrow has that passes by."""


@dataclass(frozen=True)
class Sizes:
    """The sizes of a drawing's parts, along the flow of its arrows and across it.

    Attributes:
        drawing: The drawing.
        is_downward: Whether arrows lead from top to bottom; otherwise from left to right.
    """

    drawing: Drawing
    is_downward: bool

    @cached_property
    def operators(self) -> Mapping[str, tuple[float, float]]:
        """Of each operator's box, along and across."""
        return {name: self._turned(box_width(name, text), _BOX_HEIGHT) for name, text in self.drawing.classes.items()}

    @cached_property
    def labels(self) -> tuple[tuple[float, float], ...]:
        """Of each arrow's label, along and across."""
        return tuple(self._turned(label_width(arrow), _LABEL_HEIGHT) for arrow in self.drawing.arrows)

    @cached_property
    def titles(self) -> tuple[tuple[str, ...], ...]:
        """The lines of each frame's title: above what is in it, or on the left, where no arrow crosses it."""
        room = _SIDE_TEXT if self.is_downward else MAX_TEXT
        return tuple(
            (frame.title, *(clipped(line, SUBTITLE, room) for line in wrapped(frame.subtitle, SUBTITLE, room)))
            for frame in self.drawing.frames
        )

    def frame_margins(self, frame: int) -> tuple[float, float, float, float]:
        """Between a frame and what is in it: along before and behind, across before and behind."""
        if self.is_downward:
            return FRAME_PAD, FRAME_PAD, FRAME_PAD + _title_width(self.titles[frame]), FRAME_PAD
        return FRAME_PAD, FRAME_PAD, _title_height(self.titles[frame]), FRAME_PAD

    def least_length(self, frame: int) -> float:
        """How long a frame must be for its title, along the flow."""
        title = self.titles[frame]
        return _title_height(title) if self.is_downward else _title_width(title) + FRAME_PAD

    def _turned(self, width: float, height: float) -> tuple[float, float]:
        return (height, width) if self.is_downward else (width, height)


def box_width(name: str, class_name: str) -> float:
    """How wide an operator's box is."""
    name_width = text_width(clipped(name, NAME, MAX_TEXT, is_bold=True), NAME, is_bold=True)
    return max(name_width, text_width(clipped(class_name, CLASS, MAX_TEXT), CLASS)) + 2 * _BOX_PAD


def label_width(arrow: Arrow) -> float:
    """How wide an arrow's label is."""
    return text_width(clipped(arrow.short_label, LABEL, MAX_TEXT), LABEL) + 2 * _LABEL_PAD


def _title_width(lines: Sequence[str]) -> float:
    first, *others = lines
    return FRAME_PAD + max(text_width(first, TITLE, is_bold=True), *(text_width(line, SUBTITLE) for line in others), 0)


def _title_height(lines: Sequence[str]) -> float:
    return TITLE_TOP + LINE_HEIGHT * (len(lines) - 1) + _TITLE_PAD
