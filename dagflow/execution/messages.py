"""Messages between the driver and the tasks of a window; all of them are pickled."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from dagflow.api.context import MovedRange, SideData, Skipped, VersionKey, WaitingEnd
from dagflow.api.records import RecordBatch
from dagflow.api.sources import FileSources
from dagflow.errors import DagflowError, text_of
from dagflow.execution.failures import BrokenContractError
from dagflow.frozen import frozen
from dagflow.journal.saved_state import SavedState
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PortRef
from dagflow.storage.pending import PendingFile


@frozen
class WindowJob:
    """The work of one window.

    Attributes:
        tag: Unique to this driver; part of the name of every pending file.
        partitions: Partition count of each stage, by the stage's head.
        assigned: The tuples of each port, for each partition of each stage that the driver feeds, by the stage's head.
        together: The slots of the lowest level that run in one task, one after the other; empty for one task each.
        shares: The share of each partition in the rate limit of its operator, by the stage's head and partition;
            a partition that is not listed has an even share.
        holds: Operators that hold their results back.
        parts: Parts of held results that the window takes in, by operator.
        gone: Versions of files to leave out whole, as found by an earlier attempt; see OperatorContext.gone.
        retracted: Versions of files whose records leave with the window; see OperatorContext.retracted.
        decided: The decisions of targets, by operator; see OperatorContext.decided.
        holding: Operators that may hold files back for a later window; None for all.
    """

    window_id: int
    tag: str
    partitions: Mapping[str, int]
    assigned: Mapping[str, list[list[tuple[PortRef, list[Any]]]]]
    states: Mapping[tuple[str, int], SavedState] = field(default_factory=dict)
    together: Sequence[Sequence[int]] = ()
    shares: Mapping[tuple[str, int], float] = field(default_factory=dict)
    prescans: Mapping[str, SavedState] = field(default_factory=dict)
    is_reprocessed: bool = False
    holds: Collection[str] = ()
    parts: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    gone: Mapping[VersionKey, Skipped] = field(default_factory=dict)
    retracted: Collection[VersionKey] = ()
    decided: Mapping[str, str] = field(default_factory=dict)
    side_inputs: Mapping[str, SideData] = field(default_factory=dict)
    holding: Collection[str] | None = None


@frozen
class TaskResult:
    """The result of one task of one stage.

    Attributes:
        reports: Tuples for control operators, by input port.
        accounting: Byte accounting: by operator, sums by key that must be zero over all tasks and windows.
        moved: The ranges that were found under other names; see OperatorContext.moved.
        waiting: The ends of files that were left; see OperatorContext.waiting.
        read_in_part: Versions of files that it read in part; see OperatorContext.gone.
        refused: Where refused records are, by operator, as written by RefusedRecords.to_bytes().
        source_events: Events for control operators that listen to them.
        sources: The blocks that each file comes from, in the order of the files; None where that is not known.
        error: Why the window must not be committed; None where it may be.
        started_ms: When the task began, in milliseconds since 1970 by the clock of its host.
        parts: Parts of the results that operators hold back, by operator.
    """

    stage: int
    partition: int
    counters: Counters
    files: tuple[PendingFile, ...]
    reports: tuple[tuple[PortRef, PickledTuples], ...]
    states: Mapping[str, SavedState]
    accounting: Mapping[str, Mapping[str, int]]
    busy_s: float
    error: DagflowError | None = None
    operator_busy_s: Mapping[str, float] = field(default_factory=dict)
    started_ms: int = 0
    skipped: tuple[Skipped, ...] = ()
    moved: tuple[MovedRange, ...] = ()
    waiting: tuple[WaitingEnd, ...] = ()
    source_events: tuple[Any, ...] = ()
    sources: tuple[FileSources | None, ...] = ()
    parts: Mapping[str, bytes] = field(default_factory=dict)
    read_in_part: frozenset[VersionKey] = frozenset()
    refused: Mapping[str, bytes] = field(default_factory=dict)


@frozen
class ShuffleItem:
    """A RecordBatch or tuples on their way to a Spark partition, the slot, of a stage of a higher level.

    Attributes:
        order: Sorting key that makes the order of arrival the same in each run.
    """

    level: int
    slot: int
    order: tuple[int, ...]
    target: PortRef
    payload: RecordBatch | PickledTuples


@frozen
class PickledTuples:
    """Tuples, pickled while their operator emits them, so that a failure counts as the operator's."""

    data: bytes

    @classmethod
    def of(cls, tuples: list[Any]) -> PickledTuples:
        try:
            return cls(pickle.dumps(tuples, protocol=5))
        except Exception as error:  # anything that an author's class raises
            raise BrokenContractError(
                f"emitted a tuple that cannot be pickled, as one must be that goes to another process: {text_of(error)}"
            ) from error

    def tuples(self) -> list[Any]:
        tuples: list[Any] = pickle.loads(self.data)
        return tuples
