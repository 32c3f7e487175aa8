"""Draws a plan for a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dagflow.api.capabilities.composite import Composite
from dagflow.api.capabilities.plan_explanation import Explained
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.errors import own_name
from dagflow.plan.accumulators import accumulators, over_text
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.own_operators import own_operators, own_port
from dagflow.plan.physical import PortRef
from dagflow.plan.render.drawing import Arrow, Drawing, Frame
from dagflow.plan.render.rails import NODE, Rails
from dagflow.plan.stream_columns import stream_columns
from dagflow.spec.problems import Problems

WIDTH = 80
_SHOWN_COLUMNS = 12
_LEAST_TEXT = 30
"""Characters left for text; lines are longer where more rails pass each other than leave so much room."""


def text(logical: LogicalPlan, drawing: Drawing, redact: Callable[[str], str]) -> str:
    """The plan as text: operators below the driver or stage that they run in, with a rail for each arrow."""
    return "\n".join(line.rstrip() for line in _lines(logical, drawing, redact)) + "\n"


def _lines(logical: LogicalPlan, drawing: Drawing, redact: Callable[[str], str]) -> Iterator[str]:
    yield f"app '{drawing.app}'"
    rows = list(_rows(logical, drawing, redact))
    left = 2 + max(len(row.rail) for row in rows)
    room = max(WIDTH - left - 2, _LEAST_TEXT)
    for row in rows:
        lines = textwrap.wrap(row.words, room - row.indent, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            yield f"  {row.rail if not number else row.below:<{left}}{' ' * row.indent}{line}"
    if drawing.caption:
        yield ""
        yield "estimate"
        yield from textwrap.wrap(drawing.caption, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")


@dataclass(frozen=True, slots=True)
class _Row:
    """A paragraph beside rails.

    Attributes:
        rail: The rails beside its first line.
        below: The rails beside its other lines.
        indent: How far its words are shifted to the right.
        words: Its words.
    """

    rail: str
    below: str
    indent: int = 0
    words: str = ""


def _rows(logical: LogicalPlan, drawing: Drawing, redact: Callable[[str], str]) -> Iterator[_Row]:
    rails = Rails(drawing.arrows)
    nodes = own_operators(logical)
    holding = {own_name(name): each for name, each in accumulators(logical.instances).items()}
    known = stream_columns(logical, Problems())
    columns = {own: known[port] for port in known if (own := own_port(port, logical.own_ports)) is not None}
    for frame in drawing.frames:
        yield _Row(rails.passing(), "")
        yield _Row(rails.passing(), rails.passing(), 0, _title(frame))
        for name in _one_by_one(frame.operators, drawing.arrows):
            node = nodes[name]
            partition = f", partition: {node.partition}" if node.partition is not None else ""
            over = f", over: {over_text(holding[name])}" if name in holding else ""
            for line in rails.node(name):
                is_there = NODE in line
                more = f"; {redact(explained)}" if (explained := _explanation(logical, name)) else ""
                words = f"{name} ({drawing.classes[name]}{redact(partition)}{over}){more}" if is_there else ""
                yield _Row(line, rails.passing(), 2, words)
            for arrow, line in rails.leaving(name):
                yield _Row(line, rails.passing(), 4, _words(nodes, arrow, columns))


def _one_by_one(operators: Sequence[str], arrows: Sequence[Arrow]) -> Iterator[str]:
    """The operators of a frame, each as soon as all its sources are drawn, so that rails are short."""
    edges = [(arrow.edge.source.operator, arrow.edge.target.operator) for arrow in arrows]
    inside = [(source, target) for source, target in edges if source in operators and target in operators]
    waiting = {name: sum(target == name for _, target in inside) for name in operators}
    ready = [name for name in reversed(operators) if not waiting[name]]
    while ready:
        name = ready.pop()
        yield name
        behind = [target for source, target in inside if source == name]
        for target in behind:
            waiting[target] -= 1
        ready += [target for target in reversed(list(dict.fromkeys(behind))) if not waiting[target]]


def _explanation(logical: LogicalPlan, name: str) -> str:
    """What an operator, or its parts, say of themselves; and the parts of a composite one."""
    parts = [each for part, each in logical.instances.items() if own_name(part) == name]
    composite = logical.composites.get(name)
    made = composite.operator.expand() if composite is not None and isinstance(composite.operator, Composite) else None
    made_of = ["made of " + ", ".join(type(each).__name__ for each in made.parts.values())] if made is not None else []
    return "; ".join(
        [*made_of, *(line for each in parts if isinstance(each, Explained) for line in each.explanation())]
    )


def _title(frame: Frame) -> str:
    return f"{frame.title}: {frame.subtitle}" if frame.subtitle else frame.title


def _words(nodes: Mapping[str, OperatorNode], arrow: Arrow, columns: Mapping[PortRef, StreamColumns]) -> str:
    edge = arrow.edge
    port = type(nodes[edge.source.operator].operator).output_ports[edge.source.port]
    kind = f", {port.type_name}" if port.type_name != "records" else ""
    how = f", {arrow.words}" if arrow.words else ""
    known = columns.get(edge.source)
    of = f", of {_columns_text(known)}" if known is not None and not known.is_raw else ""
    return f"{edge.stream}: {edge.source.port} -> {edge.target}{kind}{how}{of}"


def _columns_text(columns: StreamColumns) -> str:
    """The first columns with their types, and how many more there are."""
    texts = [f"{field.name} {field.type}" for field in columns.schema]
    more = [f"{len(texts) - _SHOWN_COLUMNS} more"] if len(texts) > _SHOWN_COLUMNS else []
    others = [f"others {columns.others}"] if columns.others is not None else []
    return ", ".join([*texts[:_SHOWN_COLUMNS], *more, *others])
