"""Refused records: how many by reason, file and window, and a page of them with their bytes."""

from __future__ import annotations

import base64
import glob
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from dagflow.errors import own_name
from dagflow.journal.reader import newest_windows
from dagflow.journal.state import JournalState
from dagflow.report.open_rejects import RejectChoice, WindowRejects, rejects_of
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted
from dagflow.web.checkpoints import Checkpoint, Cursor, Query, reading_deadline

ROWS = 100
GROUPS = 100
"""Number of reasons, files and windows that are listed, those with most records first."""


def rejects(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """Refused records that no later window has taken over; `reason`, `file` and `window` choose among them."""
    store, state = checkpoint.journal()
    reason, file = query.text("reason"), query.text("file")
    choice = RejectChoice((reason,) if reason else (), glob.escape(file) if file else "")
    window_id = query.number("window")
    counts: dict[str, Counter[Any]] = {name: Counter() for name in ("reason", "file", "window")}
    since, deadline = 0, reading_deadline()
    for index, (chosen_id, parts) in enumerate(_chosen(store, state, choice, window_id, 0)):
        if index and time.monotonic() > deadline:
            break
        since = chosen_id
        for part in parts:
            for block_id, why, records, *_ in part.records.sums():
                counts["reason"][why] += records
                counts["file"][redacted(part.blocks[block_id].url)] += records
                counts["window"][chosen_id] += records
    else:
        since = state.forgotten + 1
    cursor = Cursor.of(query.text("after"))
    windows = _chosen(store, state, choice, window_id, cursor.before)
    rows, following = _page(windows, cursor.position, query.limit(ROWS))
    return {
        "total": counts["window"].total(),
        **{
            f"by_{kind}": [{"name": name, "count": count} for name, count in by_name.most_common(GROUPS)]
            for kind, by_name in counts.items()
        },
        "since_window": since,
        "rejects": rows,
        "next": following,
    }


def _page(
    windows: Iterable[tuple[int, list[WindowRejects]]], position: int, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Records from a position of the first window on, and the cursor of the next page."""
    rows: list[dict[str, Any]] = []
    deadline = reading_deadline()
    for index, (window_id, parts) in enumerate(windows):
        if index and time.monotonic() > deadline:
            return rows, str(Cursor(window_id + 1))
        seen = 0
        for part in parts:
            first = min(max(position - seen, 0), len(part.records))
            last = min(len(part.records), first + limit - len(rows))
            for row in part.records.slice(first, last).table.to_pylist():
                raw = row["raw"]
                rows.append(
                    {
                        "file": redacted(part.blocks[row["block_id"]].url),
                        "offset": row["offset"],
                        "length": row["length"],
                        "window": window_id,
                        "operator": own_name(part.operator),
                        "reason": row["detail"] or row["reason"],
                        "raw": None if raw is None else base64.b64encode(raw).decode("ascii"),
                    }
                )
            if last < len(part.records):
                return rows, str(Cursor(window_id + 1, seen + last))
            seen += len(part.records)
        position = 0
    return rows, None


def _chosen(
    store: ObjectStore, state: JournalState, choice: RejectChoice, only: int, before: int
) -> Iterator[tuple[int, list[WindowRejects]]]:
    """The chosen records of each window, the newest first, including windows without any.

    Args:
        only: The one window whose records are chosen; 0 for all.
    """
    retried = set(state.retried)
    bounds = [bound for bound in (before, only + 1 if only else 0) if bound]
    for window in newest_windows(store, state, min(bounds, default=0)):
        window_id = window.plan.window_id
        if window_id < only:
            return
        parts = (part for part in rejects_of(window) if not part.is_taken_over(retried))
        masked = ((part, choice.mask(part)) for part in parts)
        yield window_id, [replace(part, records=part.records.where(mask)) for part, mask in masked if mask.any()]
