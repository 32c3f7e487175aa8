"""How long the partitions of a stage worked and waited, and whether one of them has more to do than the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagflow.journal.windows import Window

MANY_PARTITIONS = 64
"""Number of partitions of one stage that are shown; the sentence is about all."""

UNEVEN = 1.5
"""A partition is named if it works this many times as long as the mean."""


def partition_times(windows: Sequence[Window], head: str) -> dict[str, Any]:
    """How long the partitions of a stage worked and waited in some windows.

    Args:
        windows: The windows, newest first; those from before the partition count changed last do not count.
        head: Head of the stage.

    Returns:
        Working and waiting seconds by partition, how many partitions there are, and what is to be said of them; none
        where the windows do not record it.
    """
    working: list[float] = []
    ran_s = 0.0
    for window in windows:
        intent = window.intent
        if intent is None or head not in intent.task_ms:
            continue
        own = intent.task_ms[head] + [0] * (window.plan.partitions.get(head, 0) - len(intent.task_ms[head]))
        if working and len(own) != len(working):
            break
        working = [before + ms / 1000 for before, ms in zip(working or [0.0] * len(own), own, strict=True)]
        ran_s += max(intent.finished_ms - intent.started_ms, *own, 0) / 1000
    rows = [
        {"partition": number, "working_seconds": round(each, 3), "waiting_seconds": round(max(ran_s - each, 0.0), 3)}
        for number, each in enumerate(working[:MANY_PARTITIONS])
    ]
    return {"count": len(working), "times": rows, "sentence": _sentence(working)}


def _sentence(working: Sequence[float]) -> str:
    if len(working) < 2 or sum(working) <= 0:
        return ""
    most, mean = max(working), sum(working) / len(working)
    if most < UNEVEN * mean:
        return f"The {len(working)} partitions work about as long as each other."
    return f"Partition {working.index(most)} works {most / mean:.1f} times as long as the mean of {len(working)}."
