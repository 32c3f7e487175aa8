"""The sizes of the parts of a picture, in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dagflow.plan.render.drawing import Arrow, Drawing
from dagflow.plan.render.text_metrics import clipped, text_width, wrapped

NAME, CLASS, LABEL, TITLE, SUBTITLE = 14.0, 12.0, 11.5, 14.0, 12.0
"""Font sizes."""
MAX_TEXT = 210.0
"""Width of a name or a label, at most; longer ones are clipped."""
FRAME_PAD = 20.0
TITLE_TOP = 21.0
"""From a frame's upper side to the baseline of its title."""
LINE_HEIGHT = 16.0
_TITLE_PAD = 10.0
_SIDE_TEXT = 84.0
"""Width of the lines of a title beside the boxes."""
_BOX_HEIGHT = 50.0
_BOX_PAD = 14.0
_LABEL_HEIGHT = 20.0
_LABEL_PAD = 7.0
LANE = 12.0
"""Room for a passing arrow."""


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
        """The size of each operator's box, along and across the flow."""
        return {name: self._turned(box_width(name, text), _BOX_HEIGHT) for name, text in self.drawing.classes.items()}

    @cached_property
    def labels(self) -> tuple[tuple[float, float], ...]:
        """The size of each arrow's label, along and across the flow."""
        return tuple(self._turned(label_width(arrow), _LABEL_HEIGHT) for arrow in self.drawing.arrows)

    @cached_property
    def titles(self) -> tuple[tuple[str, ...], ...]:
        """The lines of each frame's title: above its content, or on the left, where no arrow crosses it."""
        room = _SIDE_TEXT if self.is_downward else MAX_TEXT
        return tuple(
            (frame.title, *(clipped(line, SUBTITLE, room) for line in wrapped(frame.subtitle, SUBTITLE, room)))
            for frame in self.drawing.frames
        )

    def frame_margins(self, frame: int) -> tuple[float, float, float, float]:
        """The margins between a frame and its content: along before and behind, across before and behind."""
        if self.is_downward:
            return FRAME_PAD, FRAME_PAD, FRAME_PAD + _title_width(self.titles[frame]), FRAME_PAD
        return FRAME_PAD, FRAME_PAD, _title_height(self.titles[frame]), FRAME_PAD

    def least_length(self, frame: int) -> float:
        """The least length of a frame along the flow, for its title."""
        title = self.titles[frame]
        return _title_height(title) if self.is_downward else _title_width(title) + FRAME_PAD

    def _turned(self, width: float, height: float) -> tuple[float, float]:
        return (height, width) if self.is_downward else (width, height)


def box_width(name: str, class_name: str) -> float:
    """The width of an operator's box."""
    name_width = text_width(clipped(name, NAME, MAX_TEXT, is_bold=True), NAME, is_bold=True)
    return max(name_width, text_width(clipped(class_name, CLASS, MAX_TEXT), CLASS)) + 2 * _BOX_PAD


def label_width(arrow: Arrow) -> float:
    """The width of an arrow's label."""
    return text_width(clipped(arrow.short_label, LABEL, MAX_TEXT), LABEL) + 2 * _LABEL_PAD


def _title_width(lines: Sequence[str]) -> float:
    first, *others = lines
    return FRAME_PAD + max(text_width(first, TITLE, is_bold=True), *(text_width(line, SUBTITLE) for line in others), 0)


def _title_height(lines: Sequence[str]) -> float:
    return TITLE_TOP + LINE_HEIGHT * (len(lines) - 1) + _TITLE_PAD
