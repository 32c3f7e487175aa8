"""The content of every drawing of a plan: frames for the driver and the stages, and arrows between operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar

from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan, own_edge, own_operators, own_stages
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, Routing, Stage

FrameKey = TypeVar("FrameKey", bound=Hashable)

ArrowKind = Literal["control", "inside", "report"] | Routing

ArrowStyle = Literal["call", "assigned", "shuffle", "report"]

ROUTING_WORDS: Mapping[ArrowKind, str] = {
    "control": "",
    "inside": "",
    "assigned": "assigned by the driver",
    "assigned_by_key": "assigned by the driver, by",
    "assigned_to_all": "assigned by the driver, to all partitions",
    "round_robin": "shuffle, round robin",
    "by_key": "shuffle, by",
    "to_all": "shuffle, to all partitions",
    "report": "reported to the driver",
}
"""Text that an arrow's label adds to the stream's name, with the key behind it where there is one.

What is before the comma is explained by the legend of a picture.
"""


def routing_text(exchange: Exchange) -> str:
    words = ROUTING_WORDS[exchange.routing]
    return words if exchange.codec is None else f"{words} {exchange.codec}"


@frozen
class Frame:
    """The driver, or a stage: operators that run together.

    Attributes:
        subtitle: How many partitions it has; for the driver, when it runs, or "".
        column: Its position in the flow from left to right; arrows between frames lead to higher columns.
    """

    title: str
    subtitle: str
    column: int
    operators: tuple[str, ...]
    is_driver: bool

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.subtitle}" if self.subtitle else self.title


@frozen
class Arrow:
    """A stream's connection from one operator to another.

    Attributes:
        words: The same in words, unless it is a plain call.
    """

    edge: Edge
    kind: ArrowKind
    words: str = ""

    @property
    def label(self) -> str:
        return f"{self.edge.stream} ({self.words})" if self.words else self.edge.stream

    @property
    def short_label(self) -> str:
        """The label without what a legend of the styles says."""
        detail = self.words.partition(", ")[2]
        return f"{self.edge.stream} ({detail})" if detail else self.edge.stream

    @property
    def style(self) -> ArrowStyle:
        if self.kind in ("control", "inside"):
            return "call"
        return "report" if self.kind == "report" else "assigned" if self.kind.startswith("assigned") else "shuffle"


@frozen
class Drawing:
    """The content of a drawing."""

    app: str
    classes: Mapping[str, str]
    frames: tuple[Frame, ...]
    arrows: tuple[Arrow, ...]
    caption: str


def drawing_of(
    logical: LogicalPlan,
    physical: PhysicalPlan,
    partitions: Mapping[str, int | str],
    caption: str,
    redact: Callable[[str], str] = str,
) -> Drawing:
    """Gather the content of a drawing.

    Args:
        partitions: The number of partitions by a stage's head, or words such as "1 to 16".
        redact: Removes secrets from a text; what is drawn may be clipped or wrapped afterwards.
    """
    heads = {name: stage.head for stage in physical.stages for name in stage.operators}
    own = own_stages({**dict.fromkeys(physical.control, ""), **heads})
    frame = {name: head or name for name, head in own.items()}
    arrows = _own_arrows(logical, arrows_of(physical), frame, heads)
    steps = [(*arrow.edge.arc, int(arrow.kind != "control")) for arrow in arrows if arrow.kind != "inside"]
    column_of = columns_of(frame, steps)
    columns = {name: column_of[frame[name]] for name in frame}
    control = [name for name, head in own.items() if not head]
    driver = sorted({columns[name] for name in control})
    frames = [
        Frame(
            "driver",
            "" if column == 0 else "once the stages before it have run",
            column,
            tuple(name for name in control if columns[name] == column),
            True,
        )
        for column in driver
    ]
    for number, stage in enumerate(stage for stage in physical.stages if stage.head in own.values()):
        operators = tuple(name for name, head in own.items() if head == stage.head)
        subtitle = redact(partitions_text(stage, partitions))
        frames.append(Frame(f"stage {number}", subtitle, column_of[stage.head], operators, False))
    return Drawing(
        app=redact(logical.name),
        classes={name: redact(class_text(logical, name)) for name in frame},
        frames=tuple(sorted(frames, key=lambda frame: frame.column)),
        arrows=tuple(replace(each, words=redact(each.words)) for each in arrows),
        caption=redact(caption),
    )


def node_ids(drawing: Drawing) -> dict[str, str]:
    """A name for each operator that has no other meaning in the languages of drawings, as `end` has."""
    return {name: f"n{index}" for index, name in enumerate(drawing.classes)}


def class_text(logical: LogicalPlan, operator: str) -> str:
    if logical.spec is not None and operator in logical.spec.operators:
        return logical.spec.operators[operator].class_name.rpartition(".")[2]
    return type(own_operators(logical)[operator].operator).__name__


def partitions_text(stage: Stage, partitions: Mapping[str, int | str]) -> str:
    if stage.fixed_partitions is not None:
        return f"{_plural(stage.fixed_partitions)}, fixed"
    known = partitions.get(stage.head)
    return _plural(known) if known is not None else f"partitions decided by '{own_name(stage.head)}'"


def _plural(count: int | str) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"


def _own_arrows(
    logical: LogicalPlan, arrows: Iterable[Arrow], frame: Mapping[str, str], heads: Mapping[str, str]
) -> list[Arrow]:
    """The arrows between the operators of the app; an exchange inside of an operator is shown behind it."""
    arrows = list(arrows)
    exchanges = {
        (own_name(arrow.edge.source.operator), heads.get(arrow.edge.target.operator)): arrow
        for arrow in arrows
        if arrow.kind != "inside" and own_name(arrow.edge.source.operator) == own_name(arrow.edge.target.operator)
    }
    found = []
    for arrow in arrows:
        edge = own_edge(arrow.edge, logical.own_ports)
        if edge is None:
            continue
        if arrow.kind == "inside" and frame[edge.source.operator] != frame[edge.target.operator]:
            arrow = exchanges.get((edge.source.operator, heads[arrow.edge.source.operator]), arrow)
        found.append(replace(arrow, edge=edge))
    return list(dict.fromkeys(found))


def arrows_of(physical: PhysicalPlan) -> list[Arrow]:
    arrows = [Arrow(edge, "control") for edge in physical.control_edges]
    for stage in physical.stages:
        arrows += [Arrow(each.edge, each.routing, routing_text(each)) for each in stage.inputs]
        arrows += [Arrow(edge, "inside") for edge in stage.edges]
        arrows += [Arrow(edge, "report", ROUTING_WORDS["report"]) for edge in stage.reports]
    return arrows


def columns_of(frame_of: Mapping[str, FrameKey], arrows: Iterable[tuple[str, str, int]]) -> dict[FrameKey, int]:
    """The column of each frame, so that arrows lead to higher ones.

    Args:
        arrows: The source and the target of each arrow between frames, and by how many columns it leads on at least.
    """
    columns = dict.fromkeys(frame_of.values(), 0)
    between = [(frame_of[source], frame_of[target], step) for source, target, step in arrows]
    # The frames are acyclic, so as many rounds as there are frames are enough for every column.
    for _ in columns:
        before = dict(columns)
        for source, target, step in between:
            columns[target] = max(columns[target], columns[source] + step)
        if columns == before:
            break
    return columns
