"""What a user sees of a plan: the operators and ports that the app names, and nothing that dagflow has made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dagflow.errors import own_name
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef


def own_port(port: PortRef, own_ports: Mapping[PortRef, PortRef]) -> PortRef | None:
    """The port that a port is to the author of the app; None for one inside of an operator."""
    if port in own_ports:
        return own_ports[port]
    # What stands behind a port of the app has taken its place, as a unifier does.
    is_inside = own_name(port.operator) != port.operator or port in own_ports.values()
    return None if is_inside else port


def own_edge(edge: Edge, own_ports: Mapping[PortRef, PortRef]) -> Edge | None:
    """The stream of the app that an edge is, or a part of; None for an edge inside of an operator."""
    source, target = own_port(edge.source, own_ports), own_port(edge.target, own_ports)
    return None if source is None or target is None else replace(edge, source=source, target=target)


def own_operators(plan: LogicalPlan) -> dict[str, OperatorNode]:
    """The operators of the app by name, composite ones as the app declares them."""
    names = dict.fromkeys(map(own_name, plan.operators))
    return {name: plan.composites.get(name) or plan.operators[name] for name in names}


def own_stages(heads: Mapping[str, str]) -> dict[str, str]:
    """The head of the stage in which each operator of the app, or its first part, runs; "" for one in the driver.

    Args:
        heads: The same for all operators of the plan, upstream first.
    """
    stages: dict[str, str] = {}
    for name, head in heads.items():
        own = own_name(name)
        if name == own or (own not in heads and own not in stages):
            stages[own] = head
    return stages


def own_heads(plan: LogicalPlan) -> dict[str, str]:
    """The first operator of the app in each stage whose head is a part; "" where there is none."""
    fusion = plan.fusion()
    stages = own_stages({name: fusion.heads.get(name, "") for name in fusion.ordered})
    first = {head: name for name, head in reversed(stages.items())}
    return {head: first.get(head, "") for head in dict.fromkeys(fusion.heads.values()) if own_name(head) != head}
