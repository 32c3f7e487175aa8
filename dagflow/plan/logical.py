"""The logical plan: the DAG of operators and streams as the app defines it, with the operators that dagflow adds."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from dagflow.api.capabilities import Composite, KeptByFile
from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator, Unified
from dagflow.api.partitioning import Partitioner
from dagflow.api.ports import Port
from dagflow.api.transactions import TransactionalSink
from dagflow.errors import PlanError, Problem, own_name, part_name, text_of
from dagflow.frozen import frozen
from dagflow.plan.physical import Edge, PortRef, grouper_name, merger_name
from dagflow.spec.app_spec import AppSpec, Attributes, KeyedPartition, OperatorSpec, Partition
from dagflow.spec.problems import Place

if TYPE_CHECKING:
    import networkx as nx


def in_topological_order(names: Sequence[str], arcs: Iterable[tuple[str, str]]) -> list[str]:
    """The operators upstream first: those without any before them as in the file, then each when all before it are in.

    Operators on a cycle, and all after them, are left out.
    """
    sorter = TopologicalSorter(dict.fromkeys(names, ()))
    for source, target in arcs:
        sorter.add(target, source)
    with suppress(CycleError):  # what is before a cycle still comes
        sorter.prepare()
    ordered: list[str] = []
    while ready := sorter.get_ready():
        ordered += ready
        sorter.done(*ready)
    return ordered


def reached(start: str, arcs: Sequence[tuple[str, str]], apart_from: Collection[str] = ()) -> list[str]:
    """An operator and all that arcs lead to from it without going through some others, the nearest first."""
    found = [start]
    for name in found:
        found += dict.fromkeys(end for begin, end in arcs if begin == name and end not in {*found, *apart_from})
    return found


@frozen
class Fusion:
    """Which operators share a stage.

    Attributes:
        ordered: All operators, upstream first; without operators on a cycle, and all after them.
        refused: The reason for each parallel operator that cannot be fused. It heads a stage of its own.
    """

    ordered: list[str]
    heads: dict[str, str]
    refused: dict[str, str]


def fuse(names: Sequence[str], edges: Iterable[Edge], control: Collection[str], parallel: Collection[str]) -> Fusion:
    arcs = [edge.arc for edge in edges]
    upstream: dict[str, set[str]] = {name: set() for name in names}
    for source, target in arcs:
        upstream[target].add(source)
    fusion = Fusion(in_topological_order(names, arcs), {}, {})
    for name in fusion.ordered:
        if name in control:
            continue
        head, reason = _head_of(sorted(upstream[name]), fusion.heads, control) if name in parallel else (name, "")
        fusion.heads[name] = head or name
        if reason:
            fusion.refused[name] = reason
    return fusion


def _head_of(sources: Sequence[str], heads: Mapping[str, str], control: Collection[str]) -> tuple[str, str]:
    """The stage that a parallel operator joins; or "", and why it cannot join one."""
    from_driver = [source for source in sources if source in control]
    stages = sorted({heads[source] for source in sources if source in heads})
    if not stages:
        return "", "needs an upstream operator that has partitions, and has none"
    if from_driver:
        return "", f"takes in from the driver as well, from '{own_name(from_driver[0])}'; it cannot run in two places"
    if len(stages) > 1:
        words = " and ".join(f"'{own_name(head)}'" for head in stages)
        return "", f"takes in from different stages, those of {words}; leave partition out to exchange records"
    return stages[0], ""


@frozen
class OperatorNode:
    """One operator of the DAG.

    Attributes:
        operator: An instance with the app's properties, not set up.
    """

    name: str
    operator: Operator
    partition: Partition = None
    partitioner: Partitioner | None = None

    @property
    def is_control(self) -> bool:
        return isinstance(self.operator, ControlOperator)


@frozen
class LogicalPlan:
    """The DAG of an app.

    Attributes:
        spec: The app as it was written; None for a plan that was made without YAML.
        edges: The streams, one edge for each input port that they reach.
        composites: The composite operators by name; their parts are among the operators.
        own_ports: The ports of parts that the app's author sees, each with the port that it is to them.
    """

    name: str
    attributes: Attributes
    operators: Mapping[str, OperatorNode]
    edges: tuple[Edge, ...]
    spec: AppSpec | None = field(default=None, repr=False)
    composites: Mapping[str, OperatorNode] = field(default_factory=dict)
    own_ports: Mapping[PortRef, PortRef] = field(default_factory=dict)

    @property
    def instances(self) -> dict[str, Operator]:
        return {name: node.operator for name, node in self.operators.items()}

    @property
    def arcs(self) -> list[tuple[str, str]]:
        return [edge.arc for edge in self.edges]

    def written(self, operator: str) -> OperatorSpec:
        """An operator as it was written, or the one that it is a part of; without a place where no file has it."""
        spec = None if self.spec is None else self.spec.written(operator)
        nowhere = Place("")
        return spec or OperatorSpec(operator, "", None, {}, None, nowhere, nowhere, nowhere)

    def redact(self, text: str) -> str:
        """The text without values from the environment."""
        return text if self.spec is None else self.spec.redact(text)

    def fusion(self) -> Fusion:
        control = {name for name, node in self.operators.items() if node.is_control}
        parallel = {name for name, node in self.operators.items() if node.partition == "parallel"}
        return fuse(list(self.operators), self.edges, control, parallel)

    @property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The DAG on networkx: operators' names with their node, edges with their Edge as `edge`."""
        # Imported late: it takes a tenth of a second, and few callers want the graph.
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for name, node in self.operators.items():
            graph.add_node(name, node=node)
        for edge in self.edges:
            graph.add_edge(*edge.arc, key=f"{edge.source}>{edge.target}", edge=edge)
        return graph


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


def unifier_name(operator: str, port: str) -> str:
    return part_name(operator, "unifier" if port == "output" else f"{port}-unifier")


def unified(logical: LogicalPlan, without_partition: Collection[str] = ()) -> LogicalPlan:
    """The plan with a unifier behind each port that requests one.

    An operator with one partition needs none: because the app says so, or because it is parallel to one with one.

    Args:
        without_partition: Operators for which the app names no partition. If a unifier separates one from a part of its
            upstream, its records are exchanged.
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
