"""The statistics of a run, and how fast its figures grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.journal.heartbeat import RunningWindow
from dagflow.journal.state import JournalState, PartitionCounts
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.metrics import names
from dagflow.metrics.counters import Counters, OperatorCounters, OperatorReport
from dagflow.plan.placement import PlacedApp
from dagflow.report.snapshot import WholeInput
from dagflow.report.statistics import RATE_WINDOW_S, Rate, RunStatistics
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of


def test_a_snapshot_adds_up_windows_and_names_every_operator() -> None:
    """Committed windows in figures, running ones beside them, operators upstream first with their stages."""
    app = PlacedApp.of(app_of(Path("unused"), [b"a"]), StorageContext.default())
    statistics = RunStatistics(app.plan, app.operators)
    reader = Counters({"lines": OperatorCounters({names.BLOCKS: 2, names.BYTES: 7}, {"records": 5}, {"records": 50})})
    plan = WindowPlan(1, partitions={"lines": 2}, counters=Counters.of_counts({"source": {names.FILES: 1}}))
    journal = JournalState(outputs=["/out"])
    for window_id in (1, 2):
        statistics.planned(plan)
        statistics.committed(plan, WindowIntent(window_id, counters=reader, busy_s={"lines": 0.5}))
    work = {"lines": OperatorReport(0.5, {"records": 3}), "writer": OperatorReport(0.5, {"others": 2})}
    running = [RunningWindow(3, 4, 9, 0, 2, operators=work)]
    snapshot = statistics.snapshot("running", journal, {"lines": 1}, running)
    assert (snapshot.windows, snapshot.files, snapshot.blocks, snapshot.bytes) == (2, 2, 4, 14)
    assert (snapshot.running_bytes, snapshot.outputs, snapshot.backlog) == (4, ("/out",), {"lines": 1})
    assert snapshot.partitions == {"lines": PartitionCounts(2, 2, 2)}
    by_name = {each.name: each for each in snapshot.operators}
    assert list(by_name) == [*app.plan.control, *(name for stage in app.plan.stages for name in stage.operators)]
    lines = by_name["lines"]
    assert (lines.busy_s, lines.records, lines.bytes) == (1.0, {"records": 10}, {"records": 100})
    assert by_name["lines"].is_source
    assert snapshot.records["lines.records"] == 10
    assert (snapshot.running[0].records_read, snapshot.records_read) == (3, 13)


def test_the_time_that_is_left_follows_from_the_whole_and_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known with the whole, after two seconds of work; what Java took to start does not count."""
    app = PlacedApp.of(app_of(Path("unused"), [b"a"]), StorageContext.default())
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    statistics = RunStatistics(app.plan, app.operators)

    def left_s(seconds: float, read: int, whole: WholeInput | None) -> float | None:
        now[0] = 100.0 + seconds
        running = [RunningWindow(1, read, 1000, 0, 2)]
        return statistics.snapshot("running", JournalState(), {}, running, whole).rates.remaining_s

    whole = WholeInput(1000)
    assert left_s(50.0, 0, whole) is None
    assert left_s(51.0, 100, whole) is None
    assert left_s(52.0, 200, whole) == 8.0
    assert left_s(53.0, 300, None) is None
    assert left_s(60.0, 1000, whole) == 0.0


def test_a_rate_covers_the_last_seconds_only() -> None:
    """What was fast long ago does not count, and nothing is known before two moments."""
    rate = Rate()
    assert rate.per_second == 0.0
    rate.update(0.0, 0)
    rate.update(1.0, 1000)
    assert rate.per_second == 1000.0
    for second in range(2, 20):
        rate.update(float(second), 1000 + second)
    assert rate.per_second == 1.0
    assert RATE_WINDOW_S < 18


def test_a_figure_that_goes_back_has_no_rate() -> None:
    """A window that is committed may hold less than its tasks had reported."""
    rate = Rate()
    rate.update(0.0, 10)
    rate.update(1.0, 5)
    assert rate.per_second == 0.0
