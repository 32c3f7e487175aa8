"""What every drawing of a plan shows: frames for the places where operators run, and arrows between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge, PhysicalPlan, Stage

ArrowKind = Literal["control", "inside", "assigned", "round_robin", "report"]

ROUTING_WORDS: Mapping[ArrowKind, str] = {
    "control": "",
    "inside": "",
    "assigned": "assigned by the driver",
    "round_robin": "shuffle, round robin",
    "report": "reported to the driver",
}
"""What an arrow's label adds to the stream's name."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A place where operators run together: the driver, or a stage.

    Attributes:
        title: What it is.
        subtitle: How many partitions it has; of the driver when it gets to work, or "".
        column: Its position in the flow from left to right; arrows between frames lead to higher columns.
        operators: Names, upstream first.
        is_driver: Whether it is the driver.
    """

    title: str
    subtitle: str
    column: int
    operators: tuple[str, ...]
    is_driver: bool


@dataclass(frozen=True, slots=True)
class Arrow:
    """One stream's way from one operator to another.

    Attributes:
        edge: The edge.
        kind: How items get there.
    """

    edge: Edge
    kind: ArrowKind

    @property
    def label(self) -> str:
        """The stream's name, and how items get there where that is not by a plain call."""
        words = ROUTING_WORDS[self.kind]
        return f"{self.edge.stream} ({words})" if words else self.edge.stream


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a drawing shows.

    Attributes:
        app: The app's name.
        classes: Short class name of each operator.
        frames: The frames by column.
        arrows: The arrows.
        caption: A line below the drawing, or "".
    """

    app: str
    classes: Mapping[str, str]
    frames: tuple[Frame, ...]
    arrows: tuple[Arrow, ...]
    caption: str


def picture_of(
    logical: LogicalPlan, physical: PhysicalPlan, partitions: Mapping[str, int | str], caption: str
) -> Picture:
    """Gather what a drawing shows.

    Args:
        logical: The DAG.
        physical: Where its operators run.
        partitions: By a stage's head the number of its partitions, or words such as "1 to 16".
        caption: A line below the drawing, or "".
    """
    arrows = arrows_of(physical)
    columns = _columns(logical, physical, arrows)
    driver = sorted({columns[name] for name in physical.control})
    frames = [
        Frame(
            "driver",
            "" if column == 0 else "once the stages before it have run",
            column,
            tuple(name for name in physical.control if columns[name] == column),
            True,
        )
        for column in driver
    ]
    frames += [
        Frame(f"stage {stage.index}", partitions_text(stage, partitions), columns[stage.head], stage.operators, False)
        for stage in physical.stages
    ]
    classes = {name: class_text(logical, name) for name in logical.operators}
    return Picture(logical.name, classes, tuple(sorted(frames, key=lambda frame: frame.column)), tuple(arrows), caption)


def class_text(logical: LogicalPlan, operator: str) -> str:
    """An operator's class as people call it, without its module."""
    if logical.spec is not None:
        return logical.spec.operators[operator].class_name.rpartition(".")[2]
    return type(logical.operators[operator].operator).__name__


def partitions_text(stage: Stage, partitions: Mapping[str, int | str]) -> str:
    """How many partitions a stage has, as people say it."""
    if stage.fixed_partitions is not None:
        return f"{_plural(stage.fixed_partitions)}, fixed"
    known = partitions.get(stage.head)
    return _plural(known) if known is not None else f"partitions decided by '{stage.head}'"


def _plural(count: int | str) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def arrows_of(physical: PhysicalPlan) -> list[Arrow]:
    """Every edge of a plan, once."""
    arrows = [Arrow(edge, "control") for edge in physical.control_edges]
    for stage in physical.stages:
        arrows += [Arrow(exchange.edge, exchange.routing) for exchange in stage.inputs]
        arrows += [Arrow(edge, "inside") for edge in stage.edges]
        arrows += [Arrow(edge, "report") for edge in stage.reports]
    return arrows


def _columns(logical: LogicalPlan, physical: PhysicalPlan, arrows: list[Arrow]) -> dict[str, int]:
    """For each operator the column of its frame."""
    heads = {name: stage.head for stage in physical.stages for name in stage.operators}
    frame = {name: heads.get(name, name) for name in logical.operators}
    columns = dict.fromkeys(frame, 0)
    crossing = [arrow for arrow in arrows if arrow.kind != "inside"]
    # The frames are acyclic, so that as many rounds as there are operators settle every column.
    for _ in logical.operators:
        before = dict(columns)
        for arrow in crossing:
            source, target = frame[arrow.edge.source.operator], frame[arrow.edge.target.operator]
            columns[target] = max(columns[target], columns[source] + (arrow.kind != "control"))
        if columns == before:
            break
    return {name: columns[frame[name]] for name in frame}
