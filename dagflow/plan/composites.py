"""Replaces composite operators by their parts."""

from __future__ import annotations

from dataclasses import replace

from dagflow.api.capabilities.composite import Composite
from dagflow.errors import part_name
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import KeyedPartition, Partition


def expanded(logical: LogicalPlan) -> LogicalPlan:
    nodes: dict[str, OperatorNode] = {}
    ports: dict[PortRef, list[PortRef]] = {}
    inner: list[Edge] = []
    for name, node in logical.operators.items():
        found = node.operator.expand() if isinstance(node.operator, Composite) else None
        if found is None:
            nodes[name] = node
            continue
        for number, (part, operator) in enumerate(found.parts.items()):
            own = part_name(name, part)
            first = replace(node, name=own, operator=operator)
            placed = OperatorNode(own, operator, "parallel") if number else first
            # One partition has all keys.
            if part in found.codecs and node.partition != 1:
                placed = replace(placed, partition=KeyedPartition(found.codecs[part], _count(node.partition)))
            nodes[own] = placed
        for port, inside in found.ports.items():
            ports[PortRef(name, port)] = [_port(name, each) for each in inside]
        inner += [Edge(name, _port(name, source), _port(name, to)) for source, to in found.streams]
    if not ports:
        return logical
    own_ports = {part: own for own, parts in ports.items() for part in parts}
    composites = {name: node for name, node in logical.operators.items() if name not in nodes}
    edges = [
        replace(edge, source=source, target=target)
        for edge in logical.edges
        for source in ports.get(edge.source, [edge.source])
        for target in ports.get(edge.target, [edge.target])
    ]
    return replace(logical, operators=nodes, edges=(*edges, *inner), composites=composites, own_ports=own_ports)


def _count(partition: Partition) -> int | None:
    if isinstance(partition, KeyedPartition):
        return partition.count
    return partition if isinstance(partition, int) else None


def _port(composite: str, inside: str) -> PortRef:
    part, _, port = inside.partition(".")
    return PortRef(part_name(composite, part), port)
