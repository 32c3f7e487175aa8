"""A run's figures to be shown."""

from __future__ import annotations

from dagflow.journal.heartbeat import RunningWindow, RunProgress, RunRates
from dagflow.journal.state import PartitionCounts
from dagflow.report.snapshot import OperatorFigures, RunSnapshot

APP = "block-reader"


def at_work(*running: RunningWindow, waiting: int = 120, left_s: float | None = None) -> RunProgress:
    """Windows that run, and tuples that wait for the reader, at 100 MiB and a million records a second."""
    return RunProgress(running, RunRates(float(100 << 20), 1_000_000.0, left_s), {"reader": waiting})


def operators(seconds: float, counts: dict[str, int] | None = None) -> tuple[OperatorFigures, ...]:
    """A splitter, a reader of a million records a second, a filter that keeps nine of ten, and a writer."""
    read, kept = int(seconds * 1_000_000), int(seconds * 900_000)
    return (
        OperatorFigures("splitter"),
        OperatorFigures("reader", "reader", {"messages": read}, counts=counts or {}, is_source=True),
        OperatorFigures("filter", "reader", {"output": kept}),
        OperatorFigures("writer", "reader"),
    )


def summary(seconds: float = 12.0, *, state: str = "running", windows: int = 14, rejected: int = 0) -> RunSnapshot:
    """A run that reads 100 MiB and a million records a second."""
    return RunSnapshot(
        app=APP,
        state=state,
        windows=windows,
        files=3,
        blocks=1200,
        bytes=int(seconds * (100 << 20)),
        rejected=rejected,
        seconds=seconds,
        operators=operators(seconds),
        partitions={"reader": PartitionCounts(min=1, max=16, last=8)},
        progress=at_work(),
        last_planned=16,
        last_committed=14,
    )
