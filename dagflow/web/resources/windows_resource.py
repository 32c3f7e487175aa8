"""Windows: a page of them with their times and marks, and one window with all that it read and wrote."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from dagflow.api.columns.column_typing import type_name
from dagflow.api.transactions import ColumnChange
from dagflow.journal.reader import find_window, newest_windows
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowIntent
from dagflow.metrics import names
from dagflow.metrics.counters import Counters
from dagflow.report.manifest import manifest_of, times_of, with_merging_window
from dagflow.report.own_figures import OwnFigures, own_sums
from dagflow.web.checkpoints import Checkpoint, Query

ROWS = 50
STRAGGLER = 4.0
"""A window is marked if it runs this many times as long as the median of its page, and a task likewise in its stage."""

STRAGGLER_MS = 1000
"""Milliseconds: a shorter window or task is not marked."""

MANY_RANGES = 2000
"""Number of ranges and files of one window that are shown; a window of small files has twenty thousand."""


def windows(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """A page of windows, the newest first: those below `before`, at most `limit`."""
    limit = query.limit(ROWS)
    store, state = checkpoint.journal()
    # One more than is shown: a mark may show a difference to the window before.
    found = list(itertools.islice(newest_windows(store, state, query.number("before")), limit + 1))
    shown = found[:limit]
    usual_ms = statistics.median(taken) if (taken := [_run_ms(each) for each in shown if each.intent]) else 0.0
    own = OwnFigures(state.facts)
    rows = [
        {**row_of(_as_run_last(window, state), own), "marks": _marks(window, earlier, state, usual_ms)}
        for window, earlier in itertools.zip_longest(shown, found[1 : limit + 1])
    ]
    return {"windows": rows, "next": shown[-1].plan.window_id if len(found) > limit else None}


def window(checkpoint: Checkpoint, window_id: int) -> dict[str, Any]:
    """What one window read and wrote, as `dagflow status --window N --json` prints it, with long lists cut."""
    store, state = checkpoint.journal()
    last_run = _as_run_last(find_window(store, state, window_id), state)
    found = with_merging_window(manifest_of(last_run), store, state)
    manifest = found.to_json()
    pair = list(itertools.islice(newest_windows(store, state, window_id + 1), 2))
    counts = {name: len(manifest[name]) for name in ("inputs", "outputs", "skipped")}
    cut = {name: manifest[name][:MANY_RANGES] for name in counts}
    return {
        **manifest,
        **cut,
        "counts": counts,
        "window": window_id,
        "state": state_of(last_run),
        "phases_ms": last_run.phase_ms(),
        "marks": _marks(pair[0], pair[1] if len(pair) > 1 else None, state, 0.0),
    }


def _as_run_last(window: Window, state: JournalState) -> Window:
    """A window with the moments of its last run: one that ran again has not waited since its plan was made."""
    if window.plan.window_id not in state.reprocessed:
        return window
    return replace(window, plan=replace(window.plan, emitted_ms=0, planned_ms=0))


def row_of(window: Window, own: OwnFigures) -> dict[str, Any]:
    counters = counters_of(window)
    return {
        "window": window.plan.window_id,
        "state": state_of(window),
        "times": times_of(window),
        "files": counters.total(names.FILES),
        "blocks": counters.total(names.BLOCKS) or counters.total(names.BLOCKS_EMITTED),
        "bytes": counters.total(names.BYTES) or counters.total(names.BYTES_EMITTED),
        "records": records_of(counters),
        "rejected": _rejected(counters)[0],
        "partitions": own.by_stage(window.plan.partitions),
        "busy_seconds": own_sums(window.intent.busy_s) if window.intent else {},
    }


def state_of(window: Window) -> str:
    """How far a window has come: "planned", "committed" or "published"."""
    if window.intent is None:
        return "planned"
    return "published" if window.published_ms else "committed"


def counters_of(window: Window) -> Counters:
    """The counters of control operators for a window, and those of its tasks."""
    counters = Counters()
    counters.add(window.plan.counters)
    if window.intent is not None:
        counters.add(window.intent.counters)
    return counters


def records_of(counters: Counters) -> int:
    """Records that operators which read blocks emitted, the refused ones at a port of their own among them."""
    readers = (each for each in counters.operators.values() if {names.BLOCKS, names.RECORD_BYTES} & each.counts.keys())
    return sum(sum(each.records.values()) for each in readers)


def _rejected(counters: Counters) -> tuple[int, int]:
    """How many records operators refused, and how many came back that a window before had refused."""
    counts = [each.counts.get(names.REJECTED, 0) for each in counters.operators.values()]
    return sum(max(count, 0) for count in counts), sum(max(-count, 0) for count in counts)


def _run_ms(window: Window) -> int:
    intent = window.intent or WindowIntent(0)
    return intent.finished_ms - intent.started_ms


def _marks(window: Window, earlier: Window | None, state: JournalState, usual_ms: float) -> list[dict[str, str]]:
    marks = _mark_texts(window, earlier, state, usual_ms)
    return [{"kind": kind, "text": text} for kind, text in marks]


def _mark_texts(
    window: Window, earlier: Window | None, state: JournalState, usual_ms: float
) -> Iterator[tuple[str, str]]:
    plan, taken_ms = window.plan, _run_ms(window)
    if plan.window_id in state.reprocessed or plan.window_id in state.reprocessing:
        yield "reprocessed", "ran again, and its files were replaced"
    rejected, came_back = _rejected(counters_of(window))
    if plan.retries:
        outcome = "1 record came back" if came_back == 1 else f"{came_back:,} records came back"
        windows = ", ".join(map(str, plan.retries))
        yield "reprocessed", f"reads the refused records of windows {windows} again: {outcome}"
    if plan.window_id in state.repaired:
        yield "reprocessed", "its commit was taken back, and it is planned again"
    figures = OwnFigures(state.facts)
    for decision in plan.decisions:
        yield "scaling", f"{figures.stage(decision.stage)}: {decision.before} to {decision.after}, {decision.reason}"
    # Several drivers may have recorded that they begin with the window; the newest one has made it.
    if plan.window_id > 1 and (own := [each for each in state.drivers if each.window_id == plan.window_id]):
        yield "driver", f"the first window of another driver: {own[-1].holder}"
    if earlier is not None and plan.config_hash and plan.config_hash != earlier.plan.config_hash:
        yield "app", "the first window of a changed app"
    if usual_ms and taken_ms > STRAGGLER * usual_ms and taken_ms >= STRAGGLER_MS:
        yield "straggler", f"ran {taken_ms / usual_ms:.0f} times as long as the median of the windows around it"
    for text in slow_tasks(window, figures):
        yield "straggler", text
    for each in state.columns:
        if each.window_id == plan.window_id:
            yield "schema", f"{each.operator}: {change_text(each.change)}"
    if window.intent is not None and window.intent.skipped:
        yield "reject", f"left out {len(window.intent.skipped)} ranges of files"
    if rejected:
        yield "reject", f"{rejected:,} records were refused"


def slow_tasks(window: Window, own: OwnFigures) -> Iterator[str]:
    """The slowest task of each stage, where it took many times as long as the others."""
    for stage, task_ms in window.intent.task_ms.items() if window.intent is not None else ():
        usual_ms, most_ms = statistics.median(task_ms), max(task_ms)
        if len(task_ms) > 2 and most_ms >= STRAGGLER_MS and most_ms > STRAGGLER * usual_ms:
            number, seconds = task_ms.index(most_ms), f"{most_ms / 1000:.1f} s, the median {usual_ms / 1000:.1f} s"
            yield f"partition {number} of {own.stage(stage)} took {seconds}"


def change_text(change: ColumnChange) -> str:
    """A change of a table's columns in words, with types as an app writes them."""
    if not change.before:
        return f"new column {change.column} {type_name(change.after)}"
    return f"{change.column} {type_name(change.before)} became {type_name(change.after)}"


def schemas_of(intent: WindowIntent) -> dict[str, str]:
    """The newest schema of the files that each writer of tables made in a window, as the journal holds it."""
    files = [*intent.files, *intent.held]
    return {file.facts.operator: file.facts.schema for file in files if file.facts is not None and file.facts.schema}


POINTS = 500


def scaling(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """A point for each of the newest windows, oldest first: what was planned and not committed when it was planned."""
    store, state = checkpoint.journal()
    windows = list(itertools.islice(newest_windows(store, state), query.limit(POINTS)))[::-1]
    own = OwnFigures(state.facts)
    rows = [row_of(each, own) for each in windows]
    points, first = [], 0
    for position, row in enumerate(rows):
        planned_ms, emitted_after = row["times"]["planned_ms"], windows[position].plan.emitted_after
        # Windows are committed in order. The journal has only the last commit of a window that was replayed.
        while first < position and (
            0 < rows[first]["times"]["committed_ms"] <= planned_ms or rows[first]["window"] <= emitted_after
        ):
            first += 1
        waiting = rows[first : position + 1]
        points.append(
            {
                "time_ms": planned_ms,
                "window": row["window"],
                "backlog_blocks": sum(each["blocks"] for each in waiting),
                "backlog_bytes": sum(each["bytes"] for each in waiting),
                "partitions": row["partitions"],
            }
        )
    decisions = [
        {**asdict(each), "time_ms": window.plan.planned_ms, "stage": own.stage(each.stage)}
        for window in windows
        for each in window.plan.decisions
    ]
    return {"points": points, "decisions": decisions}
