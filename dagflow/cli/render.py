"""A run's figures as text: the table on a terminal, the lines elsewhere, the account at the end."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dagflow.cli.figures import brief, clock, count, duration, part, size
from dagflow.metrics.names import BYTE_ACCOUNTING
from dagflow.report.snapshot import OperatorFigures, RunningWindow, RunSnapshot

MIN_BUSY_S = 1.0
"""Seconds that operators must have worked before it is told where the time goes."""

BOTTLENECK_SHARE = 0.5

WIDE_COLUMNS = 110
"""From this width on the live display shows more."""

MAX_STALLS = 3
"""Tasks without progress that the live display names."""


def _byte_rate(snapshot: RunSnapshot) -> str:
    """For example "512 MiB/s"."""
    return f"{size(snapshot.rates.bytes_per_second)}/s"


def _record_rate(snapshot: RunSnapshot) -> str:
    """For example "4.1 M/s"."""
    return f"{brief(snapshot.rates.records_per_second)}/s"


def progress_figures(snapshot: RunSnapshot) -> str:
    """How far a run is, such as "37 % · 304/822 MiB · 41.0 MiB/s · ETA 0:12 · 6/16 tasks".

    Without the share and the time that is left where the whole of the input is not known.
    """
    whole, left_s = snapshot.whole, snapshot.rates.remaining_s
    parts = [size(snapshot.read_bytes), _byte_rate(snapshot)]
    if whole is not None and whole.bytes:
        share = min(int(100 * snapshot.read_bytes / whole.bytes), 100)
        parts = [f"{share} %", part(snapshot.read_bytes, whole.bytes, about=not whole.is_exact), _byte_rate(snapshot)]
        if left_s is not None:
            parts.append(f"ETA {clock(left_s)}")
    if tasks := sum(window.tasks for window in snapshot.running):
        parts.append(f"{sum(window.tasks_done for window in snapshot.running):,}/{tasks:,} tasks")
    return " · ".join(parts)


def progress_line(snapshot: RunSnapshot) -> str:
    """One line that says how far the run is."""
    if snapshot.waits_for:
        return f"{snapshot.app}: {snapshot.waits_for}"
    backlog = sum(snapshot.backlog.values())
    partitions = " ".join(f"{name}={held.last}" for name, held in snapshot.partitions.items())
    parts = [
        f"{duration(snapshot.seconds)}",
        progress_figures(snapshot),
        count(snapshot.windows, "window"),
        count(snapshot.files, "file"),
        f"{count(snapshot.blocks, 'block')} ({backlog:,} waiting)",
        f"{count(snapshot.records_read, 'record')} at {_record_rate(snapshot)}",
        f"partitions {partitions}" if partitions else "",
        f"{snapshot.rejected:,} rejected" if snapshot.rejected else "",
        f"{count(len(snapshot.stalls), 'task')} without progress" if snapshot.stalls else "",
    ]
    return f"{snapshot.app}: " + ", ".join(filter(None, parts))


def activity(snapshot: RunSnapshot | None) -> str:
    """What a run is doing, in a few words."""
    if snapshot is None or is_busy(snapshot):
        return "running"
    return "up to date, looking for new files" if snapshot.windows else "looking for files"


def is_busy(snapshot: RunSnapshot) -> bool:
    """Whether a run has anything in hand: a window that is not published, or something for the next one."""
    is_unpublished = snapshot.all_runs is not None and snapshot.all_runs.oldest_unpublished_ms > 0
    return bool(snapshot.running or is_unpublished or any(snapshot.backlog.values()))


def bottleneck(snapshot: RunSnapshot) -> str:
    """Which operator most of the tasks' time goes to, in words; "" before any has worked for long."""
    # What the driver does, it does beside the tasks, and it may wait in it for Java to start.
    busy_s = {each.name: each.busy_s for each in snapshot.live_operators if each.stage}
    total_s = sum(busy_s.values())
    if total_s < MIN_BUSY_S:
        return ""
    name, most_s = max(busy_s.items(), key=lambda item: item[1])
    share = f"{100 * most_s / total_s:.0f} % of the tasks' time"
    if most_s < BOTTLENECK_SHARE * total_s:
        return f"no bottleneck: {name} takes most, {share}"
    return f"bottleneck: {name} takes {share}"


def account(snapshot: RunSnapshot) -> str:
    """What a run that is over has done."""
    if snapshot.state == "completed" and not snapshot.windows:
        waiting = f", but for {size(snapshot.waiting_bytes)} of records in progress" if snapshot.waiting_bytes else ""
        done = f"nothing new: all input was processed in earlier runs{waiting}"
        lines = [f"{snapshot.app}: {done} ({duration(snapshot.seconds)})"]
        return "\n".join([*lines, *(f"    {line}" for line in left_out_lines(snapshot))])
    took = f"{snapshot.app}: {snapshot.state} in {duration(snapshot.seconds)}"
    if not snapshot.windows:
        return f"{took}: nothing was published"
    speed = f" ({size(snapshot.bytes / snapshot.seconds)}/s)" if snapshot.seconds > 0 else ""
    lines = [
        took,
        f"    published {count(snapshot.windows, 'window')}, read from {count(snapshot.files, 'file')},"
        f" {count(snapshot.blocks, 'block')}, {size(snapshot.bytes)}{speed}",
    ]
    others = [
        f"{name} {number:,}"
        for name, number in snapshot.counts.items()
        if number and name.rpartition(":")[2] not in BYTE_ACCOUNTING
    ]
    emitted = [
        f"{each.name}.{port.name} {port.records:,}"
        for each in snapshot.operators
        for port in each.ports
        if port.records
    ]
    if emitted:
        lines.append(f"    records: {', '.join(emitted)}")
    if most := bottleneck(snapshot):
        lines.append(f"    {most}")
    if snapshot.rejected:
        lines.append(f"    rejected: {snapshot.rejected:,}")
    lines += [f"    {line}" for line in left_out_lines(snapshot)]
    if others:
        lines.append(f"    also counted: {', '.join(others)}")
    if snapshot.outputs:
        lines.append(f"    output: {count(snapshot.published_files, 'file')} in {', '.join(snapshot.outputs)}")
    if snapshot.log:
        lines.append(f"    log: {snapshot.log}")
    lines += [f"    {line}" for line in faster_locally(snapshot)]
    return "\n".join(lines)


def faster_locally(snapshot: RunSnapshot) -> list[str]:
    """What to tell of a run that waited longer for Spark than its tasks worked; nothing of another one."""
    # An operator of the driver may have waited for Spark itself, as for a pre-scan of blocks.
    busy_s = sum(operator.busy_s for operator in snapshot.operators if operator.stage)
    if snapshot.state != "completed" or busy_s >= snapshot.spark_start_s:
        return []
    waited, work = duration(snapshot.spark_start_s), duration(busy_s)
    return [f"the run waited {waited} for Spark, and its tasks worked for {work}: it would be faster with --local"]


def left_out_lines(snapshot: RunSnapshot, most: int = 5) -> list[str]:
    """What no run has read of its input, which nothing must pass over in silence: the sum and the newest ranges."""
    left_out = snapshot.left_out
    if not left_out.ranges:
        return []
    newest = [f"    {each.url} [{each.start}, {each.end}): {each.reason}" for each in left_out.newest[-most:]]
    rest = left_out.ranges - len(newest)
    lines = [f"left out of the input, in all runs: {count(left_out.ranges, 'range')}, {size(left_out.bytes)}", *newest]
    return [*lines, f"    and {rest:,} more: `dagflow status CHECKPOINT --files '*'` shows all"] if rest else lines


def table(name: str, snapshot: RunSnapshot | None, spinner: Spinner, status: str, columns: int = 80) -> RenderableType:
    """The live display, as wide as the terminal where names are of ordinary length.

    Args:
        name: The app's name.
        snapshot: The figures, or None before the first.
        spinner: Shows that the process is alive.
        status: What the run is doing, in a few words.
        columns: The width of the terminal; a wide one shows more.
    """
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
    windows = [_window(window) for window in snapshot.running] if is_wide else []
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


def _window(window: RunningWindow) -> Text:
    read = part(window.bytes_read, window.bytes)
    text = f"window {window.window_id:,}: {read} · {window.tasks_done:,}/{window.tasks:,} tasks"
    return Text(text, "dim", overflow="ellipsis", no_wrap=True)


def _figures(snapshot: RunSnapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    cells = [
        ("windows", f"{snapshot.windows:,}", ""),
        ("files", f"{snapshot.files:,}", ""),
        ("blocks", f"{snapshot.blocks:,}", ""),
        ("records", f"{snapshot.records_read:,}", _record_rate(snapshot)),
        ("rejected", f"{snapshot.rejected:,}", ""),
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
        emitted = [f"{port.name} {port.records:,}" for port in operator.ports if port.records]
        backlog = snapshot.backlog.get(operator.name)
        records = sum(port.records for port in operator.ports)
        cells = [
            operator.name,
            _partitions(snapshot, operator),
            "" if backlog is None else f"{backlog:,}",
            f"{100 * operator.busy_s / total_s:.0f} %" if total_s and operator.stage else "",
        ]
        if is_wide:
            cells.append(duration(operator.busy_s) if operator.busy_s else "")
            cells.append(brief(records / operator.busy_s) if records and operator.busy_s else "")
        grid.add_row(*map(Text, (*cells, "  ".join(emitted))))
    return grid


def _partitions(snapshot: RunSnapshot, operator: OperatorFigures) -> str:
    if not operator.stage:
        return "driver"
    held = snapshot.partitions.get(operator.name) or snapshot.partitions.get(operator.stage)
    return f"{held.last}" if held else ""
