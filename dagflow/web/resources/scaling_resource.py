"""Scaling: the backlog and the partitions of each stage over time, and why they changed."""

from __future__ import annotations

import itertools
from typing import Any

from dagflow.journal.retention import newest_windows
from dagflow.report.own_figures import OwnFigures
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.query import Query
from dagflow.web.resources.windows_resource import row_of

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
        {
            "time_ms": window.plan.planned_ms,
            "window": window.plan.window_id,
            "stage": own.stage(each.stage),
            "backlog": each.backlog,
            "before": each.before,
            "after": each.after,
            "reason": each.reason,
        }
        for window in windows
        for each in window.plan.decisions
    ]
    return {"points": points, "decisions": decisions}
