"""Displays, as they are seen."""

from __future__ import annotations

import io
import logging
import re
from dataclasses import replace

import pytest
from rich.console import Console

from dagflow.api.context import Skipped
from dagflow.cli.progress import Display, LineDisplay, LiveDisplay, display_for, logging_to
from dagflow.cli.render import bottleneck, progress_figures
from dagflow.execution.task_progress import OperatorReport
from dagflow.journal import LeftOut
from dagflow.report.snapshot import OperatorFigures, RunningWindow, RunRates, RunSnapshot, WholeInput
from tests.cli.samples import APP, operators, summary


def terminal(width: int = 80) -> Console:
    """A terminal that remembers."""
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system="standard")


def screen_of(console: Console) -> str:
    """What a terminal was sent, escapes included."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_lines_are_seconds_apart_by_the_run_s_own_clock(capsys: pytest.CaptureFixture[str]) -> None:
    """However often the driver reports, a log stays readable."""
    display = LineDisplay(APP)
    for tenth in range(120):
        display.progress(summary(tenth / 10))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == (
        "block-reader: 5.0 s, 500 MiB · 100 MiB/s, 14 windows, 3 files, 1,200 blocks (120 waiting),"
        " 5,000,000 records at 1.0 M/s, partitions reader=8"
    )


def test_a_run_that_waits_for_new_files_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    """Following fills no log while nothing comes; a window that takes long is told about again and again."""
    display = LineDisplay(APP)
    idle = replace(summary(6.0), backlog={"reader": 0})
    for seconds in range(6, 60):
        display.progress(replace(idle, seconds=float(seconds)))
    assert len(capsys.readouterr().err.splitlines()) == 1
    for seconds in range(60, 80):
        display.progress(replace(idle, seconds=float(seconds), backlog={"reader": 1}))
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_the_end_is_told_with_what_was_published(capsys: pytest.CaptureFixture[str]) -> None:
    """The last lines account for the run."""
    LineDisplay(APP).finish(summary(8.0, state="completed", rejected=2))
    assert capsys.readouterr().err == (
        "block-reader: completed in 8.0 s\n"
        "    published 14 windows, read from 3 files, 1,200 blocks, 800 MiB (100 MiB/s)\n"
        "    records: reader.messages 8,000,000, filter.output 7,200,000\n"
        "    rejected: 2\n"
    )


def test_what_was_left_out_is_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A run that is told to go on without some files completes, and says that it did."""
    ranges = [Skipped(f"/in/{number}", 0, 256, "missing: no such file", "deleted") for number in range(8)]
    for run in (summary(8.0, state="completed"), replace(summary(8.0, state="completed"), windows=0)):
        LineDisplay(APP).finish(replace(run, left_out=LeftOut().after(ranges, [])))
        told = capsys.readouterr().err
        assert "\n    left out of the input, in all runs: 8 ranges, 2.0 KiB\n        /in/3 [0, 256): missing: " in told
        assert "\n        and 3 more: `dagflow status CHECKPOINT --files '*'` shows all" in told


def test_the_end_names_where_the_output_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A person finds what was written, and what Java or operators had to say."""
    outputs, log = ("/data/out", "s3://bucket/out"), ".dagflow/a.spark.log"
    LineDisplay(APP).finish(replace(summary(8.0, state="completed"), outputs=outputs, published_files=12, log=log))
    told = capsys.readouterr().err
    assert told.endswith("\n    output: 12 files in /data/out, s3://bucket/out\n    log: .dagflow/a.spark.log\n")


def test_a_start_that_took_longer_than_the_work_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With both figures; not where the work took longer, nor where no Spark was started.

    The driver's operators do not count: one that has blocks pre-scanned waits for Spark itself.
    """
    worked = (
        OperatorFigures("splitter", busy_s=9.5),
        OperatorFigures("reader", "reader", busy_s=3.0),
        OperatorFigures("filter", "reader", busy_s=2.0),
    )
    for start_s in (0.0, 4.0, 9.0):
        snapshot = replace(summary(20.0, state="completed"), operators=worked, spark_start_s=start_s)
        LineDisplay(APP).finish(snapshot)
    told = [line for line in capsys.readouterr().err.splitlines() if "--local" in line]
    assert told == [
        "    the run waited 9.0 s for Spark, and its tasks worked for 5.0 s: it would be faster with --local"
    ]


def test_bytes_of_running_windows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A long window shows that it gets on."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4), RunningWindow(16, 1 << 20, 64 << 20, 0, 4))
    LineDisplay(APP).progress(replace(summary(6.0), running=running))
    assert ": 6.0 s, 621 MiB · 100 MiB/s · 1/8 tasks, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("whole", "left_s", "told"),
    [
        (WholeInput(800 << 20), 12.4, "77 % · 621/800 MiB · 100 MiB/s · ETA 0:12 · 1/8 tasks"),
        (WholeInput(3 << 30), 3725.0, "20 % · 0.6/3.0 GiB · 100 MiB/s · ETA 1:02:05 · 1/8 tasks"),
        (WholeInput(800 << 20, is_exact=False), None, "77 % · 621 of about 800 MiB · 100 MiB/s · 1/8 tasks"),
        (WholeInput(600 << 20), 0.0, "100 % · 621/600 MiB · 100 MiB/s · ETA 0:00 · 1/8 tasks"),
        (None, None, "621 MiB · 100 MiB/s · 1/8 tasks"),
        (WholeInput(0), None, "621 MiB · 100 MiB/s · 1/8 tasks"),
    ],
)
def test_the_share_and_the_rest_are_told_where_the_whole_is_known(
    whole: WholeInput | None, left_s: float | None, told: str
) -> None:
    """In one unit, and without a guess where a run follows or has not listed its input."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4), RunningWindow(16, 1 << 20, 64 << 20, 0, 4))
    rates = RunRates(float(100 << 20), 1_000_000.0, left_s)
    assert progress_figures(replace(summary(6.0), running=running, whole=whole, rates=rates)) == told


def test_a_start_of_java_is_a_line_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, and not again with the figures that come after it."""
    display = LineDisplay(APP)
    display.progress(summary(1.0))
    display.progress(RunSnapshot(APP, waits_for="starting Java for Spark on local[*]"))
    display.progress(summary(2.0))
    assert capsys.readouterr().err == "block-reader: starting Java for Spark on local[*]\n"
    assert display.last == summary(2.0)


def test_a_live_display_counts_the_seconds_of_a_start() -> None:
    """The figures from before stay, and with the next ones the run goes on."""
    console = Console(file=io.StringIO(), width=80, height=24)
    now = [0.0]
    display = LiveDisplay(APP, console, now=lambda: now[0])
    now[0] = 1.0
    console.print(display._render())
    display.progress(RunSnapshot(APP, waits_for="starting Java"))
    now[0] = 4.2
    console.print(display._render())
    display.progress(summary(6.0))
    console.print(display._render())
    heads = [line.split("  ", 1)[1] for line in screen_of(console).splitlines() if APP in line]
    assert heads == ["starting … 1 s", "starting Java … 3 s", "running  6.0 s"]


def test_a_live_display_tells_work_from_waiting() -> None:
    """Before the first window no zeros stand beside the records; with nothing in hand no operator is a bottleneck."""
    begun = RunningWindow(1, 20 << 20, 64 << 20, 0, 4, operators={"reader": OperatorReport(2.5, {"messages": 5})})
    first = replace(summary(2.0), windows=0, files=0, blocks=0, running=(begun,))
    console = Console(file=io.StringIO(), width=80, height=24)
    display = LiveDisplay(APP, console)
    shown = []
    for figures in (
        replace(first, backlog={}, running=(), operators=()),
        first,
        replace(summary(6.0), backlog={"reader": 0}, all_runs=RunSnapshot(APP, oldest_unpublished_ms=1)),
        replace(summary(7.0), backlog={"reader": 0}, all_runs=RunSnapshot(APP)),
    ):
        before = len(screen_of(console))
        display.progress(figures)
        console.print(display._render())
        shown.append(screen_of(console)[before:])
    heads = [text.splitlines()[0].split("  ")[1] for text in shown]
    assert heads == ["looking for files", "running", "running", "up to date, looking for new files"]
    assert ["files" in text.splitlines()[2] for text in shown] == [False, False, True, True]
    assert ["bottleneck" in text for text in shown] == [False, True, False, False]


def test_the_operator_that_takes_most_time_is_told_in_words() -> None:
    """Of the tasks' time, also of windows that run; what the driver does, it does beside them."""
    worked = (
        OperatorFigures("splitter", busy_s=90.0),
        OperatorFigures("reader", "reader", busy_s=2.0),
        OperatorFigures("slow", "reader", busy_s=3.0),
    )
    snapshot = replace(summary(8.0), operators=worked)
    assert bottleneck(snapshot) == "bottleneck: slow takes 60 % of the tasks' time"
    running = RunningWindow(15, 1, 2, 0, 1, operators={"reader": OperatorReport(2.0, {"messages": 7})})
    assert bottleneck(replace(snapshot, running=(running,))) == "bottleneck: reader takes 57 % of the tasks' time"
    even = tuple(OperatorFigures(name, "a", busy_s=1.0) for name in "abc")
    assert bottleneck(replace(snapshot, operators=even)) == "no bottleneck: a takes most, 33 % of the tasks' time"
    assert bottleneck(replace(snapshot, operators=worked[:1])) == ""


def test_a_wide_terminal_shows_more() -> None:
    """Running windows, and how long and how fast each operator works; no line is wider than the terminal."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4, operators={"reader": OperatorReport(2.5, {"messages": 5})}),)
    shown = {}
    for width in (80, 120):
        console = Console(file=io.StringIO(), width=width, height=24)
        display = LiveDisplay(APP, console)
        display.progress(replace(summary(6.0), running=running, whole=WholeInput(800 << 20)))
        console.print(display._render())
        shown[width] = screen_of(console)
        assert max(map(len, shown[width].splitlines())) <= width
        assert "77 % · 620/800 MiB" in shown[width]
        assert "messages 6,000,005" in shown[width]
    assert "window 15: 20.0/64.0 MiB · 1/4 tasks" in shown[120]
    assert re.search("reader .* 100 % +2.5 s +2.4 M +messages 6,000,005", shown[120])
    assert "window 15" not in shown[80]


def test_a_run_without_new_input_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A quick run says that it had nothing to do."""
    LineDisplay(APP).finish(summary(0.5, state="completed", windows=0))
    assert capsys.readouterr().err == ("block-reader: nothing new: all input was processed in earlier runs (0.5 s)\n")


def test_a_run_without_new_input_names_what_still_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """A record in progress has not been processed."""
    LineDisplay(APP).finish(replace(summary(0.5, state="completed", windows=0), waiting_bytes=7))
    assert capsys.readouterr().err == (
        "block-reader: nothing new: all input was processed in earlier runs, but for 7 B of records in progress"
        " (0.5 s)\n"
    )


def test_a_run_stopped_before_its_first_window_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Stopped is not the same as nothing new."""
    LineDisplay(APP).finish(summary(0.5, state="stopped", windows=0))
    assert capsys.readouterr().err == "block-reader: stopped in 0.5 s: nothing was published\n"


def test_quiet_shows_nothing_and_remembers_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """Under -q only errors are printed; a failed run's account still needs the last figures."""
    display = display_for(APP, is_quiet=True)
    with display:
        display.progress(summary(6.0))
        display.notice("news")
        display.stopping()
        display.finish(summary(7.0))
    assert capsys.readouterr() == ("", "")
    assert display.last == summary(7.0)


def test_where_stderr_is_no_terminal_lines_are_written() -> None:
    """A log file gets no escapes."""
    assert type(display_for(APP, is_quiet=False)) is LineDisplay


def test_the_live_table_shows_every_figure_within_eighty_columns() -> None:
    """Files, blocks, bytes, records a second, backlog and partitions of each operator, on an ordinary terminal."""
    console = Console(file=io.StringIO(), width=80, height=24)
    display = LiveDisplay(APP, console)
    for second in range(1, 4):
        display.progress(replace(summary(second), files=123_456, blocks=12_345_678))
    console.print(display._render())
    lines = screen_of(console).splitlines()
    assert max(map(len, lines)) <= 80
    shown = "\n".join(lines)
    for figure in ("block-reader", "running", "123,456", "12,345,678", "300 MiB", "100 MiB/s", "3,000,000", "1.0 M/s"):
        assert figure in shown
    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert rows["splitter"] == ["driver"]
    assert rows["reader"] == ["8", "120", "messages", "3,000,000"]
    assert rows["filter"] == ["8", "output", "2,700,000"]
    assert rows["writer"] == ["8"]


def test_huge_figures_and_long_names_do_not_break_the_table_apart() -> None:
    """No line is wider than the terminal, whatever the run's size."""
    console = Console(file=io.StringIO(), width=80, height=24)
    long = "an-operator-with-a-very-long-name-that-goes-on-and-on"
    display = LiveDisplay(APP, console)
    figures = (*operators(9_000_000), OperatorFigures(long))
    huge = replace(
        summary(9_000_000),
        operators=figures,
        files=40_000_000,
        blocks=123_456_789_012,
        windows=9_999_999,
        rejected=999_999_999,
    )
    display.progress(huge)
    console.print(display._render())
    assert max(map(len, screen_of(console).splitlines())) <= 80


def test_the_table_gives_way_to_the_account(capsys: pytest.CaptureFixture[str]) -> None:
    """After a run the screen holds what was done, and the cursor is back."""
    console = terminal()
    with LiveDisplay(APP, console) as display:
        display.progress(summary(1.0))
        display.finish(summary(2.0, state="completed"))
    assert screen_of(console).endswith("\x1b[2K")
    assert "\x1b[?25h" in screen_of(console)
    assert capsys.readouterr().err.startswith("block-reader: completed in 2.0 s\n")


def test_the_table_stays_where_a_run_failed() -> None:
    """The figures at the moment of the failure remain above the error."""
    console = terminal()
    with pytest.raises(OSError, match="lost"), LiveDisplay(APP, console) as display:
        display.progress(summary(1.0))
        raise OSError("lost")
    screen = screen_of(console)
    assert "block-reader" in screen.rpartition("\x1b[?25h")[0]
    assert not screen.endswith("\x1b[2K")


def test_a_notice_stands_above_the_live_table() -> None:
    """News is not overwritten by the next redrawing, and markup in it means nothing."""
    console = terminal()
    with LiveDisplay(APP, console) as display:
        display.notice("[bold]quarantined[/bold] a.txt")
    assert "[bold]quarantined[/bold] a.txt\n" in screen_of(console)


class _LostTerminal(io.StringIO):
    """A terminal that is gone."""

    attempts = 0

    def write(self, text: str) -> int:
        self.attempts += 1
        raise OSError(5, "Input/output error")


def test_a_terminal_that_is_gone_does_not_end_a_run() -> None:
    """After SIGHUP nothing can be shown, and the run still ends cleanly."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with LiveDisplay(APP, console) as display:
        display.progress(summary(1.0))
        console.file = lost = _LostTerminal()
        display.notice("stopping")
        display.finish(summary(2.0))
    assert lost.attempts


def test_the_live_table_tells_that_it_is_stopping() -> None:
    """The first Ctrl-C is answered on the screen, with what a second one would do."""
    console = Console(file=io.StringIO(), width=80)
    display = LiveDisplay(APP, console)
    display.progress(summary(1.0))
    display.stopping()
    display.progress(summary(2.0))
    console.print(display._render())
    assert "stopping (Ctrl-C again stops at once)" in screen_of(console)


class Remembering(Display):
    """Keeps its notices."""

    def __init__(self) -> None:
        super().__init__(APP)
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.parametrize(("is_verbose", "levels"), [(False, ["WARNING"]), (True, ["DEBUG", "WARNING"])])
def test_the_log_is_shown_as_far_as_it_is_asked_for(is_verbose: bool, levels: list[str]) -> None:
    """Warnings always, the rest under --verbose, and nothing after the run."""
    display = Remembering()
    logger = logging.getLogger("dagflow.engine")
    with logging_to(display, is_verbose=is_verbose):
        logger.debug("planned window=%d", 7)
        logger.warning("slow window=%d", 7)
    logger.warning("after the run")
    assert [notice.split()[0] for notice in display.notices] == levels
    assert display.notices[-1] == "WARNING dagflow.engine: slow window=7"
