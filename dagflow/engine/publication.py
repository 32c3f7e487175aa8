"""Publishes committed windows: files by their names, and files of a transactional target by its transaction."""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dagflow.api.operator import Operator
from dagflow.api.transactions import (
    DecidedWindow,
    Target,
    TargetDecision,
    TargetState,
    TransactionalSink,
    targets_of,
)
from dagflow.engine.target_access import ATTEMPTS, TargetAccess, writer_of
from dagflow.engine.window_repair import repair_command
from dagflow.errors import ANOTHER_TABLE, DagflowError, JournalError, StorageError
from dagflow.execution.failures import located
from dagflow.journal.journal import Journal
from dagflow.journal.state import JournalState
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of, redacted
from dagflow.storage.pending import Durability, PendingFile
from dagflow.storage.publishing import discard_all_rivals, publish_all, publish_instead

logger = logging.getLogger(__name__)


class FileMover:
    """Moves the files of committed windows to their final names.

    Args:
        journal: Holds what earlier decisions about a window have published.
        storage: Reaches the stores.
        durability: Which failures the files survive.
    """

    def __init__(self, journal: Journal, storage: StorageContext, durability: Durability) -> None:
        self._journal = journal
        self._storage = storage
        self._durability = durability
        self._first_window = journal.state.next_window_id

    def put(self, window_id: int, files: Sequence[PendingFile], operator: str) -> None:
        """Move files to their final names; may be repeated.

        Args:
            window_id: Their window.
            files: All files of the window for one target, or all that become visible by their names.
            operator: The operator of the target; "" for files that become visible by their names.

        Raises:
            StorageError: A file is lost, or its final name is taken, or a store refused.
            FencedError: Another driver has taken over.
        """
        repaired = self._journal.state.repaired.get(window_id, [])
        if earlier := [file for file in repaired if file.target == operator]:
            publish_instead(self._storage, files, earlier, self._journal.check_epoch, durability=self._durability)
        else:
            publish_all(self._storage, files, durability=self._durability)
        if window_id < self._first_window:
            discard_all_rivals(self._storage, files)  # objects that tasks of earlier drivers uploaded under these names


class Publisher(ABC):
    """Makes the output of committed windows visible in one target.

    Guarantee: publish() may be repeated, by any driver that holds the journal; repeating it changes nothing.
    """

    @abstractmethod
    def require_not_ahead(self) -> None:
        """Refuse a target that has more windows than the journal.

        Raises:
            DagflowError: The target has more windows than the journal: this checkpoint is an older copy.
        """

    def decide(self, files: Sequence[PendingFile]) -> Mapping[str, TargetDecision | None]:
        """The target's decisions about a window's files, by operator; None where there is nothing to decide."""
        return {}

    @abstractmethod
    def check(self, files: Sequence[PendingFile]) -> None:
        """Refuse files that could not be published; called before their window's intent is written.

        Raises:
            DagflowError: The window must not be committed; the message says why.
        """

    def taken(self, window_id: int) -> list[PendingFile] | None:
        """The files of a repaired window that the target has by an earlier decision; None where it has none.

        Raises:
            DagflowError: The target cannot be reached, or has the window of another checkpoint.
        """
        return None

    @abstractmethod
    def publish(self, window_id: int, files: Sequence[PendingFile]) -> str:
        """Publish a window.

        Returns:
            The target's name for its state with the window; "" where it has no such name.

        Raises:
            DagflowError: The window is not published, or not known to be; a later call continues.
        """


class FilePublisher(Publisher):
    """Publishes files that become visible by their names, as soon as each is moved there.

    Args:
        mover: Moves files to their final names.
        sinks: Operators that check the files of a window before it is committed, by name.
    """

    def __init__(self, mover: FileMover, sinks: Mapping[str, TransactionalSink] | None = None) -> None:
        self._mover = mover
        self._sinks = sinks or {}

    def require_not_ahead(self) -> None:
        """Do nothing: a name that another file has taken is an error when the window is published."""

    def decide(self, files: Sequence[PendingFile]) -> Mapping[str, TargetDecision | None]:
        """Ask the operators."""
        return {name: sink.decide_files(files) for name, sink in self._sinks.items()}

    def check(self, files: Sequence[PendingFile]) -> None:
        """Ask the operators that check them; any other file can be published."""
        for sink in self._sinks.values():
            sink.check_files(files)

    def publish(self, window_id: int, files: Sequence[PendingFile]) -> str:
        """Move the files to their final names."""
        self._mover.put(window_id, files, "")
        return ""


class TransactionPublisher(Publisher):
    """Publishes the files of one operator by transactions of its target.

    Only the target's marker shows what it has: it is set in the transaction that adds a window, and read before and
    after each attempt. So it does not matter whether the answer to a commit arrives.

    Args:
        access: Opens the target.
        mover: Moves files to their final names.
        journal: Says which windows are committed, and whether another driver has taken over.
        durability: Which failures windows survive.
    """

    def __init__(self, access: TargetAccess, mover: FileMover, journal: Journal, durability: Durability) -> None:
        self._access = access
        self._operator = access.operator
        self._target = access.target
        self._mover = mover
        self._journal = journal
        self._durability = durability

    def require_not_ahead(self) -> None:
        """Read the marker, compare it with the newest committed window, and warn of a target that has lost windows."""
        marker, receipt = self._access.state().marker, self._journal.state.receipts.get(self._operator)
        # A target other than the receipt's has lost nothing: it has the windows after the last change of targets.
        if receipt is not None and receipt.target in ("", self._target.name) and marker < receipt.window_id:
            logger.warning(
                "%s has lost windows %d to %d of operator '%s', which this checkpoint has written: it was removed, or "
                "an older state of it was put back; the run continues after them. To write their rows again, "
                f"{ANOTHER_TABLE}",
                self._target.name,
                marker + 1,
                receipt.window_id,
                self._operator,
            )

    def decide(self, files: Sequence[PendingFile]) -> Mapping[str, TargetDecision | None]:
        """Ask the target."""
        return {self._operator: self._target.decide(list(self._waiting().values()), files)}

    def check(self, files: Sequence[PendingFile]) -> None:
        """Ask the target, also whether the files are compatible with files that wait to be merged."""
        waiting = list(self._waiting().values())
        # Files that it does not take any more are made to fit it when they are merged, and say nothing of these.
        self._target.check([*waiting, *files] if self._takes(waiting) else files)

    def _takes(self, files: Sequence[PendingFile]) -> bool:
        try:
            self._target.check(files)
        except DagflowError:
            return False
        return True

    def taken(self, window_id: int) -> list[PendingFile] | None:
        """Compare the decision that the target has with those that were taken back."""
        earlier = [file for file in self._journal.state.repaired.get(window_id, ()) if file.target == self._operator]
        if not earlier:
            return None
        state = self._access.state()
        decision = state.decision() if state.marker == window_id else None
        if decision is None:
            return None
        # Each repair leaves the files that were decided before it, one set behind the other.
        for end in range(len(earlier), 0, -1):
            for files in (earlier[:end], earlier[-end:]):
                if digest_of_names(files) == decision:
                    return files
        raise self._foreign(window_id)

    def _waiting(self) -> dict[str, PendingFile]:
        """For each schema, one file that waits to be merged."""
        waiting = self._journal.state.held.waiting.get(self._operator, ())
        return {held.file.facts.schema: held.file for held in waiting if held.file.facts is not None}

    def publish(self, window_id: int, files: Sequence[PendingFile]) -> str:
        """Commit the window, unless the target has it."""
        window = DecidedWindow(window_id, digest_of_names(files), tuple(files))
        failure: StorageError | None = None
        for attempt in range(ATTEMPTS + 1):
            state = self._access.state()
            if state.marker >= window_id:
                self._require_own(window, state)
                if self._durability == "power":
                    self._target.sync()
                return state.version
            if attempt == ATTEMPTS:
                break
            if attempt == 0:
                # Not before: files of a window that the target has may have been compacted away since.
                self._mover.put(window_id, files, self._operator)
            if not files:
                return ""  # the window adds nothing any more, and a target has no windows without files
            self._journal.check_epoch()
            failure = self._failure_of(state, window)
            if failure is not None:
                self._access.pause(attempt)
        raise StorageError(
            f"window {window_id} cannot be committed: {failure.message if failure else 'its marker does not appear'}",
            url=self._target.name,
        ) from failure

    def _failure_of(self, state: TargetState, window: DecidedWindow) -> StorageError | None:
        """Commit a window; None where the commit seems to have succeeded."""
        try:
            with located(self._operator, state.commit):
                state.commit([window])
            return None
        except StorageError as error:
            logger.info("transaction is looked at again window=%d error=%s", window.window_id, error)
            return error

    def _require_own(self, window: DecidedWindow, state: TargetState) -> None:
        """Refuse a target that has the window by another decision.

        Raises:
            JournalError: The target has the window by another decision.
        """
        # Where the marker is above the window, a driver of this journal has committed later windows.
        if state.marker == window.window_id and state.decision() not in (None, window.decision):
            raise self._foreign(window.window_id)

    def _foreign(self, window_id: int) -> JournalError:
        return JournalError(
            f"{self._target.name} has another window {window_id} of operator '{self._operator}' than this checkpoint "
            "has decided: two copies of one checkpoint were continued",
            url=redacted(self._journal.url),
            hint="continue with the copy that has written the table",
        )


class Publication:
    """Publishes windows in all targets and locations of an app.

    Args:
        operators: The operators of the app.
        journal: Holds the decisions.
        storage: Reaches the stores.
        durability: Which failures files survive.

    Attributes:
        targets: How messages name the targets, by operator.

    Raises:
        DagflowError: A target cannot be used.
    """

    def __init__(
        self, operators: Mapping[str, Operator], journal: Journal, storage: StorageContext, durability: Durability
    ) -> None:
        self._journal = journal
        mover = FileMover(journal, storage, durability)
        self._publishers: dict[str, Publisher] = {}
        targets = targets_of(operators, storage)
        self.targets = {name: target.name for name, target in targets.items()}
        for name, target in targets.items():
            access = TargetAccess(name, target, journal)
            self._publishers[name] = TransactionPublisher(access, mover, journal, durability)
        sinks = ((name, each) for name, each in operators.items() if isinstance(each, TransactionalSink))
        self._publishers[""] = FilePublisher(mover, {name: sink for name, sink in sinks if name not in targets})

    def require_not_ahead(self) -> None:
        """Refuse to start where a target has more windows than the journal.

        Raises:
            DagflowError: A target has more windows than the journal, or cannot be reached.
        """
        for publisher in self._publishers.values():
            publisher.require_not_ahead()

    def decide(self, files: Iterable[PendingFile]) -> dict[str, TargetDecision]:
        """The targets' decisions about the files of a window, by operator."""
        asked = [self._publishers[operator].decide(own) for operator, own in _by_operator(files).items()]
        return {name: decision for each in asked for name, decision in each.items() if decision is not None}

    def taken(self, window_id: int) -> dict[str, list[PendingFile]]:
        """The files of a repaired window that targets have by an earlier decision, by operator.

        They are decided again, in place of the files that the operator has made since.

        Raises:
            DagflowError: A target cannot be reached, or has the window of another checkpoint.
        """
        repaired = _by_operator(self._journal.state.repaired.get(window_id, ()))
        found = {name: self._publishers[name].taken(window_id) for name in repaired if name in self._publishers}
        taken = {name: own for name, own in found.items() if own is not None}
        for name in taken:
            logger.info("target has the repaired window operator=%s window=%d", name, window_id)
        return taken

    def check(self, files: Iterable[PendingFile]) -> None:
        """Refuse a window that could not be published, before its intent is written.

        Raises:
            DagflowError: The window must not be committed; the message says why.
        """
        for operator, own in _by_operator(files).items():
            self._publishers[operator].check(own)

    def publish(self, window_id: int, files: Iterable[PendingFile]) -> dict[str, str]:
        """Publish a committed window; may be repeated.

        Returns:
            Each target's name for its state with the window, by operator.

        Raises:
            DagflowError: The window is not published everywhere; a later call continues.
        """
        receipts = {}
        by_operator = _by_operator(files)
        # A repaired window may make no files any more for a target that has some of an earlier decision.
        earlier = _by_operator(self._journal.state.repaired.get(window_id, ()))
        for operator in sorted({*by_operator, *earlier}):
            if operator not in self._publishers:
                raise JournalError(
                    f"window {window_id} is decided and has files for the target of operator '{operator}', and the app "
                    "has no such operator that writes to one",
                    url=redacted(self._journal.url),
                    hint=f"give the app operator '{operator}' again, as it was, until the window is published; or plan "
                    f"the window again: {repair_command(self._journal.url, window_id)}",
                )
            if receipt := self._publishers[operator].publish(window_id, by_operator.get(operator, [])):
                receipts[operator] = receipt
        return receipts


def digest_of_names(files: Iterable[PendingFile]) -> str:
    """Identifies the decision about a window: its files have names that no other attempt gives."""
    names = "\n".join(sorted(name_of(file.final_url) for file in files))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def windows_in_targets(
    operators: Mapping[str, Operator], state: JournalState, storage: StorageContext
) -> Iterator[tuple[Target, int]]:
    """The targets that have windows of the journal, which cannot be removed from them, each with its newest window.

    Raises:
        DagflowError: A target cannot be reached.
    """
    for name, target in targets_of(operators, storage).items():
        if marker := target.open(writer_of(state, name)).marker:
            yield target, marker


def _by_operator(files: Iterable[PendingFile]) -> dict[str, list[PendingFile]]:
    by_operator: dict[str, list[PendingFile]] = defaultdict(list)
    for file in files:
        by_operator[file.target].append(file)
    return dict(by_operator)
