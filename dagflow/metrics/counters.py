"""Counters of a run: what each operator counted, and the records that left each of its ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import msgspec

from dagflow.frozen import mutable


@mutable
class OperatorCounters:
    """Counters of one operator.

    Attributes:
        bytes: Bytes of those records in memory, by port; only of the ports that were measured.
    """

    counts: dict[str, int] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, other: OperatorCounters, sign: int = 1) -> None:
        """Add the other counters to these; with sign -1 take them away."""
        for mine, theirs in ((self.counts, other.counts), (self.records, other.records), (self.bytes, other.bytes)):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0) + sign * value


@mutable
class Counters:
    operators: dict[str, OperatorCounters] = field(default_factory=dict)

    @classmethod
    def of_counts(cls, counts_by_operator: Mapping[str, Mapping[str, int]]) -> Counters:
        return cls({name: OperatorCounters(dict(counts)) for name, counts in counts_by_operator.items()})

    def of(self, operator: str) -> OperatorCounters:
        copy = OperatorCounters()
        copy.add(self.operators.get(operator, copy))
        return copy

    def add(self, other: Counters) -> None:
        for name, counters in other.operators.items():
            self._of(name).add(counters)

    def subtract(self, other: Counters) -> None:
        for name, counters in other.operators.items():
            self._of(name).add(counters, -1)

    def since(self, earlier: Counters) -> Counters:
        """What was counted after an earlier reading of the same counters; what did not change is left out."""
        change = Counters()
        change.add(self)
        change.subtract(earlier)
        for each in change.operators.values():
            each.counts, each.records, each.bytes = (_nonzero(m) for m in (each.counts, each.records, each.bytes))
        return change

    def copy(self) -> Counters:
        copy = Counters()
        copy.add(self)
        return copy

    def total(self, name: str) -> int:
        return sum(each.counts.get(name, 0) for each in self.operators.values())

    def _of(self, operator: str) -> OperatorCounters:
        return self.operators.setdefault(operator, OperatorCounters())


def _nonzero(values: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if value}


class OperatorReport(msgspec.Struct, frozen=True):
    busy_s: float = 0.0
    records: dict[str, int] = {}

    def __add__(self, other: OperatorReport) -> OperatorReport:
        ports = (*self.records, *(port for port in other.records if port not in self.records))
        records = {port: self.records.get(port, 0) + other.records.get(port, 0) for port in ports}
        return OperatorReport(self.busy_s + other.busy_s, records)


def sum_of(reports: Iterable[Mapping[str, OperatorReport]]) -> dict[str, OperatorReport]:
    total: dict[str, OperatorReport] = {}
    for report in reports:
        for name, done in report.items():
            total[name] = total.get(name, OperatorReport()) + done
    return total
