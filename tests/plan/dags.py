"""Plans without YAML: operators of three kinds, and the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.ports import OutputPort
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import Attributes, Partition


class Control(ControlOperator):
    """Runs in the driver."""

    out = OutputPort(object)


class Head(InputOperator):
    """Brings something in."""

    out = OutputPort(object)


class Work(Operator):
    """Runs in partitions."""

    out = OutputPort(object)


def plan_of(classes: Sequence[type[Operator]], partitions: Sequence[Partition], arcs: Sequence[Any]) -> LogicalPlan:
    """A plan whose operators are numbered, with an edge for each arc."""
    names = [f"op{index}" for index in range(len(classes))]
    nodes = {
        name: OperatorNode(name, cls(), partition)
        for name, cls, partition in zip(names, classes, partitions, strict=True)
    }
    edges = tuple(
        Edge(f"s{index}", PortRef(names[source], "out"), PortRef(names[target], f"in{index}"))
        for index, (source, target) in enumerate(arcs)
    )
    return LogicalPlan("random", Attributes("journal"), nodes, edges)
