"""Shows a plan: as text for a terminal of 80 columns, in the languages of Mermaid and Graphviz, or as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

from dagflow.api.capabilities import Composite
from dagflow.api.columns.column_typing import StreamColumns, type_name
from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.plan.accumulators import accumulators, over_text
from dagflow.plan.logical import LogicalPlan, OperatorNode, own_operators, own_port
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.plan.render.drawing import Arrow, ArrowStyle, Drawing, drawing_of, node_ids
from dagflow.plan.render.svg import svg_lines
from dagflow.plan.stream_columns import stream_columns
from dagflow.spec.problems import Problems

Format = Literal["text", "mermaid", "dot", "svg"]
FORMATS: tuple[Format, ...] = get_args(Format)


def explain(
    logical: LogicalPlan,
    physical: PhysicalPlan,
    *,
    format: Format = "text",
    partitions: Mapping[str, int | str] | None = None,
    estimate: str = "",
    redact: Callable[[str], str] = str,
) -> str:
    """Show a plan.

    Args:
        partitions: The number of partitions by a stage's head, or words such as "1 to 16"; other stages are shown as
            deciding for themselves.
    """
    drawing = drawing_of(logical, physical, partitions or {}, estimate, redact)
    if format == "text":
        lines = _text_lines(logical, drawing, redact)
    else:
        lines = {"mermaid": _mermaid_lines, "dot": _dot_lines, "svg": svg_lines}[format](drawing)
    return "\n".join(lines) + "\n"


_STYLES = {"call": "solid", "assigned": "dashed", "shuffle": "bold", "report": "dotted"}


def _dot_lines(drawing: Drawing) -> Iterator[str]:
    ids = node_ids(drawing)
    yield f"digraph {_string(drawing.app)} {{"
    yield '    graph [rankdir=LR, fontname="sans-serif", style=rounded, color="#9aa5b1"]'
    yield '    node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"]'
    yield '    edge [fontname="sans-serif", fontsize=10]'
    if drawing.caption:
        yield f"    label={_string(drawing.caption)}"
    for index, frame in enumerate(drawing.frames):
        yield f"    subgraph cluster_{index} {{"
        yield f"        label={_string(frame.heading)}"
        for name in frame.operators:
            yield f"        {ids[name]} [label={_string(name, drawing.classes[name])}]"
        yield "    }"
    for arrow in drawing.arrows:
        source, target = ids[arrow.edge.source.operator], ids[arrow.edge.target.operator]
        yield f"    {source} -> {target} [label={_string(arrow.label)}, style={_STYLES[arrow.style]}]"
    yield "}"


def _string(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'


_ARROWS = {"call": "-->", "assigned": "-.->", "shuffle": "==>", "report": "-.->"}


def _mermaid_lines(drawing: Drawing) -> Iterator[str]:
    ids = node_ids(drawing)
    yield "flowchart LR"
    yield f"    %% app {drawing.app}" + (f": {drawing.caption}" if drawing.caption else "")
    for index, frame in enumerate(drawing.frames):
        yield f'    subgraph f{index}["{_entities(frame.heading)}"]'
        for name in frame.operators:
            yield f'        {ids[name]}["{_entities(name)}<br/><i>{_entities(drawing.classes[name])}</i>"]'
        yield "    end"
    for arrow in drawing.arrows:
        source, target = ids[arrow.edge.source.operator], ids[arrow.edge.target.operator]
        yield f'    {source} {_ARROWS[arrow.style]}|"{_entities(arrow.label)}"| {target}'


def _entities(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _-.,:()'" else f"#{ord(char)};" for char in text)


WIDTH = 80
_SHOWN_COLUMNS = 12
_LEAST_TEXT = 30
"""Characters left for text; lines are longer where more rails pass each other than leave so much room."""


def _text_lines(logical: LogicalPlan, drawing: Drawing, redact: Callable[[str], str]) -> Iterator[str]:
    """The plan as text: operators below the driver or stage that they run in, with a rail for each arrow."""
    yield f"app '{drawing.app}'"
    rows = list(_rows(logical, drawing, redact))
    left = 2 + max(len(row.rail) for row in rows)
    room = max(WIDTH - left - 2, _LEAST_TEXT)
    for row in rows:
        lines = textwrap.wrap(row.words, room - row.indent, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            yield f"  {row.rail if not number else row.below:<{left}}{' ' * row.indent}{line}".rstrip()
    if drawing.caption:
        yield ""
        yield "estimate"
        yield from textwrap.wrap(drawing.caption, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")


@frozen
class _Row:
    """A paragraph beside rails."""

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
        yield _Row(rails.passing(), rails.passing(), 0, frame.heading)
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
    inside = [arrow.edge.arc for arrow in arrows if {*arrow.edge.arc} <= {*operators}]
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
    parts = [operator for part, operator in logical.instances.items() if own_name(part) == name]
    composite = logical.composites.get(name)
    made = composite.operator.expand() if composite is not None and isinstance(composite.operator, Composite) else None
    made_of = ["made of " + ", ".join(type(each).__name__ for each in made.parts.values())] if made is not None else []
    return "; ".join([*made_of, *(line for part in parts for line in part.explanation())])


def _words(nodes: Mapping[str, OperatorNode], arrow: Arrow, columns: Mapping[PortRef, StreamColumns]) -> str:
    edge = arrow.edge
    port = type(nodes[edge.source.operator].operator).output_ports[edge.source.port]
    kind = f", {port.type_name}" if port.type_name != "records" else ""
    how = f", {arrow.words}" if arrow.words else ""
    known = columns.get(edge.source)
    of = f", of {_columns_text(known)}" if known is not None and not known.is_raw else ""
    return f"{edge.stream}: {edge.source.port} -> {edge.target}{kind}{how}{of}"


def _columns_text(columns: StreamColumns) -> str:
    texts = [f"{field.name} {type_name(field.type)}" for field in columns.schema]
    more = [f"{len(texts) - _SHOWN_COLUMNS} more"] if len(texts) > _SHOWN_COLUMNS else []
    others = [f"others {type_name(columns.others)}"] if columns.others is not None else []
    return ", ".join([*texts[:_SHOWN_COLUMNS], *more, *others])


RAILS: Mapping[ArrowStyle, str] = {"call": "│", "assigned": "┆", "shuffle": "┃", "report": "┊"}
NODE = "●"


class Rails:
    """The rails that lead from drawn operators to those that are still to be drawn.

    Each result is the left part of a line; `passing` gives the line below it.
    """

    def __init__(self, arrows: Sequence[Arrow]) -> None:
        self._own = 0
        self._leaving: dict[str, list[Arrow]] = {}
        for arrow in arrows:
            self._leaving.setdefault(arrow.edge.source.operator, []).append(arrow)
        self._lanes: list[Arrow | None] = []

    def passing(self) -> str:
        return _line(self._cells())

    def node(self, operator: str) -> Iterator[str]:
        """The lines in which the rails to an operator join; the operator is in the last one."""
        found = [lane for lane, arrow in enumerate(self._lanes) if arrow and arrow.edge.target.operator == operator]
        own = found[0] if found else self._free(0)
        for lane in reversed(found[1:]):
            yield _line(_joined(self._cells(), own, lane, "╯"))
            self._lanes[lane] = None
        self._lanes[own] = None
        self._own = own
        cells = self._cells()
        cells[own] = NODE
        yield _line(cells)

    def leaving(self, operator: str) -> Iterator[tuple[Arrow, str]]:
        """The lines in which the arrows of the operator that node() has drawn last begin: each arrow and its line."""
        arrows = self._leaving.get(operator, [])
        for arrow in arrows[:-1]:
            # The rail of the last arrow is the operator's own.
            self._lanes[self._own] = arrows[-1]
            lane = self._free(self._own + 1)
            line = _line(_joined(self._cells(), self._own, lane, "╮"))
            self._lanes[lane] = arrow
            yield arrow, line
        if arrows:
            self._lanes[self._own] = arrows[-1]
            yield arrows[-1], self.passing()

    def _free(self, first: int) -> int:
        for lane in range(first, len(self._lanes)):
            if self._lanes[lane] is None:
                return lane
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _cells(self) -> list[str]:
        return [" " if arrow is None else RAILS[arrow.style] for arrow in self._lanes]


def _joined(cells: list[str], own: int, lane: int, end: str) -> list[str]:
    """The cells of a line with a connection between two rails, across those between them."""
    between = ["┼" if cell != " " else "─" for cell in cells[own + 1 : lane]]
    return [*cells[:own], "├", *between, end, *cells[lane + 1 :]]


def _line(cells: Sequence[str]) -> str:
    """The cells with a column between each two, which a connection crosses."""
    text = ""
    is_joined = False
    for cell in cells:
        text += ("─" if is_joined else " ") * bool(text) + cell
        is_joined = cell in ("├", "┼", "─")
    return text.rstrip()
