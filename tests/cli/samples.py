"""A run's figures to be shown."""

from __future__ import annotations

from dagflow.cli.view import AppView
from dagflow.journal import PartitionCounts
from dagflow.report.snapshot import RunSnapshot

VIEW = AppView(
    name="block-reader",
    operators=("splitter", "reader", "filter", "writer"),
    head_by_operator={"reader": "reader", "filter": "reader", "writer": "reader"},
    sources=("reader.messages",),
)


def summary(seconds: float = 12.0, *, state: str = "running", windows: int = 14, rejected: int = 0) -> RunSnapshot:
    """A run that reads 100 MiB and a million records a second."""
    return RunSnapshot(
        app="block-reader",
        state=state,
        windows=windows,
        files=3,
        blocks=1200,
        bytes=int(seconds * (100 << 20)),
        records={"reader.messages": int(seconds * 1_000_000), "filter.output": int(seconds * 900_000)},
        rejected=rejected,
        seconds=seconds,
        partitions={"reader": PartitionCounts(min=1, max=16, last=8)},
        backlog={"reader": 120},
        last_planned=16,
        last_committed=14,
    )
