"""What a picture of a plan is made of: boxes, frames and arrows, and where they are."""

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
    """An arrow's way.

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
    """Where everything is.

    Attributes:
        boxes: The operators' boxes by name.
        frames: The frames' boxes, in the order of the drawing.
        routes: The arrows' ways, in the order of the drawing.
        width: Of the whole, in pixels.
        height: Of the whole, in pixels.
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
