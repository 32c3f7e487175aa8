"""Keeps the snapshot of a run up to date: adds up its windows, and measures how fast it reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from dagflow.api.operator import Operator
from dagflow.journal import JournalState, PartitionCounts, WindowIntent, WindowPlan
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PhysicalPlan
from dagflow.report.rates import Rate
from dagflow.report.snapshot import RunningWindow, RunRates, RunSnapshot, figures_of
from dagflow.storage.location import redacted


def totals_of(counters: Counters) -> dict[str, Any]:
    """The fields of a snapshot that are sums over all operators."""
    return {
        "files": counters.total(names.FILES),
        "blocks": counters.total(names.BLOCKS),
        "bytes": counters.total(names.BYTES),
        "rejected": counters.total(names.REJECTED),
    }


def carried_over(journal: JournalState) -> dict[str, Any]:
    """The fields of a snapshot that all runs on a checkpoint have in common."""
    totals = journal.totals
    return {
        "files_in_progress": max(totals.total(names.FILES) - totals.total(names.FILES_COMPLETED), 0),
        "waiting_bytes": max(totals.total(names.WAITING_BYTES) - totals.total(names.RESUMED_BYTES), 0),
        "last_planned": journal.last_planned,
        "last_committed": journal.last_committed,
        "outputs": tuple(map(redacted, journal.outputs)),
    }


class RunStatistics:
    """The statistics of one run.

    Args:
        app: The app's name.
        plan: Its physical plan.
        operators: All operators by name.
    """

    def __init__(self, app: str, plan: PhysicalPlan, operators: Mapping[str, Operator]) -> None:
        self._app = app
        stage_by_operator = {name: stage.head for stage in plan.stages for name in stage.operators}
        self._stages = {**dict.fromkeys(plan.control, ""), **stage_by_operator}
        self._sources = {name for name in self._stages if name in operators and _is_source(operators[name])}
        self._started = time.monotonic()
        self._windows = 0
        self._counters = Counters()
        self._busy_s: dict[str, float] = {}
        self._partitions: dict[str, PartitionCounts] = {}
        self._bytes, self._records = Rate(), Rate()

    def planned(self, plan: WindowPlan) -> None:
        """Note the partition counts of a window that was submitted."""
        for stage, count in plan.partitions.items():
            known = self._partitions.get(stage, PartitionCounts(count, count, count))
            self._partitions[stage] = known.including(count)

    def committed(self, plan: WindowPlan, intent: WindowIntent) -> None:
        """Add a window."""
        self._windows += 1
        self._counters.add(plan.counters)
        self._counters.add(intent.counters)
        for name, seconds in intent.busy_s.items():
            self._busy_s[name] = self._busy_s.get(name, 0.0) + seconds

    def snapshot(
        self, state: str, journal: JournalState, backlog: dict[str, int], running: Iterable[RunningWindow] = ()
    ) -> RunSnapshot:
        """The run as it stands.

        Args:
            state: "running", "completed" or "stopped".
            journal: What the journal says.
            backlog: Tuples that wait to be processed, by stage head.
            running: Windows whose tasks run, in order.
        """
        seconds = time.monotonic() - self._started
        windows = tuple(running)
        figures = [
            figures_of(name, self._counters, self._busy_s.get(name, 0.0), stage, name in self._sources)
            for name, stage in self._stages.items()
        ]
        totals = totals_of(self._counters)
        self._bytes.update(seconds, totals["bytes"] + sum(window.bytes_read for window in windows))
        self._records.update(seconds, sum(port.records for each in figures if each.is_source for port in each.ports))
        return RunSnapshot(
            app=self._app,
            state=state,
            windows=self._windows,
            seconds=seconds,
            operators=tuple(figures),
            partitions=dict(self._partitions),
            backlog=backlog,
            running=windows,
            rates=RunRates(self._bytes.per_second, self._records.per_second),
            **totals,
            **carried_over(journal),
        )


def _is_source(operator: Operator) -> bool:
    """Whether an operator emits records and takes none in."""
    takes = any(port.carries_records for port in operator.input_ports.values())
    return not takes and any(port.carries_records for port in operator.output_ports.values())
