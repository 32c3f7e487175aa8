"""Opens transactional targets: tries again where one does not answer, and refuses one that is ahead of the journal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from dagflow.api.transactions import ReplayableState, Target, TargetDecision, TargetState
from dagflow.errors import ANOTHER_TABLE, JournalError, StorageError
from dagflow.execution.failures import located
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import Journal
from dagflow.journal.state import JournalState
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.publishing import discard_all

logger = logging.getLogger(__name__)

Attempt = TypeVar("Attempt")

ATTEMPTS = 7
FIRST_PAUSE_S = 0.05
"""Attempts at a transaction, with a pause after each failure that doubles each time: about six seconds in all."""


def writer_of(state: JournalState, operator: str) -> str:
    """The name under which a target keeps the marker of an operator; a new one after each --fresh."""
    return f"dagflow/{state.app_uuid}.{state.generation}/{operator}"


class TargetAccess:
    """The target of one operator.

    Args:
        operator: The operator.
        target: Its target.
        journal: Shows which windows are committed, and whether another driver has taken over.
        wait: Waits for some seconds.
    """

    def __init__(
        self, operator: str, target: Target, journal: Journal, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.operator = operator
        self.target = target
        self._journal = journal
        self._writer = writer_of(journal.state, operator)
        self._wait = wait

    def state(self) -> TargetState:
        """The target as it is now.

        Raises:
            FencedError: Another driver has taken over.
            JournalError: The target is ahead of the journal.
            StorageError: The target cannot be reached.
        """
        state = self._opened()
        # A target may have a window whose decision was taken back because files of another target were lost.
        newest = max(self._journal.state.last_committed, *self._journal.state.repaired, 0)
        if state.marker > newest:
            raise self._ahead(f"window {state.marker}", f"window {newest}")
        return state

    def replayable_state(self) -> ReplayableState:
        """The same before files are replaced; a target may have to read more for that.

        Raises:
            JournalError: Files of the target cannot be replaced, or it is ahead of the journal.
            DagflowError: As for state().
        """
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

    def _opened(self) -> TargetState:
        for attempt in range(ATTEMPTS):
            try:
                return self._open()
            except StorageError as error:
                logger.info("target is opened again target=%s error=%s", self.target.name, error)
            self.pause(attempt)
            self._journal.check_epoch()
        return self._open()

    def _open(self) -> TargetState:
        with located(self.operator, self.target.open):
            return self.target.open(self._writer)

    def pause(self, attempt: int) -> None:
        """Wait after an attempt that failed, counted from 0."""
        self._wait(FIRST_PAUSE_S * 2.0**attempt)


def why_not_in_targets(state: JournalState, targets: Mapping[str, Target], first: int) -> JournalError | None:
    """Why windows cannot run again: some of their output is in other targets than the app's, and is not replaced there.

    Args:
        state: The state of the journal.
        targets: The targets of the app, by operator.
        first: The first of the windows, which reach to the newest one.
    """
    for name, receipt in state.receipts.items():
        is_same = name in targets and receipt.target in ("", targets[name].name)
        newest = receipt.elsewhere if is_same else receipt.window_id
        if newest >= first:
            place = "another table" if is_same or not receipt.target else receipt.target
            return JournalError(
                f"the output of operator '{name}' up to window {newest} is in {place}, and stays there",
                url="journal",
                hint=ANOTHER_TABLE,
            )
    return None


class TargetDecisions:
    """The decisions of transactional targets about the columns of files; tasks of later windows write accordingly.

    Args:
        storage: Reaches the files.

    Attributes:
        texts: The decisions as tasks of later windows get them, by operator.
    """

    def __init__(self, storage: StorageContext) -> None:
        self._storage = storage
        self.texts: dict[str, str] = {}
        self._again: dict[str, str] = {}

    def take(self) -> dict[str, str]:
        """What the tasks of the attempt get that begins now, by operator."""
        again, self._again = self._again, {}
        return {**self.texts, **again}

    def rerun_to_fit(
        self,
        window_id: int,
        made_by: Mapping[str, str],
        results: Sequence[TaskResult],
        decisions: Mapping[str, TargetDecision],
        run_again: Callable[[], Attempt],
    ) -> Attempt | None:
        """Run a window again where a target does not take its files as they are; later windows get the decision.

        Args:
            window_id: The window.
            made_by: The decisions by which its files were made, by operator.
            results: The results of its tasks; their files are dropped where it runs again.
            decisions: The targets' decisions about the files, by operator.
            run_again: Runs the window.

        Returns:
            The result of run_again; None where the files fit, or were made by the same decision.
        """
        self.texts.update((operator, each.text) for operator, each in decisions.items())
        if all(each.fits or made_by.get(operator) == each.text for operator, each in decisions.items()):
            return None
        logger.info("window runs again to fit its targets window=%d", window_id)
        discard_all(self._storage, [file for result in results for file in result.files])
        self._again = {operator: each.again for operator, each in decisions.items() if each.again}
        return run_again()
