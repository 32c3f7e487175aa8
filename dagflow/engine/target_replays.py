"""Replaces the files of windows in transactional targets by those that the windows made when they ran again."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from dagflow.api.operator import Operator
from dagflow.api.transactions import DecidedReplay, TargetDecision, targets_of
from dagflow.engine.target_access import ATTEMPTS, TargetAccess
from dagflow.errors import ANOTHER_TABLE, JournalError, ReplacedFilesGoneError, StorageError
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import Journal
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from dagflow.storage.publishing import publish_all

logger = logging.getLogger(__name__)


class TargetReplays:
    """Replaces files of targets, those of all windows of a replay in one transaction of each target.

    Guarantee: a replay is in a target once or not at all; the replay's number, which the transaction sets, shows it.

    Args:
        operators: The operators of the app.
        journal: Shows which replays are decided, and whether another driver has taken over.
        storage: Reaches the stores.

    Raises:
        DagflowError: A target cannot be used.
    """

    def __init__(self, operators: Mapping[str, Operator], journal: Journal, storage: StorageContext) -> None:
        self._url = redacted(journal.url)
        self._journal = journal
        self._storage = storage
        targets = targets_of(operators, storage)
        self._accesses = {name: TargetAccess(name, target, journal) for name, target in targets.items()}

    def has(self, operator: str, number: int) -> bool:
        """Whether a replay is in the target of an operator."""
        return operator in self._accesses and self._accesses[operator].replayable_state().replays >= number

    def require_shown(self, files: Iterable[PendingFile]) -> None:
        """Refuse to replace files that targets do not show any more.

        Raises:
            JournalError: A target does not belong to the app any more.
            ReplacedFilesGoneError: Some files are gone.
        """
        for operator, own in _by_operator(files).items():
            access = self._access(operator)
            if gone := access.replayable_state().missing(own):
                raise _gone(access, gone, "nothing was replaced")

    def decide(
        self, again: Collection[int], earlier: Sequence[PendingFile], files: Sequence[PendingFile]
    ) -> dict[str, TargetDecision]:
        """The targets' decisions about the files of a window, by operator.

        Args:
            again: The windows of the replay: what they have held back is replaced.
            earlier: Files that windows of the same replay have made before.
            files: All files of the window.
        """
        before = _by_operator([*self._journal.state.held.files(again), *earlier])
        decisions = {}
        for operator, own in _by_operator(files).items():
            access = self._access(operator)
            access.state()  # the decision depends on the columns that the target has now
            decision = access.target.decide(before.get(operator, []), own)
            if decision is not None:
                decisions[operator] = decision
        return decisions

    def check(self, files: Iterable[PendingFile]) -> None:
        """Refuse files of windows that no transaction would take.

        Raises:
            DagflowError: A target would not take the files; the message says why.
        """
        for operator, own in _by_operator(files).items():
            self._access(operator).target.check(own)

    def finish(self, decided: Iterable[WindowReplay]) -> dict[str, str]:
        """Replace what a decided replay replaces; may be repeated, by any driver that holds the journal.

        Returns:
            Each target's name for its state with the replay, by operator.

        Raises:
            ReplacedFilesGoneError: A target does not show files any more that would be replaced, and no target has a
                part of the replay.
            DagflowError: The replay is not in every target, or not known to be; a later call continues.
        """
        receipts: dict[str, str] = {}
        for operator, replay in sorted(_replays(decided).items()):
            access = self._access(operator)
            try:
                receipts[operator] = self._replace(access, replay)
            except ReplacedFilesGoneError as error:
                if not receipts:
                    raise
                raise StorageError(
                    f"replay {replay.number} is in the target of operator '{min(receipts)}', and {error.message}",
                    url=error.url,
                    hint="restore the table as it was before the other program changed it; the next run continues",
                ) from error
        return receipts

    def _replace(self, access: TargetAccess, replay: DecidedReplay) -> str:
        failure: StorageError | None = None
        for attempt in range(ATTEMPTS + 1):
            state = access.replayable_state()
            if state.replays >= replay.number:
                access.target.sync()
                return state.version
            if gone := state.missing(replay.removed):
                raise _gone(access, gone, "it has none of the files that the replay has made")
            if attempt == ATTEMPTS:
                break
            if attempt == 0:
                publish_all(self._storage, replay.added, durability="power")
            self._journal.check_epoch()
            try:
                state.replace(replay)
            except StorageError as error:
                logger.info("replay is looked at again number=%d error=%s", replay.number, error)
                failure = error
                access.pause(attempt)
        raise StorageError(
            f"replay {replay.number} cannot be committed: {failure.message if failure else 'its number is not there'}",
            url=access.target.name,
            hint="the replay is decided and its files are kept; the next run commits it",
        ) from failure

    def _access(self, operator: str) -> TargetAccess:
        """The target of an operator.

        Raises:
            JournalError: The app has no such operator.
        """
        if operator not in self._accesses:
            raise JournalError(
                f"windows have added files to the target of operator '{operator}', and the app has no such operator "
                "that writes to one",
                url=self._url,
                hint=f"give the app operator '{operator}' again, as it was, for the replay",
            )
        return self._accesses[operator]


def _gone(access: TargetAccess, gone: Sequence[PendingFile], so: str) -> ReplacedFilesGoneError:
    return ReplacedFilesGoneError(
        f"{access.target.name} does not show {len(gone)} of the files any more that would be replaced, such as "
        f"{redacted(gone[0].final_url)}: another program has compacted, changed or removed them; {so}",
        url=access.target.name,
        hint=ANOTHER_TABLE,
    )


def _replays(decided: Iterable[WindowReplay]) -> dict[str, DecidedReplay]:
    """The replacements in each target, by operator."""
    replays = list(decided)
    removed = _by_operator(file for each in replays for file in each.replaced)
    added = _by_operator(file for each in replays for file in each.made)
    number = max((each.number for each in replays), default=0)
    return {
        name: DecidedReplay(number, tuple(removed.get(name, ())), tuple(added.get(name, ())))
        for name in {*removed, *added}
    }


def _by_operator(files: Iterable[PendingFile]) -> dict[str, list[PendingFile]]:
    by_operator: dict[str, list[PendingFile]] = defaultdict(list)
    for file in files:
        if file.target:
            by_operator[file.target].append(file)
    return dict(by_operator)
