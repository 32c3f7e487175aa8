"""Readers of tuples: what an operator may do in the driver with the tuples that it takes in, before tasks read them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dagflow.api.operator import Capability
from dagflow.api.ports import TupleBatch
from dagflow.api.rejects.refused_records import RefusedRecords
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

        Called for all tuples of all such windows, in order, before the first of them is resolved again.

        Args:
            item: The tuple as it was planned.

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

        Args:
            item: The tuple.
            storage: Reaches the stores of the app.

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
        """Called once in the driver, and once in each task that scans; never after setup.

        Returns:
            What scans tuples before their window is planned; None for nothing.
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
            storage: Reaches the stores of the app.

        Returns:
            The tuples in which records may begin at or after the offset, in the form in which they can be read without
            those before them.

        Raises:
            DagflowError: A file cannot be looked at.
        """
        return list(items)

    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> TupleBatch:
        """Called in the driver for the records that one window has refused, if they are in OperatorContext.refused.

        A task that handles the batch emits the accepted ones of the tried records, and records all others as refused.

        Args:
            blocks: The tuples of that window that contain them, by id.
            refused: The records.
            is_tried: Which of them are tried; the others stay refused.
            first_id: The first of 2**RETRY_ID_BITS ids (see dagflow.api.context) that no other tuple of the
                checkpoint has.
        """
        raise NotImplementedError
