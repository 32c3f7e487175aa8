"""The apps that a server shows: how late each is, its backlog and rate, and whether its bytes add up."""

from __future__ import annotations

import difflib
import itertools
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dagflow.errors import DagflowError
from dagflow.journal.reader import newest_windows
from dagflow.journal.windows import Window
from dagflow.metrics import names
from dagflow.report.snapshot import RunSnapshot
from dagflow.web.checkpoints import AppFile, Checkpoint
from dagflow.web.resources.windows_resource import counters_of, records_of

RATE_WINDOWS = 30
"""How many of the newest windows the rate of a run in another process is taken from."""

RATE_SPAN_MS = 60_000
"""Milliseconds: a rate is that of the windows that were published within them."""


def fleet(checkpoints: Iterable[Checkpoint]) -> dict[str, Any]:
    return {"time_ms": time.time_ns() // 1_000_000, "apps": [row_of(each) for each in checkpoints]}


def row_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The row of a checkpoint in the fleet; one that cannot be read, or has no run yet, has no figures."""
    reading = checkpoint.read()
    without = "unreadable" if reading.has_begun else "no run yet"
    snapshot = reading.snapshot or RunSnapshot(checkpoint.id, state=without)
    error = reading.error
    if snapshot.has_read_again and snapshot.standing != "running":
        try:
            snapshot = checkpoint.with_old_rows(snapshot)
        except DagflowError as failure:  # its archive may be damaged, and other apps are shown even so
            error = str(failure)
    driver = snapshot.driver
    if not error and driver is not None:
        process = driver.heartbeat.process
        error = driver.heartbeat.error or "; ".join(driver.heartbeat.stalls)
        if snapshot.standing == "killed":
            who = f"process {process.pid} on {process.host}"
            error = f"{who} left no final status; the next run continues where it stopped"
    rates = _rates(checkpoint, snapshot)
    per_second = rates["bytes_per_second"]
    waiting = snapshot.backlog_bytes
    return {
        "id": checkpoint.id,
        "app": snapshot.app,
        "checkpoint": checkpoint.shown_url,
        "state": snapshot.standing,
        "oldest_unpublished_ms": snapshot.oldest_unpublished_ms or None,
        "last_commit_ms": snapshot.last_committed_ms or None,
        "backlog": {
            "blocks": snapshot.backlog_blocks,
            "bytes": waiting,
            "seconds": round(waiting / per_second, 1) if waiting and per_second else None,
        },
        "rates": rates,
        "rejected": snapshot.rejected,
        "account": {**snapshot.byte_accounting(), "adds_up": adds_up(snapshot)},
        "windows": snapshot.windows,
        "files": snapshot.files,
        "bytes": snapshot.bytes,
        "left_out_bytes": snapshot.left_out.bytes,
        "concerns": [concern.text for concern in snapshot.concerns if concern.name != "rejected"],
        "corrections": snapshot.correction_texts,
        "error": error,
        "driver": None if driver is None else driver.to_json(),
        "targets": {name: asdict(receipt) for name, receipt in snapshot.targets.items()},
    }


def adds_up(snapshot: RunSnapshot) -> bool | None:
    """Whether every byte that was read is in a record, a delimiter, a skip or a reject.

    Returns:
        None where that is not known yet: the last record of a block is counted with its window, and may reach into a
        block of a later one, which is not committed.
    """
    accounting = snapshot.byte_accounting()
    if accounting["bytes"] == sum(accounting[part] for part in ("records", "delimiters", "skipped", "rejected")):
        return True
    is_complete = snapshot.last_planned == snapshot.last_committed and not snapshot.files_in_progress
    return False if is_complete else None


def _rates(checkpoint: Checkpoint, snapshot: RunSnapshot) -> dict[str, float]:
    """The rate of a run that is at work: its own figures, or those of its newest windows."""
    if snapshot.state != "running":
        return rates_of(())
    if snapshot.progress is not None:
        rates = snapshot.progress.rates
        return {"bytes_per_second": rates.bytes_per_second, "records_per_second": rates.records_per_second}
    try:
        return rates_of(itertools.islice(newest_windows(*checkpoint.journal()), RATE_WINDOWS))
    except DagflowError:
        return rates_of(())


def rates_of(windows: Iterable[Window]) -> dict[str, float]:
    """Bytes and records a second that the windows of the last minute had, since the first of them began."""
    recent, taken_s = published_until(windows, time.time_ns() // 1_000_000)
    seconds = max(taken_s, 1.0)
    counters = [counters_of(each) for each in recent]
    records = sum(records_of(each) for each in counters)
    size_bytes = sum(each.total(names.BYTES) for each in counters)
    return {"bytes_per_second": size_bytes / seconds, "records_per_second": records / seconds}


def published_until(windows: Iterable[Window], until_ms: int) -> tuple[list[Window], float]:
    """The windows that were published within a minute until a moment, and how long they took together.

    Args:
        until_ms: The moment, in milliseconds since 1970.

    Returns:
        The windows, and the seconds since the first of them began to run, which may be longer than a minute.
    """
    since_ms = until_ms - RATE_SPAN_MS
    recent = [each for each in windows if each.published_ms and each.published_ms >= since_ms]
    begun_ms = min(map(_begun_ms, recent), default=until_ms)
    return recent, max(until_ms - begun_ms, 0) / 1000


def _begun_ms(window: Window) -> int:
    """When a published window began to run; where it ran again since, when it was emitted."""
    started_ms = 0 if window.intent is None else window.intent.started_ms
    # A run that was killed may have emitted the window, long before the run that processed it.
    return started_ms if 0 < started_ms <= window.published_ms else window.plan.emitted_ms


_KINDS = {"+": "added", "-": "removed", " ": "same"}


def app(checkpoint: Checkpoint, file: AppFile) -> dict[str, Any]:
    """The app file as it is now, and as the newest run had it, with the row that the fleet has of the checkpoint."""
    found = file.look()
    ran, now = checkpoint.journal()[1].text, file.text()
    # The lines that differ, with some around them; none for equal texts.
    lines = [] if now is None or not ran else difflib.unified_diff(ran.splitlines(), now.splitlines(), lineterm="", n=3)
    return {
        **row_of(checkpoint),
        "file": file.path,
        "yaml": now,
        "yaml_of_run": ran or None,
        "difference": [{"kind": _KINDS.get(line[:1], "place"), "text": line} for line in list(lines)[2:]],
        "problems": found.get("problems", []),
        "changes": found.get("changes", []),
        "note": file.why_not_loaded() or found.get("error", ""),
    }
