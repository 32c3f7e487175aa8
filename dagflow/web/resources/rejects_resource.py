"""Refused records: how many by reason, file and window, and a page of them with their bytes."""

from __future__ import annotations

import base64
import glob
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from dagflow.report.open_rejects import RejectChoice, WindowRejects, open_rejects
from dagflow.storage.location import redacted
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query

ROWS = 100
GROUPS = 100
"""Reasons, files and windows that are listed, those with most records."""


def rejects(checkpoint: Checkpoint, query: Query) -> dict[str, Any]:
    """What is refused, and no later window has taken over; `reason`, `file` and `window` choose some of it."""
    reason, file, window_id = query.text("reason"), query.text("file"), query.number("window")
    choice = RejectChoice((reason,) if reason else (), glob.escape(file) if file else "")
    counts: dict[str, Counter[Any]] = {"reason": Counter(), "file": Counter(), "window": Counter()}
    start, limit = query.number("after"), query.limit(ROWS)
    rows: list[dict[str, Any]] = []
    seen = 0
    for window in open_rejects(checkpoint.url, checkpoint.storage):
        if window_id and window.window_id != window_id:
            continue
        chosen = window.records.where(choice.mask(window))
        for block_id, why, records, _ in chosen.sums():
            counts["reason"][why] += records
            counts["file"][redacted(window.blocks[block_id].url)] += records
            counts["window"][window.window_id] += records
        first, last = max(start - seen, 0), min(start + limit - seen, len(chosen))
        if first < last:
            rows += _rows(window, chosen.slice(first, last).table.to_pylist())
        seen += len(chosen)
    return {
        "total": seen,
        **{f"by_{name}": _most(own) for name, own in counts.items()},
        "rejects": rows,
        "next": start + limit if start + limit < seen else None,
    }


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
            "operator": window.operator,
            "reason": row["detail"] or row["reason"],
            "raw": None if raw is None else base64.b64encode(raw).decode("ascii"),
        }
