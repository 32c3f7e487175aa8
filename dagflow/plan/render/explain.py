"""Shows a plan: the DAG as written, and what runs where, as text or as a drawing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.render.dot import dot
from dagflow.plan.render.drawing import drawing_of
from dagflow.plan.render.mermaid import mermaid
from dagflow.plan.render.svg import svg
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
        logical: The DAG.
        physical: Where its operators run; the very object that would be run.
        format: "text", or the language of a drawing.
        partitions: The number of partitions by a stage's head, or words such as "1 to 16"; other stages are shown as
            deciding for themselves.
        estimate: The work of a run, in words.
        redact: Removes secrets from a text.

    Returns:
        The plan, ending in a newline.
    """
    drawing = drawing_of(logical, physical, partitions or {}, estimate, redact)
    if format == "text":
        return text(logical, drawing, redact)
    draw = {"mermaid": mermaid, "dot": dot, "svg": svg}[format]
    return draw(drawing)
