"""The display of a terminal: a table that redraws itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dagflow.cli import output
from dagflow.cli.display import Display
from dagflow.cli.output import brief, duration, part
from dagflow.cli.render import activity, bottleneck, is_busy, progress_figures, record_rate, rejected_figure, summary
from dagflow.cli.shared_options import Redact
from dagflow.report.snapshot import RunSnapshot

WIDE_COLUMNS = 110
"""From this width on the table shows more."""

MAX_STALLS = 3
"""Tasks without progress that it names."""


class LiveDisplay(Display):
    def __init__(
        self, app: str, console: Console, redact: Redact = str, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(app, redact)
        self._now = now
        self._console = console
        self._spinner = Spinner("dots")
        self._status = ""
        self._waits_for, self._since_s = "starting", now()
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Clear the table, or leave its last state where the run ended with an error."""
        self._live.transient = error is None or self.last is None
        with suppress(OSError):  # the terminal is gone, as after SIGHUP
            self._live.stop()

    def progress(self, snapshot: RunSnapshot) -> None:
        super().progress(snapshot)
        if not snapshot.waits_for:
            self._waits_for = ""

    def waiting(self, what: str) -> None:
        self._waits_for, self._since_s = what, self._now()

    def notice(self, text: str) -> None:
        with suppress(OSError):
            self._console.print(Text(output.printable(self.redact(text))), soft_wrap=True)

    def stopping(self) -> None:
        self._status = "stopping (Ctrl-C again stops at once)"

    def abandon(self) -> None:
        """Show the cursor again."""
        output.at_once("\x1b[?25h\n")

    def finish(self, snapshot: RunSnapshot) -> None:
        super().finish(snapshot)
        with suppress(OSError):
            self._live.stop()
        output.note(summary(snapshot))

    def _render(self) -> RenderableType:
        status = self._status or activity(self.last)
        if self._waits_for and not self._status:
            status = f"{self._waits_for} … {self._now() - self._since_s:.0f} s"
        return _table(self.app, self.last, self._spinner, status, self._console.width)


def live_display(app: str, redact: Redact) -> LiveDisplay | None:
    """None if stderr is no terminal that can redraw."""
    console = Console(stderr=True, highlight=False)
    return LiveDisplay(app, console, redact) if console.is_terminal and not console.is_dumb_terminal else None


def _table(name: str, snapshot: RunSnapshot | None, spinner: Spinner, status: str, columns: int) -> RenderableType:
    """The table, as wide as the terminal where names are of ordinary length."""
    head = Text.assemble((name, "bold"), "  ", status)
    if snapshot is not None:
        head.append(f"  {duration(snapshot.seconds)}", "cyan")
    spinner.update(text=head)
    if snapshot is None:
        return spinner
    is_wide = columns >= WIDE_COLUMNS
    words = [Text(stall, "yellow", overflow="ellipsis", no_wrap=True) for stall in snapshot.stalls[:MAX_STALLS]]
    if is_busy(snapshot) and (most := bottleneck(snapshot)):
        words.insert(0, Text(most, "dim", overflow="ellipsis", no_wrap=True))
    windows = []
    for window in snapshot.running if is_wide else ():
        read = part(window.bytes_read, window.bytes)
        text = f"window {window.window_id:,}: {read} · {window.tasks_done:,}/{window.tasks:,} tasks"
        windows.append(Text(text, "dim", overflow="ellipsis", no_wrap=True))
    return Group(spinner, _bar(snapshot), *windows, _figures(snapshot), _operators(snapshot, is_wide=is_wide), *words)


def _bar(snapshot: RunSnapshot) -> RenderableType:
    """How far the run is; with a bar where the whole of the input is known."""
    figures = Text(progress_figures(snapshot), "bold", overflow="ellipsis", no_wrap=True)
    whole = snapshot.whole
    if whole is None or not whole.bytes:
        return figures
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(figures, ProgressBar(whole.bytes, min(snapshot.read_bytes, whole.bytes)))
    return grid


def _figures(snapshot: RunSnapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    title, rejected = rejected_figure(snapshot)
    cells = [
        ("windows", f"{snapshot.windows:,}", ""),
        ("files", f"{snapshot.files:,}", ""),
        ("blocks", f"{snapshot.blocks:,}", ""),
        ("records", f"{snapshot.records_read:,}", record_rate(snapshot)),
        (title, f"{rejected:,}", ""),
    ]
    if not snapshot.windows:
        # These count when their window is committed, and no zeros are shown beside records that were read.
        cells = cells[3:4]
    for _ in cells:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*(Text(title, "dim") for title, _, _ in cells))
    grid.add_row(*(Text(value, "bold") for _, value, _ in cells))
    grid.add_row(*(Text(speed, "cyan") for _, _, speed in cells))
    return grid


def _operators(snapshot: RunSnapshot, *, is_wide: bool) -> RenderableType:
    """A row for each operator; on a wide terminal also how long it has worked, and how fast it is."""
    operators = snapshot.live_operators
    total_s = sum(operator.busy_s for operator in operators if operator.stage)
    grid = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    grid.add_column("operator", no_wrap=True, overflow="ellipsis")
    for title in ("partitions", "backlog", "time", *(("worked", "records/s") if is_wide else ())):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("emitted", overflow="fold")
    for operator in operators:
        emitted = [f"{port} {number:,}" for port, number in operator.records.items() if number]
        backlog = snapshot.backlog.get(operator.name)
        records = sum(operator.records.values())
        held = snapshot.partitions.get(operator.name) or snapshot.partitions.get(operator.stage)
        partitions = (f"{held.last}" if held else "") if operator.stage else "driver"
        cells = [
            operator.name,
            partitions,
            "" if backlog is None else f"{backlog:,}",
            f"{100 * operator.busy_s / total_s:.0f} %" if total_s and operator.stage else "",
        ]
        if is_wide:
            cells.append(duration(operator.busy_s) if operator.busy_s else "")
            cells.append(brief(records / operator.busy_s) if records and operator.busy_s else "")
        grid.add_row(*map(Text, (*cells, "  ".join(emitted))))
    return grid
