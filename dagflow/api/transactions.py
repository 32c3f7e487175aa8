"""Targets with transactions of their own, such as tables: the interface for their authors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Any

from dagflow.api.control import Grouper
from dagflow.api.operator import Capability, Operator
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile


@frozen
class DecidedWindow:
    """The addition of a window to a target; the journal has it, so it will be made in any case.

    Attributes:
        decision: Distinguishes this decision about the window from any other one.
        files: The files, under their final names.
    """

    window_id: int
    decision: str
    files: tuple[PendingFile, ...]


@frozen
class DecidedReplay:
    """The replacement of files by others, because windows ran again; the journal has it.

    Attributes:
        number: The checkpoint's replay that it is part of, counted from 1.
        removed: Files that windows have added, and that the target shows.
        added: New files, under their final names.
        window: A window above the marker that is added in the same transaction, which sets the marker to it; None
            where the marker stays.
    """

    number: int
    removed: tuple[PendingFile, ...]
    added: tuple[PendingFile, ...]
    window: DecidedWindow | None = None

    @property
    def files(self) -> tuple[PendingFile, ...]:
        """All files that become visible."""
        return self.added if self.window is None else (*self.added, *self.window.files)


@frozen
class ColumnChange:
    """A change of a target's columns by the files of a window.

    Attributes:
        before: Its type before; "" for a new column.
        after: Its type with the files.
        cause: The position of the first record that required it, as `file:offset`; "" where that is not known.
    """

    column: str
    before: str
    after: str
    cause: str = ""


@frozen
class TargetDecision:
    """The decision of a target about the files of a window, before its intent is written.

    Attributes:
        text: What tasks must know of the target, including what these files add to it; they get it as
            OperatorContext.decided.
        fits: Whether the target takes the files as they are; otherwise the window runs again with the text.
        changes: The changes by the files, in order; the journal keeps them.
        counts: Counts of the operator that only all of the files together show.
        again: What tasks get in place of the text where this window runs again; "" for the text.
    """

    text: str
    fits: bool
    changes: tuple[ColumnChange, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    again: str = ""


class TargetState(ABC):
    """A target at one moment, and the only way to change it from there."""

    @property
    @abstractmethod
    def marker(self) -> int:
        """The newest window of this writer that the target has; 0 for none."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The target's name for this state, such as the number of a table's version; for display."""

    @abstractmethod
    def decision(self) -> str | None:
        """The decision of the newest window that the target has; None where the target no longer has it."""

    @abstractmethod
    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add windows, and set the marker to the last of them: both in one transaction, or neither.

        Guarantee, which the author gives: the transaction fails if the marker of this writer has changed since this
        state was read, by any driver, and no library repeats it by itself. Changes by other writers are harmless, or
        make it fail.

        Args:
            windows: Windows above the marker, in order.

        Raises:
            StorageError: The transaction failed, or its outcome is not known. The driver reads the state again, whose
                marker shows the outcome.
            DagflowError: The transaction would fail each time.
        """


class UnversionedState(TargetState):
    """A target at one moment that has no versions of its own: the newest window of the writer stands for one."""

    def __init__(self, marker: int, decision: str | None) -> None:
        self._marker = marker
        self._decision = decision

    @property
    def marker(self) -> int:
        """The newest window."""
        return self._marker

    @property
    def version(self) -> str:
        """The newest window, in words."""
        return f"window {self._marker}" if self._marker else ""

    def decision(self) -> str | None:
        """The decision about it."""
        return self._decision


class ReplayableState(TargetState):
    """A target at one moment in which files can be replaced by others.

    A StorageError is raised where the target cannot be read, a DagflowError where its files cannot be replaced.
    """

    @property
    @abstractmethod
    def replays(self) -> int:
        """The newest replay of this writer that the target has; 0 for none."""

    @abstractmethod
    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        """The files of earlier windows, among these, whose rows could not leave if all of them were replaced.

        It does not show them, or not as they were written, and does not know what became of their rows either.
        """

    def beside(self, files: Sequence[PendingFile]) -> Mapping[str, Collection[str]]:
        """What has to be replaced with files of earlier windows, because another program has merged them with others.

        Returns:
            By the name of each merged file, also of others, the names of those that the target cannot show again.
        """
        return {}

    @abstractmethod
    def replace(self, replay: DecidedReplay) -> None:
        """Replace files by others, and set `replays` to the number: both in one transaction, or neither.

        Guarantee, which the author gives: the transaction fails if a marker, or a file that is replaced, has changed
        since this state was read, and leaves the marker unchanged, or sets it to the window of the replay.

        Args:
            replay: The files; none of the removed ones is missing.

        Raises:
            StorageError: As for commit().
            DagflowError: The transaction would fail each time.
        """


class FileTarget(ABC):
    """Decides about the files of windows before these are committed; used in the driver.

    Files become visible by their names, as soon as the driver has moved them there, unless the target is a Target. All
    such files of a window are decided and checked, also those of other operators.
    """

    is_on_server: bool = False
    """Whether it changes more than files below the locations that its operator claims; tests of an app replace it."""

    writes_again: bool = False
    """Whether its transactions write all rows once more. Windows are shorter then: the transaction of one is under way
    while tasks load the next."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name in messages, such as "table out/orders"."""

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        """Called when the tasks of a window are done, and again when it ran again: the requirements for all its files.

        Args:
            waiting: Files of earlier windows that no transaction has shown yet; they cannot be changed.
            files: The files of the window, in the same order each time that it runs.

        Returns:
            The decision, the same one for the same target and the same files; None where there is nothing to decide.
        """
        return None

    def check(self, files: Sequence[PendingFile]) -> None:  # noqa: B027  # optional
        """Called before a window's intent is written: refuse files that no transaction would take.

        Raises:
            StorageError: The target does not answer, or refuses; the driver tries again some times.
            DagflowError: The window must not be committed, and the message says why; nothing of it is visible anywhere.
        """


class Target(FileTarget):
    """A store that makes the output of windows visible by its own transactions.

    The driver commits a window between its intent and its done in six steps: read the state; refuse a target that is
    ahead of the journal; move the files of the windows above the marker to their final names; commit them through this
    state; read the state again, and start over if its marker is not the window's; record the window as done.
    """

    @abstractmethod
    def open(self, writer: str) -> TargetState:
        """Read the present state.

        Args:
            writer: The owner of the marker: a name that no other checkpoint and no other operator has.

        Raises:
            StorageError: The target cannot be reached; the driver tries again some times.
            DagflowError: The target cannot be used.
        """

    @property
    def why_not_replayed(self) -> str:
        """Why the files of windows cannot be replaced; "" where open() returns a ReplayableState."""
        return "rows that a window has added to it cannot be taken out"

    @property
    def why_no_late_records(self) -> str:
        """Why a record cannot be added after those of later input, as retried ones are; "" where it can."""
        return ""

    @property
    def keys(self) -> Sequence[str]:
        """The columns by which a new row replaces an earlier one; none where rows are added beside the others."""
        return ()

    def rows(self) -> Any:
        """Called to compare: all records that the target shows now, in any order.

        Returns:
            The records, as a RecordBatchReader, a Table or any other object with Arrow's stream interface; None if this
            target cannot return them.

        Raises:
            DagflowError: The target cannot be read.
        """
        return None

    def finish(self, files: Sequence[PendingFile]) -> None:
        """Called when the target has a window, before that is recorded: remove files that only the transaction needed.

        A window that another driver has added before it died is finished, too; doing it twice does no harm.

        Args:
            files: The files of the window, of which some may be gone.
        """

    def sync(self) -> None:
        """Called after a window was added if the app has durability: power: make it survive a power loss."""


class TransactionalSink(Capability):
    """Declares a partitioned operator whose files become visible by a transaction, not by their names.

    It closes each file with FileFacts that name the operator, under a name that no other attempt at the window uses.
    Until the window's intent is written the files are pending like all others, so that only the transaction is left to
    do after a crash.

    Its windows may hold files back, if merging() gives operators and OperatorContext.may_hold is true. It closes such a
    file with FileFacts whose `held` is set.

    Guarantee: exactly one window takes in a held file, despite any crashes and restarts; the file exists until that
    window is published.
    """

    @abstractmethod
    def transaction_target(self, storage: StorageContext) -> FileTarget | None:
        """Called in the driver, before the first window and before leftovers of earlier runs are finished.

        Returns:
            The target; None if the operator, by its properties, has none. The FileFacts of files that are visible by
            their names, because it is no Target, name no operator.

        Raises:
            DagflowError: The target cannot be used.
        """

    def row_origin(self) -> RowOrigin | None:
        """How the rows of the target can say where they are from; None where they cannot."""
        return None

    def merging(self) -> MergeOperators | None:
        """Called when the app is planned: new operators that merge the held files of windows.

        None if no window shall hold anything back: a run does not start while files wait that windows of an earlier app
        have held back.
        """
        return None


@frozen
class RowOrigin:
    """How rows say where they are from.

    Attributes:
        properties: The properties of the operator with which they do, as values in YAML by name.
        file: The column of the file of their record.
        offset: The column of the record's first byte in the file.
        window: The column of the window that has added them, which need not be there.
    """

    properties: Mapping[str, Any]
    file: str
    offset: str
    window: str


@frozen
class MergeOperators:
    """The operators that dagflow adds to merge what the windows of a TransactionalSink hold back.

    Attributes:
        grouper: Runs in the driver, and emits at its port `jobs` when a group is due.
        merger: Partitioned; takes in these tuples at its port `jobs`, of the same type.
    """

    grouper: Grouper
    merger: Operator


def file_targets_of(operators: Mapping[str, Operator], storage: StorageContext) -> dict[str, FileTarget]:
    """The targets of an app, by the operator that writes to each; see TransactionalSink.transaction_target."""
    sinks = ((name, sink) for name, sink in operators.items() if isinstance(sink, TransactionalSink))
    targets = ((name, sink.transaction_target(storage)) for name, sink in sinks)
    return {name: target for name, target in targets if target is not None}


def targets_of(operators: Mapping[str, Operator], storage: StorageContext) -> dict[str, Target]:
    """The targets of an app that have transactions; as file_targets_of()."""
    targets = file_targets_of(operators, storage)
    return {name: target for name, target in targets.items() if isinstance(target, Target)}
