"""Shows a plan as text: the DAG as written, and what runs where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dagflow.plan.accumulators import accumulators, over_text
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan, Stage
from dagflow.plan.render.drawing import class_text, partitions_text, routing_text


def text(logical: LogicalPlan, physical: PhysicalPlan, partitions: Mapping[str, int | str], caption: str) -> str:
    """The plan as text for a terminal."""
    return "\n".join(_lines(logical, physical, partitions, caption)) + "\n"


def _lines(
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
    holding = accumulators(logical.instances)
    for name, node in logical.operators.items():
        over = f", over: {over_text(holding[name])}" if name in holding else ""
        partition = f", partition: {node.partition}" if node.partition is not None else ""
        yield f"  {name} ({class_text(logical, name)}{partition}{over})"
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
