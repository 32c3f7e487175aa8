"""Adds up a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from dagflow.journal import JournalState, WindowPlan
from dagflow.metrics import names
from dagflow.report.snapshot import PartitionRange, RunSnapshot


def _sum_of(counters: Mapping[str, int], name: str) -> int:
    return sum(value for key, value in counters.items() if key.partition(":")[2] == name)


def summary_of(
    app: str,
    state: str,
    windows: int,
    control: Mapping[str, int],
    tasks: Mapping[str, int],
    **others: object,
) -> RunSnapshot:
    """Make the account from counts under the keys of metrics/names.py.

    Args:
        app: The app's name.
        state: The run's state.
        windows: Committed windows.
        control: What the control operators counted in those windows.
        tasks: What the partitioned operators counted, and what left each record port.
        others: Further fields of RunSnapshot.
    """
    shown = {names.FILES, names.BLOCKS, names.BYTES, names.REJECTED}
    counts = Counter(control) + Counter(tasks)
    return RunSnapshot(
        app=app,
        state=state,
        windows=windows,
        files=_sum_of(control, names.FILES),
        blocks=_sum_of(tasks, names.BLOCKS),
        bytes=_sum_of(tasks, names.BYTES),
        records={key: value for key, value in sorted(tasks.items()) if ":" not in key},
        rejected=_sum_of(tasks, names.REJECTED),
        counts={key: counts[key] for key in sorted(counts) if ":" in key and key.partition(":")[2] not in shown},
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
        self._control: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()
        self._partitions: dict[str, PartitionRange] = {}

    def planned(self, plan: WindowPlan) -> None:
        """Note the partition counts of a window that was submitted."""
        for stage, count in plan.partitions.items():
            known = self._partitions.get(stage, PartitionRange(count, count, count))
            self._partitions[stage] = known.including(count)

    def committed(self, plan: WindowPlan, counters: Mapping[str, int]) -> None:
        """Add a window."""
        self._windows += 1
        self._control.update(plan.counters)
        self._tasks.update(counters)

    def summary(self, state: str, backlog: dict[str, int], journal: JournalState) -> RunSnapshot:
        """The account so far."""
        return summary_of(
            self._app,
            state,
            self._windows,
            self._control,
            self._tasks,
            seconds=time.monotonic() - self._started,
            partitions=dict(self._partitions),
            backlog=backlog,
            last_planned=journal.last_planned,
            last_committed=journal.last_committed,
            waiting_bytes=max(
                _sum_of(journal.totals, names.WAITING_BYTES) - _sum_of(journal.totals, names.RESUMED_BYTES), 0
            ),
        )
