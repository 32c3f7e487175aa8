"""The table on a terminal, as it is seen."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from dagflow.cli.live_display import LiveDisplay
from dagflow.journal.heartbeat import RunningWindow
from dagflow.metrics.counters import OperatorReport
from dagflow.report.snapshot import OperatorFigures, RunSnapshot, WholeInput
from tests.cli.samples import APP, at_work, operators, summary


def terminal(width: int = 80) -> Console:
    """A terminal that remembers."""
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system="standard")


def screen_of(console: Console) -> str:
    """What a terminal was sent, escapes included."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


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


def test_a_live_display_distinguishes_work_from_waiting() -> None:
    """Before the first window no zeros stand beside the records; with nothing in hand no operator is a bottleneck."""
    begun = RunningWindow(1, 20 << 20, 64 << 20, 0, 4, operators={"reader": OperatorReport(2.5, {"messages": 5})})
    first = replace(summary(2.0), windows=0, files=0, blocks=0, progress=at_work(begun))
    console = Console(file=io.StringIO(), width=80, height=24)
    display = LiveDisplay(APP, console)
    shown = []
    for figures in (
        replace(first, progress=None, operators=()),
        first,
        replace(summary(6.0), progress=at_work(waiting=0), all_runs=RunSnapshot(APP, oldest_unpublished_ms=1)),
        replace(summary(7.0), progress=at_work(waiting=0), all_runs=RunSnapshot(APP)),
    ):
        before = len(screen_of(console))
        display.progress(figures)
        console.print(display._render())
        shown.append(screen_of(console)[before:])
    heads = [text.splitlines()[0].split("  ")[1] for text in shown]
    assert heads == ["looking for files", "running", "running", "up to date, looking for new files"]
    assert ["files" in text.splitlines()[2] for text in shown] == [False, False, True, True]
    assert ["bottleneck" in text for text in shown] == [False, True, False, False]


def test_a_wide_terminal_shows_more() -> None:
    """Running windows, and how long and how fast each operator works; no line is wider than the terminal."""
    running = (RunningWindow(15, 20 << 20, 64 << 20, 1, 4, operators={"reader": OperatorReport(2.5, {"messages": 5})}),)
    shown = {}
    for width in (80, 120):
        console = Console(file=io.StringIO(), width=width, height=24)
        display = LiveDisplay(APP, console)
        display.progress(replace(summary(6.0), progress=at_work(*running), whole=WholeInput(800 << 20)))
        console.print(display._render())
        shown[width] = screen_of(console)
        assert max(map(len, shown[width].splitlines())) <= width
        assert "77 % · 620/800 MiB" in shown[width]
        assert "messages 6,000,005" in shown[width]
    assert "window 15: 20.0/64.0 MiB · 1/4 tasks" in shown[120]
    assert re.search("reader .* 100 % +2.5 s +2.4 M +messages 6,000,005", shown[120])
    assert "window 15" not in shown[80]


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


def test_the_table_gives_way_to_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_live_table_shows_that_it_is_stopping() -> None:
    """The first Ctrl-C is answered on the screen, with what a second one would do."""
    console = Console(file=io.StringIO(), width=80)
    display = LiveDisplay(APP, console)
    display.progress(summary(1.0))
    display.stopping()
    display.progress(summary(2.0))
    console.print(display._render())
    assert "stopping (Ctrl-C again stops at once)" in screen_of(console)
