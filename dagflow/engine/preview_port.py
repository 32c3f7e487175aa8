"""The port that a preview shows, and the part of an app that leads to it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

from dagflow.api.control import ControlOperator
from dagflow.api.operator import defines
from dagflow.api.refused_records import REJECTS
from dagflow.errors import PlanError, Problem, own_name
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan, own_port
from dagflow.plan.physical import PortRef
from dagflow.spec.problems import listed, quoted
from dagflow.suggestions import did_you_mean


@frozen
class PreviewPort:
    """The port that a preview shows.

    Attributes:
        sources: The output ports whose records are seen there; the port itself, where it is an output port.
    """

    ref: PortRef
    sources: tuple[PortRef, ...]


def find_port(app: LogicalPlan, at: str | None) -> PreviewPort:
    """The port that a preview shows.

    Args:
        at: "operator.port", or an operator for its only port of records; None for the records that the app's output
            gets.

    Raises:
        PlanError: There is no such port, or no records flow there.
    """
    if at is None:
        return _default_port(app)
    name, ref = _split(app, at)
    if parts := [part for part, own in app.own_ports.items() if own == PortRef(name, ref or "output")]:
        seen = [_seen_at(app, part) for part in parts]
        return PreviewPort(seen[0].ref, tuple(source for each in seen for source in each.sources))
    if name not in app.operators:
        known = dict.fromkeys(map(own_name, app.operators))
        raise _mistake(f"there is no operator {quoted(name)}{did_you_mean(name, known)}", app)
    operator = app.operators[name].operator
    ports = {**operator.input_ports, **operator.output_ports}
    if ref and ref not in ports:
        raise _mistake(f"operator {quoted(name)} has no port {quoted(ref)}{did_you_mean(ref, ports)}", app)
    found = [port for port in _ports_of(app, name) if ref in ("", port.port)]
    if not found:
        raise _mistake(f"no records pass {quoted(at)}", app)
    return _seen_at(app, found[0])


def _split(app: LogicalPlan, at: str) -> tuple[str, str]:
    """The operator and the port that a text names; operators of a module have dots in their names."""
    if at in app.operators:
        return at, ""
    name, _, port = at.rpartition(".")
    return (name, port) if name else (port, "")


def _ports_of(app: LogicalPlan, name: str) -> Iterator[PortRef]:
    """The ports of an operator where records pass: output ports first, and that of its rejects last."""
    operator = app.operators[name].operator
    outputs = [PortRef(name, port) for port, each in operator.output_ports.items() if each.carries_records]
    connected = {edge.target for edge in app.edges}
    inputs = (PortRef(name, port) for port, each in operator.input_ports.items() if each.carries_records)
    ports = [*outputs, *(ref for ref in inputs if ref in connected)]
    yield from sorted(ports, key=lambda ref: ref.port == REJECTS)


def _seen_at(app: LogicalPlan, ref: PortRef) -> PreviewPort:
    shown = own_port(ref, app.own_ports) or ref
    if ref.port in app.operators[ref.operator].operator.output_ports:
        return PreviewPort(shown, (ref,))
    return PreviewPort(shown, tuple(edge.source for edge in app.edges if edge.target == ref))


def _mistake(text: str, app: LogicalPlan) -> PlanError:
    refs = [own_port(ref, app.own_ports) for name in app.operators for ref in _ports_of(app, name)]
    ports = list(dict.fromkeys(str(ref) for ref in refs if ref is not None))
    return PlanError([Problem("--at", 0, 0, text)], hint=f"records pass {', '.join(ports)}" if ports else "")


def _default_port(app: LogicalPlan) -> PreviewPort:
    """The input of the first operator whose records go nowhere else, except for rejects; else a reader's output."""
    given = {name: node.operator.output_ports for name, node in app.operators.items()}
    outputs = [edge for edge in app.edges if given[edge.source.operator][edge.source.port].carries_records]
    accepted = [edge for edge in outputs if edge.source.port != REJECTS]
    inner = {edge.source.operator for edge in accepted}
    ends = [edge.target for edge in accepted if edge.target.operator not in inner]
    if ends:
        order = list(app.operators)
        return _seen_at(app, min(ends, key=lambda ref: order.index(ref.operator)))
    emitted = [ref for name in app.operators for ref in _ports_of(app, name) if ref.port != REJECTS]
    if not emitted:
        raise _mistake("the app has no operator that emits records", app)
    return _seen_at(app, emitted[-1])


def part_before(app: LogicalPlan, port: PreviewPort, file: str | None) -> LogicalPlan:
    """The part of an app that leads to a port, with new operator instances, ready to run.

    Raises:
        PlanError: The file has no reader, or several.
    """
    names = {ref.operator for ref in port.sources}
    while more := {edge.source.operator for edge in app.edges if edge.target.operator in names} - names:
        names |= more
    nodes = {
        name: replace(node, operator=copy.copy(node.operator)) for name, node in app.operators.items() if name in names
    }
    edges = tuple(edge for edge in app.edges if {*edge.arc} <= names)
    sources = {
        name: node.operator
        for name, node in nodes.items()
        if isinstance(node.operator, ControlOperator) and defines(node.operator, "begin_preview")
    }
    if file is not None and len(sources) != 1:
        names_of = f"operators {listed(sources)} give files" if sources else "no operator gives files"
        raise PlanError([Problem("--file", 0, 0, f"{names_of} to {port.ref}, and one has to")])
    for source in sources.values():
        source.begin_preview(file)
    return replace(app, operators=nodes, edges=edges)
