"""Drawings of a plan in the languages of Mermaid and Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.plan.picture import Picture

_MERMAID_ARROWS = {"call": "-->", "assigned": "-.->", "shuffle": "==>", "report": "-.->"}
_DOT_STYLES = {"call": "solid", "assigned": "dashed", "shuffle": "bold", "report": "dotted"}


def mermaid(picture: Picture) -> str:
    """The plan as a Mermaid flowchart."""
    return "\n".join(_mermaid_lines(picture)) + "\n"


def _mermaid_lines(picture: Picture) -> Iterator[str]:
    ids = _ids(picture)
    yield "flowchart LR"
    yield f"    %% app {picture.app}" + (f": {picture.caption}" if picture.caption else "")
    for index, frame in enumerate(picture.frames):
        title = f"{frame.title}: {frame.subtitle}" if frame.subtitle else frame.title
        yield f'    subgraph f{index}["{_entities(title)}"]'
        for name in frame.operators:
            yield f'        {ids[name]}["{_entities(name)}<br/><i>{_entities(picture.classes[name])}</i>"]'
        yield "    end"
    for arrow in picture.arrows:
        source, target = ids[arrow.edge.source.operator], ids[arrow.edge.target.operator]
        yield f'    {source} {_MERMAID_ARROWS[arrow.style]}|"{_entities(arrow.label)}"| {target}'


def dot(picture: Picture) -> str:
    """The plan in Graphviz's language."""
    return "\n".join(_dot_lines(picture)) + "\n"


def _dot_lines(picture: Picture) -> Iterator[str]:
    ids = _ids(picture)
    yield f"digraph {_string(picture.app)} {{"
    yield '    graph [rankdir=LR, fontname="sans-serif", style=rounded, color="#9aa5b1"]'
    yield '    node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"]'
    yield '    edge [fontname="sans-serif", fontsize=10]'
    if picture.caption:
        yield f"    label={_string(picture.caption)}"
    for index, frame in enumerate(picture.frames):
        title = f"{frame.title}: {frame.subtitle}" if frame.subtitle else frame.title
        yield f"    subgraph cluster_{index} {{"
        yield f"        label={_string(title)}"
        for name in frame.operators:
            yield f"        {ids[name]} [label={_string(name, picture.classes[name])}]"
        yield "    }"
    for arrow in picture.arrows:
        source, target = ids[arrow.edge.source.operator], ids[arrow.edge.target.operator]
        yield f"    {source} -> {target} [label={_string(arrow.label)}, style={_DOT_STYLES[arrow.style]}]"
    yield "}"


def _ids(picture: Picture) -> dict[str, str]:
    # Names such as `end` mean something to both languages, so operators are numbered.
    return {name: f"n{index}" for index, name in enumerate(picture.classes)}


def _entities(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _-.,:()'" else f"#{ord(char)};" for char in text)


def _string(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
