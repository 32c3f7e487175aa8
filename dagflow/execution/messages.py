"""What travels between the driver and the tasks of a window; everything here is pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.context import Skipped
from dagflow.errors import DagflowError
from dagflow.journal.saved_state import SavedState
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PortRef
from dagflow.storage.pending import PendingFile


@dataclass(frozen=True, slots=True)
class WindowTask:
    """One window's work.

    Attributes:
        window_id: The window.
        tag: Unique to this driver; part of every pending name.
        partitions: Partition count of each stage, by the stage's head.
        assigned: For each stage that the driver feeds, by its head: for each partition the tuples of each port.
        states: Pickled operator states by operator and partition, as the previous window left them.
        together: Which slots of the lowest level run one after the other in one Spark task; empty where the runtime
            decides.
        shares: What each partition may use of a rate that all of its operator's partitions have together, by the
            stage's head and partition; where it is not told, an even share.
    """

    window_id: int
    tag: str
    partitions: Mapping[str, int]
    assigned: Mapping[str, list[list[tuple[PortRef, list[Any]]]]]
    states: Mapping[tuple[str, int], SavedState] = field(default_factory=dict)
    together: Sequence[Sequence[int]] = ()
    shares: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task of one stage did.

    Attributes:
        stage: Index of the stage.
        partition: The partition within the stage.
        counters: What operators counted; nothing of a task that failed.
        files: Files that wait to be published.
        reports: Tuples for control operators, by input port.
        states: States after the window, by operator.
        accounting: Sums by key that must come to zero over all tasks and windows.
        skipped: What was left out, and why.
        source_events: What control operators shall hear.
        busy_s: Seconds from the task's first item to its last.
        operator_busy_s: Seconds that each operator worked, by name.
        started_ms: When the task began, in milliseconds since the epoch by the clock of its host.
        error: Why the window must not be committed, or None.
    """

    stage: int
    partition: int
    counters: Counters
    files: tuple[PendingFile, ...]
    reports: tuple[tuple[PortRef, list[Any]], ...]
    states: Mapping[str, SavedState]
    accounting: Mapping[str, int]
    busy_s: float
    error: DagflowError | None = None
    operator_busy_s: Mapping[str, float] = field(default_factory=dict)
    started_ms: int = 0
    skipped: tuple[Skipped, ...] = ()
    source_events: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ShuffleItem:
    """An item on its way to a stage of a higher level.

    Attributes:
        level: Level of the receiving stage.
        slot: Spark partition within that level.
        order: Sorting key that makes the order of arrival the same in each run.
        target: The input port.
        payload: A RecordBatch, or a list of tuples.
    """

    level: int
    slot: int
    order: tuple[int, ...]
    target: PortRef
    payload: Any
