"""Capabilities that few operators declare; operator.py, control.py and partitioning.py have the common ones."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.context import SideData
from dagflow.api.operator import Capability, Operator
from dagflow.api.partitioning import StreamCodec
from dagflow.api.ports import TupleBatch
from dagflow.api.properties import Millis
from dagflow.api.refused_records import RefusedRecords
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext


class PreScan(ABC):
    """Scans tuples before their window is planned, and completes them with the results.

    In some formats a reader that starts in the middle of a file cannot know whether a byte is inside quotes. A pre-scan
    runs over all blocks in parallel and reports how each would change the state at its beginning; the driver folds
    the results, in order, into the one fact that each block lacks; then the blocks are processed in parallel.
    """

    state_type: ClassVar[Any] = None
    """The type of what snapshot returns, like Operator.state_type; None if it always returns None."""

    state_version: ClassVar[int] = 1
    """Version of state_type's fields."""

    def take_back(self, item: Any) -> bool:
        """Drop the result of resolving a tuple, because its window is planned again.

        Called for all tuples of all such windows, as they were planned and in order, before the first of them is
        resolved again.

        Returns:
            Whether it is scanned and resolved again; otherwise it stays as it was planned.
        """
        return False

    def decide(  # noqa: B027  # most pre-scans decide nothing
        self, items: Sequence[Any], scan: Callable[[Sequence[Any]], list[Any]]
    ) -> None:
        """Decide what all tuples depend on, in the driver, before those of a window are resolved.

        The decision is part of the result of snapshot: tasks get it as OperatorContext.prescan. The default decides
        nothing.

        Args:
            items: All tuples of the window, batches of them too, in the order of emission.
            scan: Runs the method scan for each given item, which need not be a tuple, in tasks, and returns the
                results. Raises the DagflowError of the first item that cannot be scanned.
        """

    @abstractmethod
    def needs_scan(self, item: Any) -> bool:
        """Whether a tuple has to be scanned first; called in the driver.

        A window without any such tuple costs no pre-scan.
        """

    @abstractmethod
    def scan(self, item: Any, storage: StorageContext) -> Any:
        """Scan one tuple, in a task.

        Returns:
            A small, picklable result.

        Raises:
            DagflowError: The tuple cannot be scanned.
        """

    def teardown(self) -> None:  # noqa: B027  # most pre-scans hold nothing
        """Called once in each task that scans, after the last scan or a failed one: to close files."""

    @abstractmethod
    def resolve(self, items: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Complete a window's tuples, in the driver.

        Args:
            items: All tuples of the window, in the order of emission.
            results: For each the result of scan, or None if it was not scanned.

        Returns:
            The tuples to be planned, one for each of items.
        """

    @abstractmethod
    def snapshot(self) -> Any:
        """What resolve must know of earlier windows: small, of state_type; None for nothing."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Restore what snapshot returned, before the first window after a restart."""


class TupleReader(Capability):
    """Declares an operator at the head of a stage that reads what its tuples name; each method is optional."""

    def prescan(self) -> PreScan | None:
        """What scans tuples before their window is planned; None for nothing.

        Called once in the driver, and once in each task that scans; never after setup.
        """
        return None

    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Called before the handler of single tuples, which have arrived together: may start to fetch their data.

        The tuples of an earlier call have all been handled.
        """

    def seek(self, items: Sequence[Any], offset: int, storage: StorageContext) -> list[Any]:
        """Called on an instance that is not set up, before tuples are pre-scanned, and once more afterwards.

        Args:
            items: Tuples that wait to be read.
            offset: An offset, counted like the offsets of a file's records.

        Returns:
            The tuples in which records may begin at or after the offset, in the form in which they can be read without
            those before them.

        Raises:
            DagflowError: A file cannot be looked at.
        """
        return list(items)

    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> TupleBatch | None:
        """Called in the driver for the records that one window has refused, if they are in OperatorContext.refused.

        A task that handles the batch emits the accepted ones of the tried records, and records all others as refused.

        Args:
            blocks: The tuples of that window that contain them, by id.
            is_tried: Which of them are tried; the others stay refused.
            first_id: The first of 2**RETRY_ID_BITS ids (see dagflow.api.context) that no other tuple of the
                checkpoint has.

        Returns:
            The batch; None where the operator reads no records again.
        """
        return None


_ATTEMPTS = 5
"""How often a side input is read that changes during the read."""


class SideInput(Capability):
    """Declares a partitioned operator that reads small data beside its stream.

    The driver checks its version before it plans a window, reads it again if the version has changed, and keeps a copy
    in the checkpoint. The plan of the window names the copy, which tasks get as OperatorContext.side_input.

    Guarantee: a window sees one version of the data, in all partitions, however often it runs, also after a crash. A
    window that was not committed when a run failed is planned again by the next run, with the data as it is then.

    Both methods raise a DagflowError where the data cannot be read, or is not what the operator needs.

    Source:
        The role is that of a side input in Apache Beam.
    """

    @abstractmethod
    def side_input_version(self, storage: StorageContext) -> str:
        """Called in the driver before each window is planned: the present version of the data.

        Returns:
            A short text that differs if the data does; it is journaled, and shown.
        """

    @abstractmethod
    def read_side_input(self, storage: StorageContext) -> bytes:
        """Called in the driver when the version is a new one: the data, in a form that tasks read."""


def read_consistently(operator: SideInput, storage: StorageContext, version: str) -> tuple[str, bytes]:
    """A version of a side input, and its data, which may change during the read.

    Args:
        version: Its version before the read.

    Raises:
        DagflowError: The side input cannot be read, or changes all the time.
    """
    for _ in range(_ATTEMPTS):
        data = operator.read_side_input(storage)
        before, version = version, operator.side_input_version(storage)
        if version == before:
            return version, data
    raise DagflowError(
        f"a side input has changed each of the {_ATTEMPTS} times that it was read: {version}",
        hint="write it elsewhere, and put it in its place as a whole when it is complete",
    )


def loaded_side_data(operator: Operator, storage: StorageContext) -> SideData | None:
    """The side input of an operator that runs without a checkpoint; None where it has none."""
    if not isinstance(operator, SideInput):
        return None
    version, data = read_consistently(operator, storage, operator.side_input_version(storage))
    return SideData(hashlib.blake2b(data, digest_size=16).hexdigest(), version, data)


class Interval(BaseModel):
    """A length of processing time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    millis: Annotated[
        Millis, Field(ge=1, description="milliseconds from the first window of one result to that of the next")
    ]

    def __str__(self) -> str:
        return f"{{millis: {self.millis}}}"


Over = Literal["window", "run"] | Interval
"""The span of one result: a window, a run, or the windows of an interval."""


class Accumulator(Capability):
    """Declares an operator in one partition that can hold its result back, to give one for several windows.

    A window whose result is held back leaves a part in the checkpoint. A later window takes in parts: some of them to
    leave one instead, or all of them to emit the result.

    Guarantee: the input of a window is in exactly one emitted result, despite any crashes and restarts.
    """

    over: Over | Literal["all"] | None
    """The span of a result; None for a run, or a window while following. An operator over all windows of all runs holds
    nothing back: it has a state, and gives results in each window."""

    # Without an annotation, so that it is no property.
    is_partial = False
    """Whether another operator combines what the partitions of this one emit. Where a task runs several of them, each
    leaves its part to the next one, which may be any object, or emits and leaves None; the last one emits."""

    @abstractmethod
    def add_part(self, part: Any) -> None:
        """Called after begin_window, for each part of earlier windows that this one takes in, oldest first."""

    @abstractmethod
    def take_part(self) -> Any:
        """Called instead of end_window where the result is held back.

        Returns:
            All that was taken in since begin_window, as bytes; None for nothing.
        """


class KeptByFile(Capability):
    """Declares an operator whose state can lose what single versions of files have added to it.

    The versions that leave with a window are in OperatorContext.retracted. The operator gives its results of all that
    has changed, and names those that are no more by rows with only their keys and REMOVED.
    """

    # Without an annotation, so that it is no property.
    is_by_file = False

    @abstractmethod
    def keep_by_file(self) -> None:
        """Called in the driver when the app is planned, if later versions of files replace earlier ones."""

    @property
    @abstractmethod
    def result_keys(self) -> Collection[str]:
        """The columns by which a result replaces an earlier one."""


REMOVED = "_dagflow_removed"
"""A column that is true in rows with a key whose row is to leave a target with keys, and null in others."""


@frozen
class Expansion:
    """The content of a composite operator. Ports are written `part.port`.

    Attributes:
        parts: The operators by name, upstream first. The first one has the partitions that the app gives the composite;
            each other one is parallel to its upstream, except those in codecs.
        streams: Connections between the parts, from an output port to an input port.
        ports: For each port of the composite the ports of parts that it stands for.
        codecs: The codec that brings records of equal keys together in front of a part, by the part.
    """

    parts: Mapping[str, Operator]
    streams: Sequence[tuple[str, str]]
    ports: Mapping[str, Sequence[str]]
    codecs: Mapping[str, StreamCodec] = field(default_factory=dict)

    @classmethod
    def chain(
        cls, parts: Mapping[str, Operator], refusing: Iterable[str], codecs: Mapping[str, StreamCodec] | None = None
    ) -> Expansion:
        """Parts one behind the other, from port `input` to port `output`.

        Args:
            refusing: The parts whose port `errors` is one of the composite's.
        """
        names = list(parts)
        return cls(
            parts,
            [(f"{source}.output", f"{target}.input") for source, target in itertools.pairwise(names)],
            {
                "input": [f"{names[0]}.input"],
                "output": [f"{names[-1]}.output"],
                "errors": [f"{name}.errors" for name in refusing],
            },
            codecs or {},
        )


class Composite(Capability):
    """Declares an operator that other operators, its parts, may replace in the plan.

    Users see the composite alone: its records in and out, and the counts and times of all parts. A PropertyTextError of
    a part about a text of a property of the composite is reported at its position in the app.
    """

    @abstractmethod
    def expand(self) -> Expansion | None:
        """Called in the driver when the app is planned; returns new operators each time, or None to run itself."""


class RowCondition(ABC):
    """What is asked of the records that an operator passes on; picklable."""

    @abstractmethod
    def may_hold(self, least: pa.RecordBatch, greatest: pa.RecordBatch) -> bool:
        """Whether it may be true of a record whose values lie between those of two rows.

        The rows have a value for each column for which one is known that no value is less, or greater, than.
        """


@frozen
class WantedRows:
    """What an operator wants of the records that arrive.

    Attributes:
        condition: Is true of all records that it passes on, or refuses; None for any.
        columns: The columns that it makes use of; None for all.
    """

    condition: RowCondition | None = None
    columns: frozenset[str] | None = None

    def among(self, names: Sequence[str], also: Collection[str] = ()) -> list[str] | None:
        """Which of the columns of records, and in any case of those in `also`, to make, at least one; None for all.

        It is all where one that is made use of is not there: the operator then says which there are.
        """
        if self.columns is None or not self.columns <= set(names):
            return None
        return [name for name in names if name in self.columns or name in also] or [*names[:1]]


class SelectsRows(Capability):
    """Declares an operator that drops some of the records or columns that arrive at its port `input`."""

    @abstractmethod
    def wanted_rows(self) -> WantedRows:
        """The records and columns for which it does something."""


class SkipsRows(Capability):
    """Declares an operator that can save itself records and columns that nothing behind it makes use of.

    Guarantee: what the operator behind it emits stays the same.
    """

    rows_port: ClassVar[str]
    """The port of the records; they are skipped only if one stream alone begins there."""

    # Without an annotation, so that it is no property: the driver sets it before a run.
    wanted = WantedRows()
    """What the operator behind the port wants."""
