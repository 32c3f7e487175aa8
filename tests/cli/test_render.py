"""A run's figures in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dagflow.cli.render import bottleneck, progress_figures, progress_line
from dagflow.cli.render import summary as summary_text
from dagflow.journal.heartbeat import RunningWindow
from dagflow.metrics.counters import OperatorReport
from dagflow.report.snapshot import OperatorFigures, WholeInput
from tests.cli.samples import at_work, operators, summary


@pytest.mark.parametrize(
    ("whole", "left_s", "shown"),
    [
        (WholeInput(800 << 20), 12.4, "77 % · 621/800 MiB · 100 MiB/s · ETA 0:12 · 1/8 tasks"),
        (WholeInput(3 << 30), 3725.0, "20 % · 0.6/3.0 GiB · 100 MiB/s · ETA 1:02:05 · 1/8 tasks"),
        (WholeInput(800 << 20, is_exact=False), None, "77 % · 621 of about 800 MiB · 100 MiB/s · 1/8 tasks"),
        (WholeInput(600 << 20), 0.0, "100 % · 621/600 MiB · 100 MiB/s · ETA 0:00 · 1/8 tasks"),
        (None, None, "621 MiB · 100 MiB/s · 1/8 tasks"),
        (WholeInput(0), None, "621 MiB · 100 MiB/s · 1/8 tasks"),
    ],
)
def test_the_share_and_the_rest_are_shown_where_the_whole_is_known(
    whole: WholeInput | None, left_s: float | None, shown: str
) -> None:
    """In one unit, and without a guess where a run follows or has not listed its input."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4), RunningWindow(16, 1 << 20, 64 << 20, 0, 4))
    assert progress_figures(replace(summary(6.0), progress=at_work(*running, left_s=left_s), whole=whole)) == shown


def test_the_operator_that_takes_most_time_is_named_in_words() -> None:
    """Shares of the tasks' time, also in windows that run; the driver works in parallel to them."""
    worked = (
        OperatorFigures("splitter", busy_s=90.0),
        OperatorFigures("reader", "reader", busy_s=2.0),
        OperatorFigures("slow", "reader", busy_s=3.0),
    )
    snapshot = replace(summary(8.0), operators=worked)
    assert bottleneck(snapshot) == "bottleneck: slow takes 60 % of the tasks' time"
    running = at_work(RunningWindow(15, 1, 2, 0, 1, operators={"reader": OperatorReport(2.0, {"messages": 7})}))
    assert bottleneck(replace(snapshot, progress=running)) == "bottleneck: reader takes 57 % of the tasks' time"
    even = tuple(OperatorFigures(name, "a", busy_s=1.0) for name in "abc")
    assert bottleneck(replace(snapshot, operators=even)) == "no bottleneck: a takes most, 33 % of the tasks' time"
    assert bottleneck(replace(snapshot, operators=worked[:1])) == ""


def test_a_counter_whose_name_has_a_line_break_is_shown_on_one_line() -> None:
    """Such as an expectation of Check that the app writes on two lines."""
    counted = operators(6.0, {"failed qty > 0\nand price > 3": 2})
    assert (
        "    also counted: reader:failed qty > 0\\nand price > 3 2"
        in summary_text(replace(summary(6.0, state="completed"), operators=counted)).splitlines()
    )


@pytest.mark.parametrize(("rejected", "figure"), [(2, "2 rejected"), (-3, "3 came back")])
def test_records_that_come_back_are_not_less_than_none_refused(rejected: int, figure: str) -> None:
    """A run that reads refused records again counts down what earlier runs have counted up."""
    done = summary(6.0, rejected=rejected)
    number, title = figure.split(" ", 1)
    assert f", {figure}" in progress_line(done)
    assert f"\n    {title}: {number}" in summary_text(done)
