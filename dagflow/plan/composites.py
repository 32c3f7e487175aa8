"""Puts the parts of composite operators in their places."""

from __future__ import annotations

from dataclasses import replace

from dagflow.api.composite import Composite
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef


def expanded(logical: LogicalPlan) -> LogicalPlan:
    """The plan with the parts of each composite operator, named `operator/part`, in its place."""
    nodes: dict[str, OperatorNode] = {}
    ports: dict[PortRef, list[PortRef]] = {}
    inner: list[Edge] = []
    for name, node in logical.operators.items():
        if not isinstance(node.operator, Composite):
            nodes[name] = node
            continue
        found = node.operator.expand()
        for number, (part, operator) in enumerate(found.parts.items()):
            own = f"{name}/{part}"
            first = replace(node, name=own, operator=operator)
            nodes[own] = OperatorNode(own, operator, "parallel") if number else first
        for port, inside in found.ports.items():
            ports[PortRef(name, port)] = [_port(name, each) for each in inside]
        inner += [Edge(f"{name}/{source}", _port(name, source), _port(name, to)) for source, to in found.streams]
    if not ports:
        return logical
    edges = [
        replace(edge, source=source, target=target)
        for edge in logical.edges
        for source in ports.get(edge.source, [edge.source])
        for target in ports.get(edge.target, [edge.target])
    ]
    return replace(logical, operators=nodes, edges=(*edges, *inner), composites=ports)


def _port(composite: str, inside: str) -> PortRef:
    part, _, port = inside.partition(".")
    return PortRef(f"{composite}/{part}", port)
