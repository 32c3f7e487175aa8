"""Puts parts in the place of composite operators, and adds unifiers, groupers and mergers where they are needed."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from dagflow.api.capabilities import Composite, KeptByFile
from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import Port
from dagflow.api.transactions import TransactionalSink
from dagflow.errors import PlanError, Problem, part_name, text_of
from dagflow.plan.logical import LogicalPlan, OperatorNode, in_topological_order, own_port
from dagflow.plan.physical import Edge, PortRef, grouper_name, merger_name
from dagflow.spec.app_spec import KeyedPartition, Partition


def unifier_name(operator: str, port: str) -> str:
    return part_name(operator, "unifier" if port == "output" else f"{port}-unifier")


def unified(logical: LogicalPlan, without_partition: Collection[str] = ()) -> LogicalPlan:
    """The plan with a unifier behind each port that requests one.

    An operator with one partition needs none: because the app says so, or because it is parallel to one with one.

    Args:
        without_partition: Operators for which the app names no partition. If a unifier separates one from a part of its
            upstream, its records are exchanged.

    Raises:
        PlanError: An operator returns no unifier, or one that does not fit its port or separates an operator from the
            upstream that it is parallel to.
    """
    unifiers: dict[str, list[OperatorNode]] = defaultdict(list)
    moved: dict[PortRef, PortRef] = {}
    added: list[Edge] = []
    problems: list[Problem] = []
    single: set[str] = set()
    for name in in_topological_order(list(logical.operators), logical.arcs):
        node = logical.operators[name]
        above = {moved.get(edge.source, edge.source).operator for edge in logical.edges if edge.target.operator == name}
        if node.partition == 1 or (node.partition == "parallel" and above and above <= single):
            single.add(name)
        if not isinstance(node.operator, Unified) or node.is_control or name in single:
            continue
        for port in sorted({edge.source.port for edge in logical.edges if edge.source.operator == name}):
            unifier = _asked(node.operator, port)
            if isinstance(unifier, str):
                problems.append(_problem(logical, name, unifier))
            if not isinstance(unifier, Operator):
                continue
            ref = PortRef(unifier_name(name, port), "output")
            unifiers[name].append(OperatorNode(ref.operator, unifier, 1))
            single.add(ref.operator)
            moved[PortRef(name, port)] = ref
            added.append(Edge(name, PortRef(name, port), PortRef(ref.operator, "input")))
            if not _fits(node.operator.output_ports[port], unifier):
                problems.append(_problem(logical, name, f"the unifier of its port '{port}' does not fit the port"))
    if not moved and not problems:
        return logical
    edges = tuple(replace(edge, source=moved.get(edge.source, edge.source)) for edge in logical.edges)
    nodes = {each.name: each for name, node in logical.operators.items() for each in (node, *unifiers.get(name, ()))}
    own_ports = {port: own for port, own in logical.own_ports.items() if port not in moved}
    own_ports |= {ref: own for port, ref in moved.items() if (own := own_port(port, logical.own_ports)) is not None}
    plan = replace(logical, operators=nodes, edges=(*edges, *added), own_ports=own_ports)
    # A unifier may stand between a parallel operator and its upstream.
    refused = plan.fusion().refused
    exchanged = {name: replace(nodes[name], partition=None) for name in refused if name in without_partition}
    plan = replace(plan, operators={**nodes, **exchanged})
    refused = {name: reason for name, reason in refused.items() if name not in exchanged}
    problems += [_problem(plan, name, f"partition: parallel {reason}") for name, reason in refused.items()]
    if problems:
        raise PlanError(problems)
    return plan


def _asked(operator: Unified, port: str) -> Operator | str | None:
    """What an author's unifier() returns; where it is wrong, a clause that says so."""
    try:
        unifier: object = operator.unifier(port)
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(line.filename).name}:{line.lineno}"
        return f"unifier('{port}') raised {type(error).__name__}({text_of(error)}) at {place}"
    if unifier is None or isinstance(unifier, Operator):
        return unifier
    what = f"the class {unifier.__name__}" if isinstance(unifier, type) else f"a {type(unifier).__name__}"
    return f"unifier('{port}') returned {what}, and not an operator or None"


def _fits(port: Port, unifier: Operator) -> bool:
    ports: tuple[Mapping[str, Port], ...] = (unifier.input_ports, unifier.output_ports)
    ends = [declared.get(name) for declared, name in zip(ports, ("input", "output"), strict=True)]
    return all(end is not None and end.type is port.type for end in ends)


def _problem(plan: LogicalPlan, name: str, message: str) -> Problem:
    return plan.written(name).partition_place.problem(f"operator '{name}': {message}")


def grouped(logical: LogicalPlan) -> LogicalPlan:
    nodes, edges = dict(logical.operators), list(logical.edges)
    for name, node in logical.operators.items():
        if isinstance(node.operator, TransactionalSink) and (grouping := node.operator.merging()) is not None:
            groups, merger = grouper_name(name), merger_name(name)
            nodes[groups] = OperatorNode(groups, grouping.grouper)
            nodes[merger] = OperatorNode(merger, grouping.merger)
            edges.append(Edge(name, PortRef(groups, "jobs"), PortRef(merger, "jobs")))
    return replace(logical, operators=nodes, edges=tuple(edges))


def expanded(logical: LogicalPlan) -> LogicalPlan:
    plan = _expanded(logical)
    if any(isinstance(each, ControlOperator) and each.corrects for each in plan.instances.values()):
        for operator in plan.instances.values():
            if isinstance(operator, KeptByFile):
                operator.keep_by_file()
    return plan


def _expanded(logical: LogicalPlan) -> LogicalPlan:
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
                placed = replace(placed, partition=KeyedPartition(found.codecs[part], fixed_count(node.partition)))
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


def fixed_count(partition: Partition) -> int | None:
    if isinstance(partition, KeyedPartition):
        return partition.count
    return partition if isinstance(partition, int) else None


def _port(composite: str, inside: str) -> PortRef:
    part, _, port = inside.partition(".")
    return PortRef(part_name(composite, part), port)
