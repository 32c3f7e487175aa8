"""Shows a plan: the DAG as written, and what runs where, as text or as a drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, get_args

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.render.drawing import Drawing, drawing_of, node_ids
from dagflow.plan.render.svg import svg_lines
from dagflow.plan.render.text import text

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
        return text(logical, drawing, redact)
    lines = {"mermaid": _mermaid_lines, "dot": _dot_lines, "svg": svg_lines}[format]
    return "\n".join(lines(drawing)) + "\n"


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
