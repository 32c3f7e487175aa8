"""A run's figures as text: the table on a terminal, the lines elsewhere, the account at the end."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dagflow.cli.figures import brief, count, duration, size
from dagflow.cli.view import AppView, Rate
from dagflow.metrics.names import LEFT_OUT_BYTES, SKIPPED
from dagflow.report.snapshot import RunSnapshot


class Rates:
    """How fast a run reads."""

    def __init__(self, view: AppView) -> None:
        self._view = view
        self._bytes = Rate()
        self._records = Rate()

    def update(self, summary: RunSnapshot) -> None:
        """Take in the run's figures as they stand."""
        self._bytes.update(summary.seconds, summary.bytes)
        self._records.update(summary.seconds, self._view.records_read(summary.records))

    @property
    def bytes_per_second(self) -> str:
        """For example "512 MiB/s"."""
        return f"{size(self._bytes.per_second)}/s"

    @property
    def records_per_second(self) -> str:
        """For example "4.1 M/s"."""
        return f"{brief(self._records.per_second)}/s"


def progress_line(view: AppView, summary: RunSnapshot, rates: Rates) -> str:
    """One line that says how far the run is."""
    backlog = sum(summary.backlog.values())
    partitions = " ".join(f"{name}={held.last}" for name, held in summary.partitions.items())
    parts = [
        f"{duration(summary.seconds)}",
        count(summary.windows, "window"),
        count(summary.files, "file"),
        f"{count(summary.blocks, 'block')} ({backlog:,} waiting)",
        f"{size(summary.bytes)} at {rates.bytes_per_second}",
        f"{count(view.records_read(summary.records), 'record')} at {rates.records_per_second}",
        f"partitions {partitions}" if partitions else "",
        f"{summary.rejected:,} rejected" if summary.rejected else "",
    ]
    return f"{view.name}: " + ", ".join(part for part in parts if part)


def account(view: AppView, summary: RunSnapshot) -> str:
    """What a run that is over has done.

    Args:
        view: The app.
        summary: The figures at the end.
    """
    if summary.state == "completed" and not summary.windows:
        waiting = f", but for {size(summary.waiting_bytes)} of records in progress" if summary.waiting_bytes else ""
        done = f"nothing new: all input was processed in earlier runs{waiting}"
        return f"{view.name}: {done} ({duration(summary.seconds)})"
    took = f"{view.name}: {summary.state} in {duration(summary.seconds)}"
    if not summary.windows:
        return f"{took}: nothing was published"
    speed = f" ({size(summary.bytes / summary.seconds)}/s)" if summary.seconds > 0 else ""
    lines = [
        took,
        f"    published {count(summary.windows, 'window')}: {count(summary.files, 'file')},"
        f" {count(summary.blocks, 'block')}, {size(summary.bytes)}{speed}",
    ]
    others = [f"{name} {number:,}" for name, number in summary.counts.items() if number]
    emitted = [
        f"{port} {number:,}" for name in view.operators for port, number in _emitted(summary, name).items() if number
    ]
    if emitted:
        lines.append(f"    records: {', '.join(emitted)}")
    if summary.rejected:
        lines.append(f"    rejected: {summary.rejected:,}")
    lines += _left_out(summary)
    if others:
        lines.append(f"    also counted: {', '.join(others)}")
    return "\n".join(lines)


def _left_out(summary: RunSnapshot) -> list[str]:
    """What a run that completes must not pass over in silence."""
    readers = [key.rpartition(":")[0] for key in summary.counts if key.endswith(f":{LEFT_OUT_BYTES}")]
    blocks = sum(summary.counts.get(f"{name}:{SKIPPED}", 0) for name in readers)
    size_bytes = sum(summary.counts[f"{name}:{LEFT_OUT_BYTES}"] for name in readers)
    if not blocks:
        return []
    which = "`dagflow status CHECKPOINT --window N` says which and why"
    return [f"    left out: {count(blocks, 'block')} that could not be read, {size(size_bytes)}; {which}"]


def table(view: AppView, summary: RunSnapshot | None, rates: Rates, spinner: Spinner, status: str) -> RenderableType:
    """The live display, at most 80 columns wide where names are of ordinary length.

    Args:
        view: The app.
        summary: The figures, or None before the first.
        rates: How fast they grow.
        spinner: Shows that the process is alive.
        status: What the run is doing, in a few words.
    """
    head = Text.assemble((view.name, "bold"), "  ", status)
    if summary is not None:
        head.append(f"  {duration(summary.seconds)}", "cyan")
    spinner.update(text=head)
    if summary is None:
        return spinner
    return Group(spinner, _figures(view, summary, rates), _operators(view, summary))


def _figures(view: AppView, summary: RunSnapshot, rates: Rates) -> RenderableType:
    grid = Table.grid(padding=(0, 3, 0, 0))
    cells = [
        ("windows", f"{summary.windows:,}", ""),
        ("files", f"{summary.files:,}", ""),
        ("blocks", f"{summary.blocks:,}", ""),
        ("read", size(summary.bytes), rates.bytes_per_second),
        ("records", f"{view.records_read(summary.records):,}", rates.records_per_second),
        ("rejected", f"{summary.rejected:,}", ""),
    ]
    for _ in cells:
        grid.add_column(justify="right", no_wrap=True)
    grid.add_row(*(Text(title, "dim") for title, _, _ in cells))
    grid.add_row(*(Text(value, "bold") for _, value, _ in cells))
    grid.add_row(*(Text(speed, "cyan") for _, _, speed in cells))
    return grid


def _operators(view: AppView, summary: RunSnapshot) -> RenderableType:
    grid = Table(box=None, padding=(0, 3, 0, 0), header_style="dim", pad_edge=False)
    grid.add_column("operator", no_wrap=True, overflow="ellipsis")
    grid.add_column("partitions", justify="right", no_wrap=True)
    grid.add_column("backlog", justify="right", no_wrap=True)
    grid.add_column("emitted", overflow="fold")
    for name in view.operators:
        emitted = [f"{port.partition('.')[2]} {number:,}" for port, number in _emitted(summary, name).items() if number]
        backlog = summary.backlog.get(name)
        grid.add_row(
            Text(name),
            Text(_partitions(view, summary, name)),
            Text("" if backlog is None else f"{backlog:,}"),
            Text("  ".join(emitted)),
        )
    return grid


def _emitted(summary: RunSnapshot, operator: str) -> dict[str, int]:
    """What left the ports of one operator, by "operator.port"."""
    return {port: number for port, number in summary.records.items() if port.partition(".")[0] == operator}


def _partitions(view: AppView, summary: RunSnapshot, operator: str) -> str:
    head = view.head_by_operator.get(operator)
    if head is None:
        return "driver"
    held = summary.partitions.get(operator) or summary.partitions.get(head)
    return f"{held.last}" if held else ""
