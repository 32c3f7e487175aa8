"""Adds up a run."""

from __future__ import annotations

import time

from dagflow.journal import JournalState, PartitionCounts, WindowIntent, WindowPlan
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.report.snapshot import RunSnapshot


def snapshot_of(app: str, state: str, windows: int, counters: Counters, **others: object) -> RunSnapshot:
    """Make the snapshot from counters.

    Args:
        app: The app's name.
        state: The run's state.
        windows: Committed windows.
        counters: What all operators counted in those windows.
        others: Further fields of RunSnapshot.
    """
    operators = sorted(counters.operators.items())
    return RunSnapshot(
        app=app,
        state=state,
        windows=windows,
        files=counters.total(names.FILES),
        blocks=counters.total(names.BLOCKS),
        bytes=counters.total(names.BYTES),
        records={f"{name}.{port}": n for name, own in operators for port, n in sorted(own.records.items())},
        rejected=counters.total(names.REJECTED),
        counts={
            f"{name}:{key}": n
            for name, own in operators
            for key, n in sorted(own.counts.items())
            if key not in names.TOTALS
        },
        **others,  # type: ignore[arg-type]  # the caller names fields of RunSnapshot
    )


class RunStatistics:
    """Adds up the windows of one run.

    Args:
        app: The app's name.
        stages: Heads of the stages whose partitions are shown.
    """

    def __init__(self, app: str, stages: set[str]) -> None:
        self._app = app
        self._stages = stages
        self._started = time.monotonic()
        self._windows = 0
        self._counters = Counters()
        self._partitions: dict[str, PartitionCounts] = {}

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

    def summary(self, state: str, backlog: dict[str, int], journal: JournalState) -> RunSnapshot:
        """The run so far."""
        waiting = journal.totals.total(names.WAITING_BYTES) - journal.totals.total(names.RESUMED_BYTES)
        return snapshot_of(
            self._app,
            state,
            self._windows,
            self._counters,
            seconds=time.monotonic() - self._started,
            partitions=dict(self._partitions),
            backlog=backlog,
            last_planned=journal.last_planned,
            last_committed=journal.last_committed,
            waiting_bytes=max(waiting, 0),
        )
