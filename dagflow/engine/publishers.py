"""Publishes the files of windows: by moving them to their names, or by the transactions of a target."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from dagflow.api.transactions import (
    DecidedReplay,
    DecidedWindow,
    FileTarget,
    ReplayableState,
    Target,
    TargetDecision,
    TargetState,
)
from dagflow.errors import ANOTHER_TABLE, DagflowError, JournalError, ReplacedFilesGoneError, StorageError
from dagflow.execution.failures import located
from dagflow.journal.journal import Journal
from dagflow.journal.state import JournalState
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of, redacted
from dagflow.storage.pending import Durability, PendingFile
from dagflow.storage.publishing import discard_all_rivals, publish_all, publish_instead

logger = logging.getLogger(__name__)

State = TypeVar("State", bound=TargetState)
T = TypeVar("T")

ATTEMPTS = 7
FIRST_PAUSE_S = 0.05
"""Attempts at a transaction, with a pause after each failure that doubles each time: about six seconds in all."""


def writer_of(state: JournalState, operator: str) -> str:
    """The name under which a target keeps the marker of an operator; a new one after each --fresh."""
    return f"dagflow/{state.app_uuid}.{state.generation}/{operator}"


def _digest_of_names(files: Iterable[PendingFile]) -> str:
    """Identifies the decision about a window: its files have names that no other attempt gives."""
    names = "\n".join(sorted(name_of(file.final_url) for file in files))
    return hashlib.sha256(names.encode()).hexdigest()[:16]


def decided_window(window_id: int, files: Sequence[PendingFile]) -> DecidedWindow:
    return DecidedWindow(window_id, _digest_of_names(files), tuple(files))


class Publisher:
    """Publishes files that become visible by their names, as soon as each is moved there.

    Guarantee: publish() may be repeated, by any driver that holds the journal; repeating it changes nothing.

    Args:
        journal: Says which windows are committed, what earlier decisions about a window have published, and whether
            another driver has taken over.
        targets: What decides and checks the files of a window before it is committed, by operator.
    """

    operator = ""
    """The operator whose files it publishes; "" for all files that become visible by their names."""

    def __init__(
        self, journal: Journal, storage: StorageContext, durability: Durability, targets: Mapping[str, FileTarget]
    ) -> None:
        self._journal = journal
        self._storage = storage
        self._durability = durability
        self._targets = targets
        self._first_window = journal.state.next_window_id

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> dict[str, TargetDecision | None]:
        """The decisions about a window's files, by operator, with earlier files that wait; None for no decision."""
        return {name: target.decide(waiting, files) for name, target in self._targets.items()}

    def check(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> None:
        """Refuse files that could not be published; called before their window's intent is written."""
        for target in self._targets.values():
            # Files that it does not take any more are made to fit it when they are merged, and say nothing of these.
            self._check(target, [*waiting, *files] if waiting and self._takes(target, waiting) else files)

    def _takes(self, target: FileTarget, files: Sequence[PendingFile]) -> bool:
        try:
            self._check(target, files)
        except DagflowError:
            return False
        return True

    def _check(self, target: FileTarget, files: Sequence[PendingFile]) -> None:
        self._patiently(target, lambda: target.check(files))

    def _patiently(self, target: FileTarget, ask: Callable[[], T]) -> T:
        """Ask a target again that does not answer."""
        for attempt in range(ATTEMPTS):
            try:
                return ask()
            except StorageError as error:
                logger.info("target is asked again target=%s error=%s", target.name, error)
            time.sleep(FIRST_PAUSE_S * 2.0**attempt)
            self._journal.check_epoch()
        return ask()

    def taken(self, window_id: int) -> list[PendingFile] | None:
        """The files of a repaired window that the target has by an earlier decision; None where it has none."""
        return None

    def publish(self, window_id: int, files: Sequence[PendingFile]) -> str:
        """Publish a window; returns the target's name for its state with it, "" where it has no such name."""
        self._move(window_id, files)
        return ""

    def _move(self, window_id: int, files: Sequence[PendingFile]) -> None:
        """Move files to their final names; may be repeated."""
        if earlier := self._repaired(window_id):
            publish_instead(self._storage, files, earlier, self._journal.check_epoch, durability=self._durability)
        else:
            publish_all(self._storage, files, durability=self._durability)
        if window_id < self._first_window:
            discard_all_rivals(self._storage, files)  # objects that tasks of earlier drivers uploaded under these names

    def _repaired(self, window_id: int) -> list[PendingFile]:
        repaired = self._journal.state.repaired.get(window_id, ())
        return [file for file in repaired if file.target == self.operator]


class TargetPublisher(Publisher):
    """Publishes the files of one operator by transactions of its target.

    Only the target's marker shows what it has: the transaction that adds a window sets it, and it is read before and
    after each attempt. So it does not matter whether the answer to a commit arrives. The number of a replay is the
    marker of a transaction that replaces files.
    """

    def __init__(
        self, operator: str, target: Target, journal: Journal, storage: StorageContext, durability: Durability
    ) -> None:
        super().__init__(journal, storage, durability, {operator: target})
        self.operator = operator
        self.target = target
        self._writer = writer_of(journal.state, operator)

    def state(self) -> TargetState:
        """The target as it is now; tried again where it does not answer."""
        state = self._patiently(self.target, self._open)
        # A target may have a window whose decision was taken back because files of another target were lost.
        newest = max(self._journal.state.last_committed, *self._journal.state.repaired, 0)
        if state.marker > newest:
            raise self._ahead(f"window {state.marker}", f"window {newest}")
        return state

    def _replayable_state(self) -> ReplayableState:
        state, newest = self.state(), self._journal.state.replays
        if not isinstance(state, ReplayableState):
            raise JournalError(
                f"a replay of the output of operator '{self.operator}' is decided, and files of {self.target.name} "
                "cannot be replaced",
                url=redacted(self._journal.url),
                hint="let the app name the table that it named before, until the replay is done",
            )
        if state.replays > newest:
            raise self._ahead(f"replay {state.replays}", f"replay {newest}")
        return state

    def _ahead(self, there: str, here: str) -> JournalError:
        self._journal.check_epoch()  # with two drivers on one checkpoint, the error has to name the other one
        return JournalError(
            f"{self.target.name} has {there} of operator '{self.operator}', and this checkpoint "
            f"ends with {here}: it is an older copy of the one that has written the table",
            url=redacted(self._journal.url),
            hint="continue with the newest checkpoint",
        )

    def _open(self) -> TargetState:
        with located(self.operator, self.target.open):
            return self.target.open(self._writer)

    def require_not_ahead(self) -> str:
        """Compare the marker with the newest committed window; returns what the target has lost, in words, or ""."""
        marker, receipt = self.state().marker, self._journal.state.receipts.get(self.operator)
        # A target other than the receipt's has lost nothing: it has the windows after the last change of targets.
        if receipt is not None and receipt.target in ("", self.target.name) and marker < receipt.window_id:
            lost = (
                f"{self.target.name} has lost windows {marker + 1} to {receipt.window_id} of operator "
                f"'{self.operator}', which this checkpoint has written: it was removed, or an older state of it was "
                f"put back; the run continues after them. To write their rows again, {ANOTHER_TABLE}"
            )
            logger.warning("%s", lost)
            return lost
        return ""

    def taken(self, window_id: int) -> list[PendingFile] | None:
        """Compare the decision that the target has with those that were taken back."""
        earlier = self._repaired(window_id)
        if not earlier:
            return None
        state = self.state()
        decision = state.decision() if state.marker == window_id else None
        if decision is None:
            return None
        # Each repair leaves the files that were decided before it, one set behind the other.
        for end in range(len(earlier), 0, -1):
            for files in (earlier[:end], earlier[-end:]):
                if _digest_of_names(files) == decision:
                    return files
        raise self._foreign(window_id)

    def publish(self, window_id: int, files: Sequence[PendingFile]) -> str:
        window = decided_window(window_id, files)

        def has_window(state: TargetState) -> bool:
            # Where the marker is above the window, a driver of this journal has committed later windows.
            if state.marker == window_id and state.decision() not in (None, window.decision):
                raise self._foreign(window_id)
            return state.marker >= window_id

        def add(state: TargetState) -> None:
            with located(self.operator, state.commit):
                state.commit([window])

        if not files and not has_window(self.state()):
            self._move(window_id, files)
            return ""  # the window adds nothing any more, and a target has no windows without files
        version = self._transact(
            f"window {window_id}",
            self.state,
            has_window,
            # Not before: files of a window that the target has may have been compacted away since.
            lambda: self._move(window_id, files),
            add,
        )
        self.target.finish(files)
        return version

    def has_replay(self, number: int) -> bool:
        return self._replayable_state().replays >= number

    def beside(self, files: Sequence[PendingFile]) -> Mapping[str, Collection[str]]:
        return self._replayable_state().beside(files)

    def require_shown(
        self, files: Sequence[PendingFile], state: ReplayableState | None = None, so: str = "nothing was replaced"
    ) -> None:
        """Refuse to replace files that the target does not show any more."""
        if gone := (state or self._replayable_state()).missing(files):
            raise ReplacedFilesGoneError(
                f"it does not show {len(gone)} of the files any more that would be replaced, such as "
                f"{redacted(gone[0].final_url)}: another program has changed or removed them; {so}",
                url=self.target.name,
                hint=ANOTHER_TABLE,
            )

    def replace(self, replay: DecidedReplay) -> str:
        """Replace what a decided replay replaces, unless the target has the replay; may be repeated like publish().

        Raises:
            ReplacedFilesGoneError: The target does not show the files any more that would be replaced.
        """

        def has_replay(state: ReplayableState) -> bool:
            if state.replays >= replay.number:
                return True
            self.require_shown(replay.removed, state, "it has none of the files that the replay has made")
            return False

        def replace(state: ReplayableState) -> None:
            with located(self.operator, state.replace):
                state.replace(replay)

        version = self._transact(
            f"replay {replay.number}",
            self._replayable_state,
            has_replay,
            lambda: publish_all(self._storage, replay.files, durability=self._durability),
            replace,
            hint="the replay is decided and its files are kept; the next run commits it",
        )
        self.target.finish(replay.files)
        return version

    def _transact(
        self,
        what: str,
        look: Callable[[], State],
        is_done: Callable[[State], bool],
        move: Callable[[], None],
        commit: Callable[[State], None],
        hint: str = "",
    ) -> str:
        """Commit a transaction, as often as it takes until the target has it; return its name for that state."""
        failure: StorageError | None = None
        for attempt in range(ATTEMPTS + 1):
            state = look()
            if is_done(state):
                if self._durability == "power":
                    self.target.sync()
                return state.version
            if attempt == ATTEMPTS:
                break
            if attempt == 0:
                move()
            self._journal.check_epoch()
            try:
                commit(state)
                failure = None
            except StorageError as error:
                logger.info("transaction is looked at again: %s error=%s", what, error)
                failure = error
                time.sleep(FIRST_PAUSE_S * 2.0**attempt)
        raise StorageError(
            f"{what} cannot be committed: {failure.message if failure else 'its marker does not appear'}",
            url=self.target.name,
            hint=hint,
        ) from failure

    def _foreign(self, window_id: int) -> JournalError:
        return JournalError(
            f"{self.target.name} has another window {window_id} of operator '{self.operator}' than this checkpoint "
            "has decided: two copies of one checkpoint were continued",
            url=redacted(self._journal.url),
            hint="continue with the copy that has written the table",
        )
