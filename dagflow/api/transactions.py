"""Targets with transactions of their own, such as tables: what the author of one implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagflow.api.operator import Capability, Operator
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DecidedWindow:
    """What a window adds to a target; the journal holds it, so it will be there, whatever happens.

    Attributes:
        window_id: The window.
        decision: Tells this decision about the window from any other one.
        files: The files; they are in their places.
    """

    window_id: int
    decision: str
    files: tuple[PendingFile, ...]


@dataclass(frozen=True, slots=True)
class DecidedReplay:
    """Files that take the place of others, because windows ran again; the journal holds it.

    Attributes:
        number: Which of the checkpoint's replays it is, counted from 1.
        removed: Files that windows have added, and that the target shows.
        added: New files; they are in their places.
    """

    number: int
    removed: tuple[PendingFile, ...]
    added: tuple[PendingFile, ...]


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A change of a target's columns that the files of a window bring.

    Attributes:
        column: The column.
        before: Its type before; "" where there was none.
        after: Its type with the files.
        cause: Where the first record is that asked for it, as `file:offset`; "" where that is not known.
    """

    column: str
    before: str
    after: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class TargetDecision:
    """What a target says of the files of a window before its intent is written.

    Attributes:
        text: What tasks must know of the target, with what these files add to it; they find it in
            OperatorContext.decided.
        fits: Whether the target takes the files as they are; otherwise the window runs again with the text.
        changes: What the files change, in order; the journal keeps them.
    """

    text: str
    fits: bool
    changes: tuple[ColumnChange, ...] = ()


class TargetState(ABC):
    """A target as it is at one moment, and the only way to change it from there."""

    @property
    @abstractmethod
    def marker(self) -> int:
        """The newest window of this writer that the target holds; 0 for none."""

    @property
    @abstractmethod
    def version(self) -> str:
        """What the target calls this state, such as the number of a table's version; for people."""

    @abstractmethod
    def decision(self) -> str | None:
        """The decision of the newest window that the target holds; None where the target does not tell any more."""

    @abstractmethod
    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add windows, and set the marker to the last of them: both in one transaction, or neither.

        Guarantee, which the author gives: the transaction fails where the marker of this writer has changed since
        this state was read, by any driver, and a library may not try it again by itself. Changes by other
        writers do no harm, or make it fail.

        Args:
            windows: Windows above the marker, in order.

        Raises:
            StorageError: The transaction failed, or its outcome is not known. The driver reads the state anew, and
                its marker says which.
            DagflowError: It would fail for ever.
        """


class ReplayableState(TargetState):
    """A target at one moment that lets files take the place of others."""

    @property
    @abstractmethod
    def replays(self) -> int:
        """The newest replay of this writer that the target holds; 0 for none."""

    @abstractmethod
    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        """Of the files of earlier windows, the ones that the target does not show, or not as they were written.

        Raises:
            StorageError: The target cannot be read.
            DagflowError: It lets no files be replaced.
        """

    @abstractmethod
    def replace(self, replay: DecidedReplay) -> None:
        """Let files take the place of others, and set `replays` to the number: both in one transaction, or neither.

        Guarantee, which the author gives: the transaction fails where the target has changed in any way since this
        state was read, and leaves the marker as it is.

        Args:
            replay: The files; none of those that go is missing.

        Raises:
            StorageError: As for commit().
            DagflowError: It would fail for ever.
        """


class Target(ABC):
    """A store that shows what windows made by transactions of its own; lives in the driver.

    The driver commits a window between its intent and its done in six steps: read the state; refuse a target that is
    ahead of the journal; put the files of the windows above the marker in their places; commit them through this very
    state; read the state again, and begin anew where its marker is not the window's; note the window as done.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call it, such as "table out/orders"."""

    @abstractmethod
    def open(self, writer: str) -> TargetState:
        """Read the state as it is now.

        Args:
            writer: Whose marker is asked for: a name that no other checkpoint and no other operator has.

        Raises:
            StorageError: The target cannot be reached; the driver tries it some more times.
            DagflowError: It cannot be used.
        """

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        """Called when the tasks of a window are done, and again when it ran again: what all its files must be like.

        Args:
            waiting: Files of earlier windows that no transaction has shown yet; they cannot be changed.
            files: The files of the window, in the same order each time that it runs.

        Returns:
            The decision, the same one for the same target and the same files; None where nothing is to be decided.
        """
        return None

    def check(self, files: Sequence[PendingFile]) -> None:  # noqa: B027  # optional
        """Called before a window's intent is written: refuse files that no transaction would take.

        Raises:
            DagflowError: Why the window must not be committed; nothing of it is visible anywhere.
        """

    @property
    def why_not_replayed(self) -> str:
        """Why what windows have added cannot be replaced; "" where open() gives a ReplayableState."""
        return "what a window has added to it cannot be taken out"

    @property
    def why_no_late_records(self) -> str:
        """Why a record cannot be added behind those of later input, as refused ones come back; "" where it can."""
        return ""

    def rows(self) -> pa.Table | None:
        """Called by tests of an app: all records that the target shows now, in any order.

        Returns:
            The records; None where this target cannot give them.

        Raises:
            DagflowError: It cannot be read.
        """
        return None

    def sync(self) -> None:  # noqa: B027  # most targets are durable by themselves
        """Called after a window was added where the app says durability: power: make it survive a power loss.

        Raises:
            StorageError: It may not.
        """


class TransactionalSink(Capability):
    """Declares a partitioned operator whose files a transaction makes visible, and not their names.

    It closes each file with FileFacts that name it, under a name that no other attempt at the window gives. Until the
    window's intent is written the files are pending as all others are, so that nothing but the transaction is left to
    do after a crash.
    """

    @abstractmethod
    def transaction_target(self, storage: StorageContext) -> Target | None:
        """Called in the driver, before the first window and before anything that was left is finished.

        Args:
            storage: Reaches the stores of the app.

        Returns:
            The target; None where the operator, as it is set, makes files that their names make visible. Their
            FileFacts name no operator.

        Raises:
            DagflowError: The target cannot be used.
        """

    def decide_files(self, files: Sequence[PendingFile]) -> TargetDecision | None:
        """Called as Target.decide is, where there is no target.

        Args:
            files: As for check_files.
        """
        return None

    def check_files(self, files: Sequence[PendingFile]) -> None:  # a target has a check of its own
        """Called before a window's intent is written, where there is no target: refuse files of the window.

        Args:
            files: All files of the window that their names make visible, also those of other operators.

        Raises:
            DagflowError: Why the window must not be committed; nothing of it is visible anywhere.
        """


def targets_of(operators: Mapping[str, Operator], storage: StorageContext) -> dict[str, Target]:
    """The targets of an app, by the operator that writes to each.

    Raises:
        DagflowError: One cannot be used.
    """
    sinks = ((name, each) for name, each in operators.items() if isinstance(each, TransactionalSink))
    targets = ((name, sink.transaction_target(storage)) for name, sink in sinks)
    return {name: target for name, target in targets if target is not None}
