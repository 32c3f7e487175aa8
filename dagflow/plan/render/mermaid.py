"""Draws a plan in the language of Mermaid."""

from __future__ import annotations

from collections.abc import Iterator

from dagflow.plan.render.drawing import Drawing, node_ids

_ARROWS = {"call": "-->", "assigned": "-.->", "shuffle": "==>", "report": "-.->"}


def mermaid(drawing: Drawing) -> str:
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    ids = node_ids(drawing)
    yield "flowchart LR"
    yield f"    %% app {drawing.app}" + (f": {drawing.caption}" if drawing.caption else "")
    for index, frame in enumerate(drawing.frames):
        title = f"{frame.title}: {frame.subtitle}" if frame.subtitle else frame.title
        yield f'    subgraph f{index}["{_entities(title)}"]'
        for name in frame.operators:
            yield f'        {ids[name]}["{_entities(name)}<br/><i>{_entities(drawing.classes[name])}</i>"]'
        yield "    end"
    for arrow in drawing.arrows:
        source, target = ids[arrow.edge.source.operator], ids[arrow.edge.target.operator]
        yield f'    {source} {_ARROWS[arrow.style]}|"{_entities(arrow.label)}"| {target}'


def _entities(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _-.,:()'" else f"#{ord(char)};" for char in text)
