"""Draws a plan in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.plan.render.drawing import Drawing, node_ids

_STYLES = {"call": "solid", "assigned": "dashed", "shuffle": "bold", "report": "dotted"}


def dot(drawing: Drawing) -> str:
    """The plan in Graphviz's language."""
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    ids = node_ids(drawing)
    yield f"digraph {_string(drawing.app)} {{"
    yield '    graph [rankdir=LR, fontname="sans-serif", style=rounded, color="#9aa5b1"]'
    yield '    node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"]'
    yield '    edge [fontname="sans-serif", fontsize=10]'
    if drawing.caption:
        yield f"    label={_string(drawing.caption)}"
    for index, frame in enumerate(drawing.frames):
        title = f"{frame.title}: {frame.subtitle}" if frame.subtitle else frame.title
        yield f"    subgraph cluster_{index} {{"
        yield f"        label={_string(title)}"
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
