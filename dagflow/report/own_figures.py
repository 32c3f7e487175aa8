"""Figures by the names that an app gives: those of an operator's parts are added up to the operator's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from dagflow.errors import own_name
from dagflow.frozen import frozen
from dagflow.journal.saved_state import AppFacts
from dagflow.metrics.counters import Counters, OperatorCounters, OperatorReport, sum_of
from dagflow.plan.logical import own_edge, own_port
from dagflow.plan.physical import Edge, PortRef

_STREAM = re.compile(r"(?P<source>.+) -> (?P<target>.+?)(?P<all> \(to all\))?")

Figure = TypeVar("Figure", int, float)
Found = TypeVar("Found")


@frozen
class PublishedPart:
    """What a run has published into one output.

    Attributes:
        place: The table, as "table delta:/out/orders", or the location of files by name.
        rows: How many rows the table was given; 0 for files by name.
    """

    place: str
    files: int
    rows: int = 0


class OwnFigures:
    """Adds up the figures of an app's operators: counts and times of all parts, and records that leave the operator.

    Args:
        facts: The app; None where no run has recorded it.
    """

    def __init__(self, facts: AppFacts | None) -> None:
        facts = facts or AppFacts()
        self._ports = {PortRef.parse(part): PortRef.parse(own) for part, own in facts.own_ports.items()}
        self._heads = facts.own_heads

    def counters(self, counters: Counters) -> Counters:
        total = Counters()
        for name, own in counters.operators.items():
            records, sizes = self._by_own_port(name, own.records), self._by_own_port(name, own.bytes)
            total.add(Counters({own_name(name): OperatorCounters(own.counts, records, sizes)}))
        return total

    def reports(self, reports: Mapping[str, OperatorReport]) -> dict[str, OperatorReport]:
        """What the app's operators have done by now."""
        return sum_of(
            {own_name(name): OperatorReport(done.busy_s, self._by_own_port(name, done.records))}
            for name, done in reports.items()
        )

    def edges(self, edges: Iterable[Edge]) -> list[Edge]:
        found = (own_edge(edge, self._ports) for edge in edges)
        return list(dict.fromkeys(edge for edge in found if edge is not None))

    def stage(self, head: str) -> str:
        """The name of a stage: the first operator of the app in it, or the one that it is a part of."""
        return self._heads.get(head, head) or own_name(head)

    def by_stage(self, values: Mapping[str, Found]) -> dict[str, Found]:
        """Values by the names of stages, without stages in which only parts run."""
        return {self.stage(head): value for head, value in values.items() if self._heads.get(head, head)}

    def _by_own_port(self, operator: str, values: Mapping[str, int]) -> dict[str, int]:
        own = {port: own_port(PortRef(operator, port), self._ports) for port in values}
        return {ref.port: values[port] for port, ref in own.items() if ref is not None}


def edges_of(facts: AppFacts) -> list[Edge]:
    """The streams of an app between all operators, without their names."""
    edges = []
    for text in facts.streams:
        found = _STREAM.fullmatch(text)
        source, target = (found["source"], found["target"]) if found else (text, text)
        is_broadcast = found is not None and found["all"] is not None
        edges.append(Edge("", PortRef.parse(source), PortRef.parse(target), is_broadcast))
    return edges


def own_sums(values: Mapping[str, Figure], name_of: Callable[[str], str] = own_name) -> dict[str, Figure]:
    """Values of operators, added up for each operator of the app, or for what name_of returns."""
    sums: dict[str, Figure] = {}
    for name, value in values.items():
        own = name_of(name)
        sums[own] = sums[own] + value if own in sums else value
    return sums
