"""Shows a plan: the DAG as written, and what runs where, as text or as a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from dagflow.plan.graph_text import dot, mermaid
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan, Stage
from dagflow.plan.picture import class_text, partitions_text, picture_of, routing_text
from dagflow.plan.svg import svg

Format = Literal["text", "mermaid", "dot", "svg"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would have to do if none had taken anything before.

    Attributes:
        files: Files to read; None where that is not known, as for the others.
        blocks: Blocks that they are cut into.
        bytes: Bytes in them.
        windows: Windows that the blocks take.
    """

    files: int | None = None
    blocks: int | None = None
    bytes: int | None = None
    windows: int | None = None

    def __str__(self) -> str:
        """Such as 'all input, taken before or not: 3 files, 12 blocks, 1 048 576 bytes, 2 windows'."""
        known = [(name, getattr(self, name)) for name in ("files", "blocks", "bytes", "windows")]
        figures = ", ".join(
            f"{value:,} {name if value != 1 else name[:-1]}".replace(",", " ")
            for name, value in known
            if value is not None
        )
        return figures and f"all input, taken before or not: {figures}"


def explain(
    logical: LogicalPlan,
    physical: PhysicalPlan,
    *,
    format: Format = "text",
    partitions: Mapping[str, int | str] | None = None,
    estimate: Estimate | None = None,
) -> str:
    """Show a plan.

    Args:
        logical: The DAG.
        physical: Where its operators run; the very object that would be run.
        format: "text", or the language of a drawing.
        partitions: By a stage's head the number of its partitions, or words such as "1 to 16"; a stage that
            is not named is said to decide for itself.
        estimate: What a run would have to do.

    Returns:
        The plan, ending in a newline.
    """
    counts = partitions or {}
    caption = "" if estimate is None else str(estimate)
    if format == "text":
        return "\n".join(_text(logical, physical, counts, caption)) + "\n"
    draw = {"mermaid": mermaid, "dot": dot, "svg": svg}[format]
    return draw(picture_of(logical, physical, counts, caption))


def _text(
    logical: LogicalPlan, physical: PhysicalPlan, partitions: Mapping[str, int | str], caption: str
) -> Iterator[str]:
    yield f"app '{logical.name}'"
    yield ""
    yield "logical plan"
    yield from _logical_lines(logical)
    yield ""
    yield "physical plan"
    if physical.control:
        yield f"  driver: {', '.join(physical.control)}"
        for edge in physical.control_edges:
            yield f"    inside    {edge.stream}: {edge.source} -> {edge.target}"
    for stage in physical.stages:
        title = f"  stage {stage.index} (level {stage.level}), {partitions_text(stage, partitions)}"
        yield f"{title}: {', '.join(stage.operators)}"
        yield from _stage_lines(stage)
    if caption:
        yield ""
        yield "estimate"
        yield f"  {caption}"


def _logical_lines(logical: LogicalPlan) -> Iterator[str]:
    for name, node in logical.operators.items():
        partition = f", partition: {node.partition}" if node.partition is not None else ""
        yield f"  {name} ({class_text(logical, name)}{partition})"
        for edge in logical.edges:
            if edge.source.operator == name:
                port = type(node.operator).output_ports[edge.source.port]
                yield f"    {edge.source.port} -> {edge.target}    {edge.stream}: {port.type_name}"


def _stage_lines(stage: Stage) -> Iterator[str]:
    for exchange in stage.inputs:
        edge = exchange.edge
        yield f"    takes in  {edge.stream}: {edge.source} -> {edge.target}, {routing_text(exchange)}"
    for edge in stage.edges:
        yield f"    inside    {edge.stream}: {edge.source} -> {edge.target}"
    for edge in stage.outputs:
        yield f"    emits     {edge.stream}: {edge.source} -> {edge.target}"
    for edge in stage.reports:
        yield f"    reports   {edge.stream}: {edge.source} -> {edge.target}"
