"""Puts unifiers behind the operators that ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import Port
from dagflow.errors import PlanError, Problem
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef


def unifier_name(operator: str, port: str) -> str:
    """The name of the unifier behind an output port."""
    return f"{operator}/unifier" if port == "output" else f"{operator}/{port}-unifier"


def unified(logical: LogicalPlan) -> LogicalPlan:
    """The plan with a unifier, named `operator/unifier`, behind each port that asks for one.

    An operator that an app keeps in one partition needs none.

    Raises:
        PlanError: A unifier does not fit its port, or parts an operator from the upstream that it is parallel to.
    """
    nodes: dict[str, OperatorNode] = {}
    moved: dict[PortRef, PortRef] = {}
    added: list[Edge] = []
    problems: list[Problem] = []
    for name, node in logical.operators.items():
        nodes[name] = node
        if not isinstance(node.operator, Unified) or node.is_control or node.partition == 1:
            continue
        for port in sorted({edge.source.port for edge in logical.edges if edge.source.operator == name}):
            unifier = node.operator.unifier(port)
            if unifier is None:
                continue
            ref = PortRef(unifier_name(name, port), "output")
            nodes[ref.operator] = OperatorNode(ref.operator, unifier, 1)
            moved[PortRef(name, port)] = ref
            added.append(Edge(ref.operator, PortRef(name, port), PortRef(ref.operator, "input")))
            if not _fits(node.operator.output_ports[port], unifier):
                problems.append(_problem(logical, name, f"the unifier of its port '{port}' does not fit the port"))
    if not moved:
        return logical
    edges = tuple(replace(edge, source=moved.get(edge.source, edge.source)) for edge in logical.edges)
    plan = replace(logical, operators=nodes, edges=(*edges, *added))
    # A unifier may stand between a parallel operator and its upstream.
    refused = plan.fusion().refused
    problems += [_problem(plan, name, f"partition: parallel {reason}") for name, reason in refused.items()]
    if problems:
        raise PlanError(problems)
    return plan


def _fits(port: Port, unifier: Operator) -> bool:
    ports: tuple[Mapping[str, Port], ...] = (unifier.input_ports, unifier.output_ports)
    ends = [declared.get(name) for declared, name in zip(ports, ("input", "output"), strict=True)]
    return all(end is not None and end.type is port.type for end in ends)


def _problem(plan: LogicalPlan, name: str, message: str) -> Problem:
    text = f"operator '{name}': {message}"
    if plan.spec is None or name not in plan.spec.operators:
        return Problem("", 0, 0, text)
    place = plan.spec.operators[name].partition_place
    return Problem(place.file, place.line, place.column, text)
