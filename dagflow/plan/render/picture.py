"""The parts of a picture of a plan, and where they are: boxes, frames and arrows."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.plan.render.drawing import Arrow


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; x and y are its left upper corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Route:
    """The line of an arrow.

    Attributes:
        arrow: The arrow.
        points: Corners from the source's side to the target's side; it bends between the first two of each pair.
        label: Where its label is.
    """

    arrow: Arrow
    points: tuple[tuple[float, float], ...]
    label: Box


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all parts.

    Attributes:
        boxes: The operators' boxes by name.
        frames: The frames' boxes, in the order of the drawing.
        routes: The arrows' lines, in the order of the drawing.
        width: Width of the picture, in pixels.
        height: Height of the picture, in pixels.
        titles: The lines of each frame's title.
        is_downward: Whether arrows lead from top to bottom; otherwise from left to right.
    """

    boxes: dict[str, Box]
    frames: tuple[Box, ...]
    routes: tuple[Route, ...]
    width: float
    height: float
    titles: tuple[tuple[str, ...], ...]
    is_downward: bool
