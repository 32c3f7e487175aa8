"""A run's figures as lines of text: how far it is, and the summary at the end."""

from __future__ import annotations

from datetime import UTC, datetime

from dagflow.api.context import Skipped
from dagflow.cli.output import brief, clock, count, duration, on_one_line, part, size
from dagflow.metrics.names import BYTE_ACCOUNTING
from dagflow.report.concerns import Concern
from dagflow.report.own_figures import PublishedPart
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.location import redacted

MIN_BUSY_S = 1.0
"""Seconds that operators must have worked before the slowest one is named."""

BOTTLENECK_SHARE = 0.5

_NEWEST_RANGES = 5
"""How many of the ranges that were left out are shown one by one."""


def record_rate(snapshot: RunSnapshot) -> str:
    """For example "4.1 M/s"."""
    return f"{brief(snapshot.rates.records_per_second)}/s"


def progress_figures(snapshot: RunSnapshot) -> str:
    """How far a run is, such as "37 % · 304/822 MiB · 41.0 MiB/s · ETA 0:12 · 6/16 tasks".

    Without the share and the time that is left where the whole of the input is not known.
    """
    whole, left_s = snapshot.whole, snapshot.rates.remaining_s
    speed = f"{size(snapshot.rates.bytes_per_second)}/s"
    parts = [size(snapshot.read_bytes), speed]
    if whole is not None and whole.bytes:
        share = min(int(100 * snapshot.read_bytes / whole.bytes), 100)
        parts = [f"{share} %", part(snapshot.read_bytes, whole.bytes, about=not whole.is_exact), speed]
        if left_s is not None:
            parts.append(f"ETA {clock(left_s)}")
    if tasks := sum(window.tasks for window in snapshot.running):
        parts.append(f"{sum(window.tasks_done for window in snapshot.running):,}/{tasks:,} tasks")
    return " · ".join(parts)


def progress_line(snapshot: RunSnapshot) -> str:
    if snapshot.waits_for:
        return f"{snapshot.app}: {snapshot.waits_for}"
    backlog, (title, rejected) = sum(snapshot.backlog.values()), rejected_figure(snapshot)
    partitions = " ".join(f"{name}={held.last}" for name, held in snapshot.partitions.items())
    parts = [
        f"{duration(snapshot.seconds)}",
        progress_figures(snapshot),
        count(snapshot.windows, "window"),
        count(snapshot.files, "file"),
        f"{count(snapshot.blocks, 'block')} ({backlog:,} waiting)",
        f"{count(snapshot.records_read, 'record')} at {record_rate(snapshot)}",
        f"partitions {partitions}" if partitions else "",
        f"{rejected:,} {title}" if rejected else "",
        f"{count(len(snapshot.stalls), 'task')} without progress" if snapshot.stalls else "",
    ]
    return f"{snapshot.app}: " + ", ".join(filter(None, parts))


def rejected_figure(snapshot: RunSnapshot) -> tuple[str, int]:
    """How many records a run has refused; or how many more came back, of those that earlier runs had refused."""
    return ("came back", -snapshot.rejected) if snapshot.rejected < 0 else ("rejected", snapshot.rejected)


def activity(snapshot: RunSnapshot | None) -> str:
    if snapshot is None or is_busy(snapshot):
        return "running"
    return "up to date, looking for new files" if snapshot.windows else "looking for files"


def is_busy(snapshot: RunSnapshot) -> bool:
    """Whether a run has anything in hand: a window that is not published, or something for the next one."""
    is_unpublished = snapshot.all_runs is not None and snapshot.all_runs.oldest_unpublished_ms > 0
    return bool(snapshot.running or is_unpublished or any(snapshot.backlog.values()))


def bottleneck(snapshot: RunSnapshot) -> str:
    """Which operator most of the tasks' time goes to; "" before any has worked for long."""
    # The driver works beside the tasks, and may wait for Java to start.
    busy_s = {each.name: each.busy_s for each in snapshot.live_operators if each.stage}
    total_s = sum(busy_s.values())
    if total_s < MIN_BUSY_S:
        return ""
    name, most_s = max(busy_s.items(), key=lambda item: item[1])
    share = f"{100 * most_s / total_s:.0f} % of the tasks' time"
    if most_s < BOTTLENECK_SHARE * total_s:
        return f"no bottleneck: {name} takes most, {share}"
    return f"bottleneck: {name} takes {share}"


def summary(snapshot: RunSnapshot) -> str:
    concerns = [f"    {line}" for line in concern_lines(snapshot)]
    if snapshot.without_files and not snapshot.windows:
        return "\n".join([f"{snapshot.app}: nothing was read ({duration(snapshot.seconds)})", *concerns])
    if snapshot.state == "completed" and not snapshot.windows:
        waiting = f", but for {size(snapshot.waiting_bytes)} of records in progress" if snapshot.waiting_bytes else ""
        done = f"nothing new: there is no input that earlier runs have not processed{waiting}"
        lines = [f"{snapshot.app}: {done} ({duration(snapshot.seconds)})"]
        more = [*(each.text for each in snapshot.corrections), *left_out_lines(snapshot)]
        return "\n".join([*lines, *(f"    {line}" for line in more), *concerns])
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
        f"{on_one_line(name)} {number:,}"
        for name, number in snapshot.counts.items()
        if number and name.rpartition(":")[2] not in BYTE_ACCOUNTING
    ]
    emitted = [f"{each.name}.{p} {n:,}" for each in snapshot.operators for p, n in each.records.items() if n]
    if emitted or (snapshot.files and not snapshot.rejected):
        lines.append(f"    records: {', '.join(emitted) or 'none'}")
    if most := bottleneck(snapshot):
        lines.append(f"    {most}")
    title, rejected = rejected_figure(snapshot)
    if rejected:
        lines.append(f"    {title}: {rejected:,}")
    lines += [f"    {line}" for line in (*map(on_one_line, snapshot.correction_texts), *left_out_lines(snapshot))]
    lines += concerns
    if others:
        lines.append(f"    also counted: {', '.join(others)}")
    if snapshot.published:
        lines.append(f"    output: {', '.join(map(published_text, snapshot.published))}")
    if snapshot.log:
        lines.append(f"    log of the tasks: {snapshot.log}")
    if snapshot.chose_local:
        lines.append("    ran on this machine without Spark: its input is small, and the app says runtime: auto")
    lines += [f"    {line}" for line in faster_locally(snapshot)]
    return "\n".join(lines)


def published_text(published: PublishedPart) -> str:
    """For example "751 rows in table duckdb:/srv/shop.db#sales", or "2 files in /srv/out"."""
    number = count(published.rows, "row") if published.rows else count(published.files, "file")
    return f"{number} in {on_one_line(published.place)}"


def faster_locally(snapshot: RunSnapshot) -> list[str]:
    """Advice for a run that waited longer for Spark than its tasks worked; empty for any other run."""
    # An operator of the driver may have waited for Spark itself, as for a pre-scan of blocks.
    busy_s = sum(operator.busy_s for operator in snapshot.operators if operator.stage)
    if snapshot.state != "completed" or busy_s >= snapshot.spark_start_s:
        return []
    waited, work = duration(snapshot.spark_start_s), duration(busy_s)
    return [f"the run waited {waited} for Spark, and its tasks worked for {work}: it would be faster with --local"]


def described_range(skipped: Skipped) -> str:
    return f"{on_one_line(redacted(skipped.url))} [{skipped.lost_start}, {skipped.lost_end}): {skipped.reason}"


def concern_lines(snapshot: RunSnapshot) -> list[str]:
    """Warnings of what must not pass in silence; what is left out, and what is refused, has lines of its own."""
    warned = (each for each in snapshot.concerns if each.name not in ("left_out", "rejected"))
    return [warning(each) for each in warned]


def warning(concern: Concern) -> str:
    return f"warning: {on_one_line(concern.text)}"


def waiting_lines(snapshot: RunSnapshot) -> list[str]:
    """The ends of files that wait for their rest: how many there are, and the oldest ones."""
    if not snapshot.waiting:
        return []
    shown = []
    for end in snapshot.waiting[:_NEWEST_RANGES]:
        since = datetime.fromtimestamp(end.since_ms / 1000, UTC).isoformat(" ", "seconds")
        shown.append(f"    {on_one_line(redacted(end.url))}: {end.waiting_bytes:,} bytes since {since}")
    rest = len(snapshot.waiting) - len(shown)
    more = [f"    and {rest:,} more"] if rest else []
    return [f"waiting at the ends of {count(len(snapshot.waiting), 'file')}:", *shown, *more]


def left_out_lines(snapshot: RunSnapshot) -> list[str]:
    """The ranges of the input that no run has read, which must always be reported: the sum and the newest ones."""
    left_out = snapshot.left_out
    if not left_out.ranges:
        return []
    newest = [f"    {described_range(each)}" for each in left_out.newest[-_NEWEST_RANGES:]]
    rest = left_out.ranges - len(newest)
    lines = [f"left out of the input, in all runs: {count(left_out.ranges, 'range')}, {size(left_out.bytes)}", *newest]
    if rest:
        lines.append(f"    and {rest:,} more: `dagflow status CHECKPOINT --files '*'` shows all")
    if not all(each.is_gone for each in left_out.newest):
        # The splitter does not learn of the range: a file that grows afterwards is read again from where nothing was
        # read.
        lines.append(
            "    `dagflow replay CHECKPOINT --files GLOB` reads what can be read by now, of files that grow no more"
        )
    if any(each.is_gone for each in left_out.newest):
        lines.append(
            "    the next run that finds these files reads what they have now, a rotated log under its new name"
        )
    return lines
