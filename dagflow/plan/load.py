"""Reads an app file into its logical plan, and collects every mistake in it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dagflow.api.capabilities import Composite
from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.operator import Operator
from dagflow.api.partitioning import ByName
from dagflow.api.ports import InputPort, OutputPort, Port, fits
from dagflow.errors import PlanError, Problem, SpecError
from dagflow.plan.accumulators import require_ends, require_single_use_of_totals, wants_to_follow
from dagflow.plan.logical import LogicalPlan, OperatorNode, expanded, fuse, grouped, in_topological_order, unified
from dagflow.plan.physical import Edge, PortRef
from dagflow.plan.stream_columns import require_columns
from dagflow.spec.app_reader import Overrides, read
from dagflow.spec.app_spec import AppSpec, Endpoint, KeyedPartition, OperatorSpec, Partition, StreamSpec
from dagflow.spec.problems import Place, Problems, in_file_order, listed, quoted
from dagflow.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    import networkx as nx


def load_app(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LogicalPlan:
    """The DAG of an app file.

    Raises:
        SpecError: Every mistake, at least one of which is in the form of the app.
        PlanError: Every mistake; the app is well-formed, and cannot be wired.
    """
    return logical_plan(*read(path, overrides=overrides, search_path=search_path, environ=environ))


def logical_plan(spec: AppSpec | None, of_form: Sequence[Problem] = ()) -> LogicalPlan:
    """The DAG of an app that was read."""
    problems = Problems()
    wired = wire(spec, problems) if spec is not None else None
    if of_form or spec is None or wired is None:
        raise SpecError(in_file_order([*of_form, *problems.found]))
    if problems:
        raise PlanError(problems.found)
    return _planned(*wired, {name for name, operator in spec.operators.items() if operator.partition is None})


def _planned(spec: AppSpec, edges: tuple[Edge, ...], without_partition: Collection[str]) -> LogicalPlan:
    operators = {
        name: OperatorNode(name, operator.construct(), operator.partition, operator.construct_partitioner())
        for name, operator in spec.operators.items()
    }
    plan = expanded(LogicalPlan(spec.name, spec.attributes, operators, edges, spec))
    plan = grouped(unified(plan, without_partition))
    require_columns(plan)
    require_single_use_of_totals(plan)
    if wants_to_follow(plan):
        require_ends(plan)
    return plan


def wire(spec: AppSpec, problems: Problems) -> tuple[AppSpec, tuple[Edge, ...]]:
    """An app in which each operator has its partition, and its edges.

    Args:
        spec: The app as far as it was understood; other parts are skipped without further complaint.
    """
    wiring = _Wiring(spec, problems)
    for stream in spec.streams.values():
        wiring.connect(stream)
    wiring.check_operators()
    wiring.check_cycles()
    spec = _with_partitions(spec, wiring.edges)
    check_partitions(spec, wiring.edges, wiring.doubtful, problems)
    return spec, tuple(wiring.edges)


class _Wiring:
    def __init__(self, spec: AppSpec, problems: Problems) -> None:
        self.edges: list[Edge] = []
        self._spec = spec
        self._problems = problems
        self._stream_by_port: dict[PortRef, str] = {}
        self._left_plainly: set[PortRef] = set()
        # Ports that a broken stream seems to mean: they are not loose as well.
        self._meant: set[PortRef] = set()
        # Operators that a broken stream reaches: their inputs are not known.
        self.doubtful: set[str] = set()

    def connect(self, stream: StreamSpec) -> None:
        """One edge from each of its sources to each of its targets."""
        sources = [(end, port) for end in stream.sources if (port := self._port(end, "output"))]
        for end, _ in sources:
            self._leave(stream, end)
        self._check_repetition(stream)
        for end in stream.targets:
            target = self._port(end, "input")
            if target is None or not self._reach(stream.name, end):
                continue
            is_union = len(stream.sources) > 1
            fitting = [source for source, port in sources if self._check_types(source, port, end, target, is_union)]
            if not fitting or len(fitting) < len(stream.sources):
                self.doubtful.add(end.operator)
            is_broadcast = stream.broadcast_place is not None
            for source in fitting:
                ends = PortRef(source.operator, source.port), PortRef(end.operator, end.port)
                self.edges.append(Edge(stream.name, *ends, is_broadcast=is_broadcast))
            if stream.broadcast_place is not None:
                self._check_broadcast(stream.name, stream.broadcast_place, end)

    def _check_repetition(self, stream: StreamSpec) -> None:
        seen: set[tuple[str, str]] = set()
        for end in stream.sources:
            if (end.operator, end.port) in seen:
                self._problems.add(end.place, f"'{end.shown}' is already in 'from' of stream '{stream.name}'")
            seen.add((end.operator, end.port))

    def _check_broadcast(self, stream: str, place: Place, end: Endpoint) -> None:
        operator = self._spec.operators[end.operator]
        if _is_a(operator, ControlOperator):
            why = "runs in the driver, once, and gets everything as it is"
        elif operator.partition == "parallel":
            why = "has partition: parallel, and runs where its upstream does; give it partitions of its own"
        else:
            return
        self._problems.add(place, f"broadcast of stream '{stream}': operator '{end.operator}' {why}")

    def _port(self, end: Endpoint, direction: str) -> Port | None:
        """The port that a stream names; None after a problem, also one that was reported before."""
        operator = self._spec.operators.get(end.operator)
        if operator is None:
            if end.is_as_typed:
                hint = did_you_mean(end.operator, self._spec.operators)
                self._problems.add(end.place, f"there is no operator {quoted(end.operator)}{hint}")
            else:
                self._problems.add(end.place, f"there is no operator of the name in {quoted(end.shown)}")
            close = nearest(end.operator, self._spec.operators)
            self._meant.add(PortRef(close or "", end.port))
            return None
        cls = operator.operator_class
        if cls is None:
            return None
        ports: Mapping[str, Port] = cls.input_ports if direction == "input" else cls.output_ports
        others: Mapping[str, Port] = cls.output_ports if direction == "input" else cls.input_ports
        if end.port not in ports:
            self._add_no_port(end, operator, cls, direction, ports, is_other=end.port in others)
            return None
        return ports[end.port]

    def _add_no_port(
        self,
        end: Endpoint,
        operator: OperatorSpec,
        cls: type[Operator],
        direction: str,
        ports: Mapping[str, Port],
        *,
        is_other: bool,
    ) -> None:
        who = f"operator '{operator.name}' ({cls.__name__})"
        has = f"it has {listed(list(ports))}" if ports else f"it has no {direction} port at all"
        if not ports and issubclass(cls, InputOperator):
            has = "it brings records into the app, and so it is the first step"
        if not end.is_as_typed:
            message = f"{quoted(end.shown)} names no {direction} port of {who}; {has}"
        elif is_other:
            wrong, key = ("output", "to") if direction == "input" else ("input", "from")
            message = f"'{end.shown}' is an {wrong} port, and '{key}' takes an {direction} port; {has}"
        else:
            hint = did_you_mean(end.port, ports)
            message = f"{who} has no {direction} port {quoted(end.port)}{hint}\n    {has}"
        self._problems.add(end.place, message)
        only = next(iter(ports)) if len(ports) == 1 else ""
        self._meant.add(PortRef(operator.name, nearest(end.port, ports) or only))

    def _leave(self, stream: StreamSpec, end: Endpoint) -> None:
        """Record that a stream leaves by a port; only a union and a broadcast may share it with another stream."""
        ref = PortRef(end.operator, end.port)
        is_plain = len(stream.sources) == 1 and stream.broadcast_place is None
        other = self._stream_by_port.get(ref)
        if is_plain and ref in self._left_plainly:
            message = f"stream '{other}' leaves by '{end.shown}' already; give that stream's 'to' a list of ports"
            self._problems.add(end.place, f"doubly connected port: {message}")
        if is_plain:
            self._left_plainly.add(ref)
        if is_plain or other is None:
            self._stream_by_port[ref] = stream.name

    def _reach(self, stream: str, end: Endpoint) -> bool:
        ref = PortRef(end.operator, end.port)
        if ref in self._stream_by_port:
            other = self._stream_by_port[ref]
            self._problems.add(end.place, f"doubly connected port: stream '{other}' reaches '{end.shown}' already")
            return False
        self._stream_by_port[ref] = stream
        return True

    def _check_types(self, start: Endpoint, source: Port, end: Endpoint, target: Port, is_union: bool) -> bool:
        if not fits(source, target):
            message = f"'{start.shown}' gives {source.type_name}, and '{end.shown}' takes {target.type_name}"
            if target.carries_records and _is_a(self._spec.operators[start.operator], InputOperator):
                message += "\n    a step such as `- read: csv` between them makes records of files"
            self._problems.add(start.place if is_union else end.place, f"port types do not fit: {message}")
            return False
        for ref, verb in ((start, "emit"), (end, "take in")):
            cls = self._spec.operators[ref.operator].operator_class
            if source.carries_records and cls is not None and issubclass(cls, ControlOperator):
                who = f"operator '{ref.operator}' ({cls.__name__})"
                self._problems.add(ref.place, f"{who} runs in the driver, and cannot {verb} records, only metadata")
                return False
        return True

    def check_operators(self) -> None:
        operators = self._spec.operators.values()
        for operator in operators:
            if operator.operator_class is not None:
                self._check_operator(operator, operator.operator_class)
        # If a file has no operators, or none that can be read, its reader has reported that.
        is_unreported = operators or not self._spec.file
        is_known = all(operator.operator_class is not None for operator in operators)
        if is_unreported and is_known and not any(_is_a(operator, InputOperator) for operator in operators):
            message = "no operator brings anything in: an app needs an input operator, such as FileSplitterInput"
            self._problems.add(self._spec.place, message)

    def _check_operator(self, operator: OperatorSpec, cls: type[Operator]) -> None:
        who = f"operator '{operator.name}' ({cls.__name__})"
        is_input = issubclass(cls, InputOperator)
        if is_input and cls.input_ports:
            message = f"{who} is an input operator, and must not have the input port {listed(list(cls.input_ports))}"
            self._problems.add(operator.class_place, message)
        used = {ref.port for ref in {*self._stream_by_port, *self._meant} if ref.operator == operator.name}
        ports: list[InputPort | OutputPort] = [*cls.input_ports.values(), *cls.output_ports.values()]
        loose = [port for port in ports if port.is_required and port.name not in used]
        for port in loose:
            kind = "input" if isinstance(port, InputPort) else "output"
            message = f"loose port: {kind} port '{port.name}' of {who} is not connected"
            self._problems.add(operator.place, message)
        if not is_input and not loose and not used.intersection(cls.input_ports):
            why = "no stream reaches it" if cls.input_ports else "it has no input port; derive it from InputOperator"
            self._problems.add(operator.place, f"{who} would never do anything: {why}")
        elif is_input and not used and len(self._spec.operators) > 1:
            self._problems.add(operator.place, f"{who} is connected to nothing")
        # The parts of a composite handle what arrives at it.
        handled = cls.input_ports.keys() if issubclass(cls, Composite) else cls.handlers.keys()
        for name in sorted(used.intersection(cls.input_ports) - handled):
            message = f"{who} has no method for its input port '{name}'; mark one with @{name}.each or @{name}.batch"
            self._problems.add(operator.class_place, message)

    def check_cycles(self) -> None:
        """Report each cycle once, with its operators in order."""
        arcs = dict.fromkeys(edge.arc for edge in self.edges)
        names = list(self._spec.operators)
        if len(in_topological_order(names, arcs)) == len(names):
            return
        # Imported late: it takes a tenth of a second, and few apps have cycles.
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph(list(arcs))
        for component in nx.strongly_connected_components(graph):
            first = min(component, key=names.index)
            if len(component) == 1 and not graph.has_edge(first, first):
                continue
            cycle = _cycle_through(first, graph, component)
            closing = next(edge for edge in self.edges if edge.arc == cycle[-2:])
            place = self._spec.streams[closing.stream].place
            words = " -> ".join(f"'{name}'" for name in cycle)
            self._problems.add(place, f"stream '{closing.stream}' closes a cycle: {words}")


def _cycle_through(first: str, graph: nx.DiGraph[str], component: set[str]) -> tuple[str, ...]:
    # Imported late, as by the caller.
    import networkx as nx

    inside = graph.subgraph(component)
    ways = [nx.shortest_path(inside, successor, first) for successor in inside.successors(first)]
    return (first, *min(ways, key=len))


def _with_partitions(spec: AppSpec, edges: Sequence[Edge]) -> AppSpec:
    """The app with a partition for each operator that names none: parallel, if nothing needs an exchange.

    State by key needs one by the key. Other state, a broadcast, and several stages upstream need one of batches.
    """
    control = {name for name, operator in spec.operators.items() if _is_a(operator, ControlOperator)}
    by_broadcast = {edge.target.operator for edge in edges if edge.is_broadcast}
    open_ones = {
        name: operator
        for name, operator in spec.operators.items()
        if operator.operator_class is not None
        and operator.partition is None
        and operator.partitioner is None
        and name not in control
    }
    keyed = {name: operator.key_column for name, operator in open_ones.items() if _is_a(operator, KeyedOperator)}
    parallel = {
        name
        for name, operator in open_ones.items()
        if name not in by_broadcast and name not in keyed and not _has_state(operator)
    }
    given = {name for name, operator in spec.operators.items() if operator.partition == "parallel"}
    refused = fuse(list(spec.operators), edges, control, parallel | given).refused
    partitions: dict[str, Partition] = dict.fromkeys(parallel - refused.keys(), "parallel")
    partitions |= {name: KeyedPartition(ByName(key)) for name, key in keyed.items() if key is not None}
    operators = {name: replace(spec.operators[name], partition=partition) for name, partition in partitions.items()}
    return replace(spec, operators={**spec.operators, **operators})


def _is_a(operator: OperatorSpec, kind: type[Operator]) -> bool:
    return operator.operator_class is not None and issubclass(operator.operator_class, kind)


def _has_state(operator: OperatorSpec) -> bool:
    return operator.operator_class is not None and operator.operator_class.snapshot is not Operator.snapshot


def check_partitions(spec: AppSpec, edges: Sequence[Edge], doubtful: Collection[str], problems: Problems) -> None:
    """Report partitions, partitioners and keys that do not fit their operators.

    Args:
        doubtful: Operators whose inputs are not known, because a stream to them is broken.
    """
    control: set[str] = set()
    parallel: set[str] = set()
    for operator in spec.operators.values():
        cls = operator.operator_class
        if cls is not None and issubclass(cls, ControlOperator):
            control.add(operator.name)
            if operator.partition is not None:
                who = f"operator '{operator.name}' ({cls.__name__})"
                problems.add(operator.partition_place, f"{who} runs in the driver, once; it takes no partition")
        elif operator.partition == "parallel":
            parallel.add(operator.name)
        _check_partitioner(operator, problems)
    fusion = fuse(list(spec.operators), edges, control, parallel)
    fed = {edge.target.operator for edge in edges}
    for name, reason in fusion.refused.items():
        # An operator without any upstream was already reported as unreachable.
        if name in fed and name not in doubtful:
            operator = spec.operators[name]
            problems.add(operator.partition_place, f"partition: parallel of operator '{name}' {reason}")
    shared = {edge.target.operator for edge in edges if not edge.is_broadcast}
    _check_keyed_state(spec, fusion.heads, fed - shared - set(doubtful), problems)
    for edge in edges:
        _check_key(spec, edge, problems)


def _check_partitioner(operator: OperatorSpec, problems: Problems) -> None:
    """Report a policy that cannot decide the number of partitions, because the app or the upstream does."""
    policy, partition = operator.partitioner, operator.partition
    if policy is None:
        return
    who = f"operator '{operator.name}'"
    if _is_a(operator, ControlOperator):
        problems.add(policy.place, f"{who} runs in the driver, once; it takes no partitioner")
    elif partition == "parallel":
        why = f"{who} runs where its upstream does; name the partitioner at the operator that begins the stage"
        problems.add(policy.place, why)
    elif partition is not None and (not isinstance(partition, KeyedPartition) or partition.count is not None):
        problems.add(policy.place, f"{who} has a fixed number of partitions and a partitioner; give one")


def _check_key(spec: AppSpec, edge: Edge, problems: Problems) -> None:
    operator = spec.operators[edge.target.operator]
    cls, partition = operator.operator_class, operator.partition
    if cls is None or edge.is_broadcast or not isinstance(partition, KeyedPartition):
        return
    source = spec.operators[edge.source.operator].operator_class
    kind = source.output_ports[edge.source.port].type if source is not None else None
    if kind is None or not isinstance(partition.codec, ByName) or not dataclasses.is_dataclass(kind):
        return
    name, names = partition.codec.name, [item.name for item in dataclasses.fields(kind)]
    if name not in names and not hasattr(kind, name):
        message = f"stream '{edge.stream}' carries {kind.__name__}, which has no '{name}' to partition by"
        hint = did_you_mean(name, names)
        problems.add(operator.partition_place, f"operator '{operator.name}': {message}{hint}")


def _check_keyed_state(
    spec: AppSpec, heads: Mapping[str, str], broadcast_only: Collection[str], problems: Problems
) -> None:
    """Report operators whose state by key would be wrong where they are placed."""
    for name, head in heads.items():
        operator = spec.operators[name]
        if not _is_a(operator, KeyedOperator):
            continue
        partition = spec.operators[head].partition
        if partition == 1:
            continue
        key = operator.key_column
        if not isinstance(partition, KeyedPartition):
            # Not the head of its stage, which may take in other records than those with the key.
            advice = f"give operator '{name}' partition: {{by: {key or '…'}}}, or partition: 1"
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by key, and records of one key reach several partitions\n    {advice}",
            )
        elif key is not None and isinstance(partition.codec, ByName) and partition.codec.name != key:
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by the key '{key}', and its partitions are by '{partition.codec}'",
            )
        elif head in broadcast_only and partition.count != 1:
            problems.add(
                operator.partition_place,
                f"operator '{name}' keeps state by key, and broadcasts bring the records of a key to all partitions\n"
                f"    let a stream to operator '{head}' be no broadcast, or give it partition: 1",
            )
