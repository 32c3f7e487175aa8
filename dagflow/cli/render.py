"""A run's figures as text: the table on a terminal, the lines elsewhere, the account at the end."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dagflow.cli.figures import brief, count, duration, size
from dagflow.report.snapshot import OperatorFigures, RunSnapshot

LOCAL_START_S = 0.5
"""About what processes of this machine take to start."""

MAX_STALLS = 3
"""Tasks without progress that the live display names."""


def _byte_rate(snapshot: RunSnapshot) -> str:
    """For example "512 MiB/s"."""
    return f"{size(snapshot.rates.bytes_per_second)}/s"


def _record_rate(snapshot: RunSnapshot) -> str:
    """For example "4.1 M/s"."""
    return f"{brief(snapshot.rates.records_per_second)}/s"


def progress_line(snapshot: RunSnapshot) -> str:
    """One line that says how far the run is."""
    backlog = sum(snapshot.backlog.values())
    partitions = " ".join(f"{name}={held.last}" for name, held in snapshot.partitions.items())
    running = f" and {size(snapshot.running_bytes)} of running windows" if snapshot.running_bytes else ""
    parts = [
        f"{duration(snapshot.seconds)}",
        count(snapshot.windows, "window"),
        count(snapshot.files, "file"),
        f"{count(snapshot.blocks, 'block')} ({backlog:,} waiting)",
        f"{size(snapshot.bytes)}{running} at {_byte_rate(snapshot)}",
        f"{count(snapshot.records_read, 'record')} at {_record_rate(snapshot)}",
        f"partitions {partitions}" if partitions else "",
        f"{snapshot.rejected:,} rejected" if snapshot.rejected else "",
        f"{count(len(snapshot.stalls), 'task')} without progress" if snapshot.stalls else "",
    ]
    return f"{snapshot.app}: " + ", ".join(part for part in parts if part)


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
    others = [f"{name} {number:,}" for name, number in snapshot.counts.items() if number]
    emitted = [
        f"{each.name}.{port.name} {port.records:,}"
        for each in snapshot.operators
        for port in each.ports
        if port.records
    ]
    if emitted:
        lines.append(f"    records: {', '.join(emitted)}")
    if snapshot.rejected:
        lines.append(f"    rejected: {snapshot.rejected:,}")
    lines += [f"    {line}" for line in left_out_lines(snapshot)]
    if others:
        lines.append(f"    also counted: {', '.join(others)}")
    if snapshot.outputs:
        lines.append(f"    output: {', '.join(snapshot.outputs)}")
    lines += [f"    {line}" for line in faster_locally(snapshot)]
    return "\n".join(lines)


def faster_locally(snapshot: RunSnapshot) -> list[str]:
    """What to tell of a run for which the start of Spark took longer than all operators; nothing of another one."""
    busy_s = sum(operator.busy_s for operator in snapshot.operators)
    if snapshot.state != "completed" or busy_s >= snapshot.spark_start_s:
        return []
    start, work = duration(snapshot.spark_start_s), duration(busy_s)
    return [
        f"Spark took {start} to start, and the operators worked for {work}: --local starts in about "
        f"{duration(LOCAL_START_S)}"
    ]


def left_out_lines(snapshot: RunSnapshot, most: int = 5) -> list[str]:
    """What no run has read of its input, which nothing must pass over in silence: the sum and the newest ranges."""
    left_out = snapshot.left_out
    if not left_out.ranges:
        return []
    newest = [f"    {each.url} [{each.start}, {each.end}): {each.reason}" for each in left_out.newest[-most:]]
    rest = left_out.ranges - len(newest)
    lines = [f"left out of the input, in all runs: {count(left_out.ranges, 'range')}, {size(left_out.bytes)}", *newest]
    return [*lines, f"    and {rest:,} more: `dagflow status CHECKPOINT --files '*'` shows all"] if rest else lines


def table(name: str, snapshot: RunSnapshot | None, spinner: Spinner, status: str) -> RenderableType:
    """The live display, at most 80 columns wide where names are of ordinary length.

    Args:
        name: The app's name.
        snapshot: The figures, or None before the first.
        spinner: Shows that the process is alive.
        status: What the run is doing, in a few words.
    """
    head = Text.assemble((name, "bold"), "  ", status)
    if snapshot is not None:
        head.append(f"  {duration(snapshot.seconds)}", "cyan")
    spinner.update(text=head)
    if snapshot is None:
        return spinner
    stalls = [Text(stall, "yellow", overflow="ellipsis", no_wrap=True) for stall in snapshot.stalls[:MAX_STALLS]]
    return Group(spinner, _figures(snapshot), _operators(snapshot), *stalls)


def _figures(snapshot: RunSnapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    cells = [
        ("windows", f"{snapshot.windows:,}", ""),
        ("files", f"{snapshot.files:,}", ""),
        ("blocks", f"{snapshot.blocks:,}", ""),
        ("read", size(snapshot.bytes + snapshot.running_bytes), _byte_rate(snapshot)),
        ("records", f"{snapshot.records_read:,}", _record_rate(snapshot)),
        ("rejected", f"{snapshot.rejected:,}", ""),
    ]
    for _ in cells:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*(Text(title, "dim") for title, _, _ in cells))
    grid.add_row(*(Text(value, "bold") for _, value, _ in cells))
    grid.add_row(*(Text(speed, "cyan") for _, _, speed in cells))
    return grid


def _operators(snapshot: RunSnapshot) -> RenderableType:
    grid = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    grid.add_column("operator", no_wrap=True, overflow="ellipsis")
    grid.add_column("partitions", justify="right", no_wrap=True)
    grid.add_column("backlog", justify="right", no_wrap=True)
    grid.add_column("emitted", overflow="fold")
    for operator in snapshot.operators:
        emitted = [f"{port.name} {port.records:,}" for port in operator.ports if port.records]
        backlog = snapshot.backlog.get(operator.name)
        grid.add_row(
            Text(operator.name),
            Text(_partitions(snapshot, operator)),
            Text("" if backlog is None else f"{backlog:,}"),
            Text("  ".join(emitted)),
        )
    return grid


def _partitions(snapshot: RunSnapshot, operator: OperatorFigures) -> str:
    if not operator.stage:
        return "driver"
    held = snapshot.partitions.get(operator.name) or snapshot.partitions.get(operator.stage)
    return f"{held.last}" if held else ""
