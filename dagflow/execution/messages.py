"""Messages between the driver and the tasks of a window; all of them are pickled."""

from __future__ import annotations

import functools
import itertools
import pickle
import pickletools
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dagflow.api.context import MovedRange, SideData, Skipped, VersionKey, WaitingEnd
from dagflow.api.control import InputOperator
from dagflow.api.operator import Operator
from dagflow.api.records import RecordBatch
from dagflow.api.sources import FileSources
from dagflow.errors import DagflowError, OperatorError, text_of
from dagflow.execution.chain import Chain
from dagflow.execution.failures import BrokenContractError
from dagflow.execution.stalls import DEFAULT_LIMITS, StallLimits
from dagflow.execution.task_outputs import OutputBounds
from dagflow.execution.task_watch import ProgressAddress
from dagflow.frozen import frozen
from dagflow.journal.saved_state import SavedState
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability, PendingFile

PART = "#part"
"""The port at which an operator takes in parts of its held result, before all else."""


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
    """A RecordBatch, tuples, or a part at port PART, on the way to a Spark partition, the slot, of a higher level.

    Attributes:
        order: Sorting key that makes the order of arrival the same in each run.
    """

    level: int
    slot: int
    order: tuple[int, ...]
    target: PortRef
    payload: RecordBatch | PickledTuples | bytes


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


@frozen
class Program:
    """All that tasks need to know of an app; sent to each worker process once per run.

    Attributes:
        operators: Pickled operators by name; each task makes instances of its own.
        has_source_listener: Whether a control operator listens to source events.
        output_bounds: The only location where files may be published; None for any.
    """

    app: str
    plan: PhysicalPlan
    operators: Mapping[str, bytes]
    storage: StorageContext = field(default_factory=StorageContext.default)
    durability: Durability = "process"
    has_source_listener: bool = False
    progress: ProgressAddress | None = None
    stall_limits: StallLimits = DEFAULT_LIMITS
    record_limit: RecordLimit | None = None
    output_bounds: OutputBounds | None = None

    @classmethod
    def of(
        cls,
        app: str,
        plan: PhysicalPlan,
        operators: Mapping[str, Operator],
        storage: StorageContext | None = None,
        durability: Durability = "process",
        stall_limits: StallLimits = DEFAULT_LIMITS,
    ) -> Program:
        """Pickle the partitioned operators of a plan."""
        names = [name for stage in plan.stages for name in stage.operators]
        pickled = {name: pickled_operator(name, operators[name]) for name in names}
        inputs = (operator for operator in operators.values() if isinstance(operator, InputOperator))
        listens = any(operator.wants_source_events for operator in inputs)
        stores = storage or StorageContext.default()
        return cls(app, plan, pickled, stores, durability, has_source_listener=listens, stall_limits=stall_limits)

    def modules_of(self, package: str) -> list[str]:
        """The modules of a package that the pickled operators are made of, out of those that are imported here."""
        pickled = itertools.chain.from_iterable(map(pickletools.genops, self.operators.values()))
        words = {argument for _, argument, _ in pickled if isinstance(argument, str)}
        return sorted(name for name in words & sys.modules.keys() if name.partition(".")[0] == package)


def pickled_operator(name: str, operator: Operator) -> bytes:
    """An operator in the form that tasks get."""
    try:
        if type(operator).__module__ == "__main__":
            # Imported late: few apps have an operator of the script or the notebook that runs them, whose class no
            # other process could import.
            import cloudpickle

            pickled: bytes = cloudpickle.dumps(operator, protocol=5)
            return pickled
        return pickle.dumps(operator, protocol=5)
    except Exception as error:  # an author's class may raise anything here
        attribute = _unpicklable_attribute(operator)
        what = f"its attribute '{attribute}'" if attribute else "it"
        raise OperatorError(
            f"{what} cannot be pickled, and so cannot be sent to tasks: {type(error).__name__}: {text_of(error)}",
            operator=name,
            hint="make locks, connections, lambdas and the like in setup(), which runs where the operator does",
        ) from error


def _unpicklable_attribute(operator: Operator) -> str:
    """The first attribute that cannot be pickled; "" where the cause is something else."""
    for name, value in vars(operator).items():
        if name not in operator.output_ports:
            try:
                pickle.dumps(value, protocol=5)
            except Exception:  # as above
                return name
    return ""


class RecordLimit:
    """How many records ports may still emit; shared by all tasks, which run in one process one after the other."""

    def __init__(self, records: int, ports: Iterable[PortRef]) -> None:
        self._left = dict.fromkeys(ports, records)

    @property
    def is_reached(self) -> bool:
        return not any(self._left.values())

    def attach(self, chain: Chain) -> bool:
        """Limit the ports of a chain; returns whether the chain has one of them."""
        ports = self._left.keys() & chain.buffers.keys()
        for port in ports:
            chain.buffers[port].admit = functools.partial(self._admit, port)
        return bool(ports)

    def is_reached_in(self, chain: Chain) -> bool:
        return not any(self._left[port] for port in self._left.keys() & chain.buffers.keys())

    def _admit(self, port: PortRef, count: int) -> int:
        admitted = min(count, self._left[port])
        self._left[port] -= admitted
        return admitted
