"""Keeps the snapshot of a run up to date: adds up its windows, and measures how fast it reads."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dagflow.api.operator import Operator
from dagflow.errors import own_name
from dagflow.journal.heartbeat import RunningWindow, RunProgress, RunRates
from dagflow.journal.state import JournalState, PartitionCounts, note_partitions
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.plan.logical import own_stages
from dagflow.plan.physical import PhysicalPlan
from dagflow.report.own_figures import OwnFigures, PublishedPart, own_sums
from dagflow.report.snapshot import RunSnapshot, WholeInput, figures_of, snapshot_of, snapshot_of_all
from dagflow.storage.location import redacted
from dagflow.storage.pending import output_of

RATE_WINDOW_S = 5.0
"""Seconds that a rate is measured over: a single window does not make it jump, and it follows changes."""


MIN_STEADY_S = 2.0
STEADY_WINDOW_S = 30.0
"""Seconds of the mean that the remaining time is computed from: longer, because an estimate that jumps is of no use."""


RATE_POINTS = 50
"""About how many moments a rate remembers: a run may end many windows in a second."""


class Rate:
    """Growth of one figure per second, over the last window_s seconds."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._points: deque[tuple[float, float]] = deque()

    def update(self, seconds: float, value: float) -> None:
        if len(self._points) > 1 and seconds - self._points[-2][0] < self._window_s / RATE_POINTS:
            self._points.pop()
        self._points.append((seconds, value))
        while len(self._points) > 2 and self._points[1][0] <= seconds - self._window_s:
            self._points.popleft()

    @property
    def span_s(self) -> float:
        return self._points[-1][0] - self._points[0][0] if self._points else 0.0

    @property
    def per_second(self) -> float:
        """Growth per second; 0 before two moments are known."""
        if len(self._points) < 2:
            return 0.0
        (start, first), (end, last) = self._points[0], self._points[-1]
        return max(0.0, last - first) / (end - start) if end > start else 0.0


class RunStatistics:
    """The statistics of one run.

    Args:
        unfinished: The first window that an earlier run has committed, and this one publishes; 0 for none.
    """

    def __init__(self, plan: PhysicalPlan, operators: Mapping[str, Operator], unfinished: int = 0) -> None:
        stage_by_operator = {name: stage.head for stage in plan.stages for name in stage.operators}
        self._stages = {**dict.fromkeys(plan.control, ""), **stage_by_operator}
        self._sources = {
            own_name(name) for name in self._stages if name in operators and is_record_source(operators[name])
        }
        self._started = time.monotonic()
        self._windows, self._first_window = 0, unfinished
        self._counters = Counters()
        self._busy_s: dict[str, float] = {}
        self._partitions: dict[str, PartitionCounts] = {}
        self._files, self._rows = Counter[str](), Counter[str]()
        self._bytes, self._records, self._steady = Rate(), Rate(), Rate(STEADY_WINDOW_S)

    def planned(self, plan: WindowPlan) -> None:
        note_partitions(self._partitions, plan)

    def committed(self, plan: WindowPlan, intent: WindowIntent, outputs: Sequence[str] = ()) -> None:
        """Count a window.

        Args:
            outputs: The locations that the app publishes below.
        """
        self._windows += 1
        self._first_window = self._first_window or plan.window_id
        for file in intent.files:
            output = output_of(file, outputs)
            self._files[output] += 1
            self._rows[output] += file.records
        self._counters.add(plan.counters)
        self._counters.add(intent.counters)
        for name, seconds in intent.busy_s.items():
            self._busy_s[name] = self._busy_s.get(name, 0.0) + seconds

    @property
    def read_bytes(self) -> int:
        return self._counters.total(names.BYTES)

    def snapshot(
        self,
        state: str,
        journal: JournalState,
        backlog: dict[str, int],
        running: Iterable[RunningWindow] = (),
        whole: WholeInput | None = None,
        backlog_bytes: int = 0,
        backlog_blocks: int | None = 0,
    ) -> RunSnapshot:
        """The current figures of the run; RunSnapshot says what the arguments are."""
        seconds = time.monotonic() - self._started
        own = OwnFigures(journal.facts)
        counters, busy_s = own.counters(self._counters), own_sums(self._busy_s)
        windows = []
        for window in running:
            operators = own.reports(window.operators)
            read = sum(sum(done.records.values()) for name, done in operators.items() if name in self._sources)
            windows.append(replace(window, operators=operators, records_read=read))
        backlog = own_sums(backlog, own.stage)
        figures = tuple(
            figures_of(name, counters, busy_s.get(name, 0.0), own.stage(head), name in self._sources)
            for name, head in own_stages(self._stages).items()
        )
        corrections = (each for each in journal.corrections if 0 < self._first_window <= each.window_id)
        snapshot = replace(
            snapshot_of(journal, self._counters),
            state=state,
            corrections=tuple(corrections),
            windows=self._windows,
            seconds=seconds,
            operators=figures,
            partitions=own.by_stage(self._partitions),
            progress=RunProgress(tuple(windows), backlog=backlog),
            published=tuple(self._published(journal)),
            whole=whole,
            backlog_bytes=backlog_bytes,
            backlog_blocks=backlog_blocks,
        )
        all_runs = replace(
            snapshot_of_all(journal), state=state, backlog_bytes=backlog_bytes, backlog_blocks=backlog_blocks
        )
        self._bytes.update(seconds, snapshot.read_bytes)
        self._records.update(seconds, snapshot.records_read)
        if snapshot.read_bytes or windows:  # the time that Java takes to start says nothing about the rest of the run
            self._steady.update(seconds, snapshot.read_bytes)
        speed = self._steady.per_second if self._steady.span_s >= MIN_STEADY_S else 0.0
        left_s = max(whole.bytes - snapshot.read_bytes, 0) / speed if whole is not None and speed else None
        rates = RunRates(self._bytes.per_second, self._records.per_second, left_s)
        return replace(snapshot, progress=RunProgress(tuple(windows), rates, backlog), all_runs=all_runs)

    def _published(self, journal: JournalState) -> Iterator[PublishedPart]:
        for output, files in sorted(self._files.items()):
            receipt = journal.receipts.get(output)
            if receipt is None:
                yield PublishedPart(redacted(own_name(output)), files)
            else:
                yield PublishedPart(receipt.target, files, self._rows[output])


def is_record_source(operator: Operator) -> bool:
    """Whether an operator emits records and takes none in."""
    takes = any(port.carries_records for port in operator.input_ports.values())
    return not takes and any(port.carries_records for port in operator.output_ports.values())
