"""What an operator has done so far in the tasks of a window that runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec


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
