"""Refused records: how many by reason, file and window, and a page of them with their bytes."""

from __future__ import annotations

import base64
import glob
import itertools
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dagflow.errors import own_name
from dagflow.journal.retention import newest_windows
from dagflow.journal.state import JournalState
from dagflow.report.open_rejects import RejectChoice, WindowRejects, rejects_of
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Cursor, Query

ROWS = 100
GROUPS = 100
"""Number of reasons, files and windows that are listed, those with most records first."""

LOOK_S = 1.0
"""About how many seconds one request counts, and how many it reads for its page; the answer says how far it came."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A choice among the refused records."""

    records: RejectChoice
    window_id: int

    @classmethod
    def of(cls, query: Query) -> _Choice:
        reason, file = query.text("reason"), query.text("file")
        chosen = RejectChoice((reason,) if reason else (), glob.escape(file) if file else "")
        return cls(chosen, query.number("window"))


@dataclass(slots=True)
class _Counts:
    """How many records were counted, and the oldest window that was looked at."""

    reason: Counter[str] = field(default_factory=Counter)
    file: Counter[str] = field(default_factory=Counter)
    window: Counter[int] = field(default_factory=Counter)
    since: int = 0


def rejects(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """Refused records that no later window has taken over; `reason`, `file` and `window` choose among them."""
    store, state = checkpoint.journal()
    choice = _Choice.of(query)
    counts = _counted(store, state, choice)
    rows, following = _page(store, state, choice, Cursor.of(query.text("after")), query.limit(ROWS))
    return {
        "total": counts.window.total(),
        **{f"by_{name}": _most(getattr(counts, name)) for name in ("reason", "file", "window")},
        "since_window": counts.since,
        "rejects": rows,
        "next": following,
    }


def _counted(store: ObjectStore, state: JournalState, choice: _Choice) -> _Counts:
    counts, deadline = _Counts(), time.monotonic() + LOOK_S
    for window_id, found in _chosen(store, state, choice, 0):
        if time.monotonic() > deadline:
            return counts
        counts.since = window_id
        for part in found:
            for block_id, why, records, *_ in part.records.sums():
                counts.reason[why] += records
                counts.file[redacted(part.blocks[block_id].url)] += records
                counts.window[window_id] += records
    counts.since = state.forgotten + 1
    return counts


def _page(
    store: ObjectStore, state: JournalState, choice: _Choice, cursor: Cursor, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Records from a cursor on, the newest windows first, and the cursor of the next page."""
    rows: list[dict[str, Any]] = []
    position, deadline = cursor.position, time.monotonic() + LOOK_S
    for window_id, found in _chosen(store, state, choice, cursor.before):
        if time.monotonic() > deadline:
            return rows, str(Cursor(window_id + 1))
        seen = 0
        for part in found:
            first = min(max(position - seen, 0), len(part.records))
            last = min(len(part.records), first + limit - len(rows))
            rows += _rows(part, part.records.slice(first, last).table.to_pylist())
            if last < len(part.records):
                return rows, str(Cursor(window_id + 1, seen + last))
            seen += len(part.records)
        position = 0
    return rows, None


def _chosen(
    store: ObjectStore, state: JournalState, choice: _Choice, before: int
) -> Iterator[tuple[int, list[WindowRejects]]]:
    """The chosen records of each window, the newest first, including windows without any."""
    retried = set(state.retried)
    bounds = [bound for bound in (before, choice.window_id + 1 if choice.window_id else 0) if bound]
    for window in newest_windows(store, state, min(bounds, default=0)):
        window_id = window.plan.window_id
        if window_id < choice.window_id:
            return
        is_refusing = window.intent is not None and window.intent.refused
        parts = (part for part in (rejects_of(window) if is_refusing else ()) if not part.is_taken_over(retried))
        masked = ((part, choice.records.mask(part)) for part in parts)
        yield window_id, [replace(part, records=part.records.where(mask)) for part, mask in masked if mask.any()]


def _most(counts: Counter[Any]) -> list[dict[str, Any]]:
    return [{"name": name, "count": count} for name, count in itertools.islice(counts.most_common(), GROUPS)]


def _rows(window: WindowRejects, records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in records:
        raw = row["raw"]
        yield {
            "file": redacted(window.blocks[row["block_id"]].url),
            "offset": row["offset"],
            "length": row["length"],
            "window": window.window_id,
            "operator": own_name(window.operator),
            "reason": row["detail"] or row["reason"],
            "raw": None if raw is None else base64.b64encode(raw).decode("ascii"),
        }
