"""Publishes committed windows, and replaces what replayed windows have published, in all places of an app."""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from dagflow.api.operator import Operator
from dagflow.api.transactions import DecidedReplay, FileTarget, Target, TargetDecision, file_targets_of
from dagflow.engine.publishers import Publisher, TargetPublisher, decided_window
from dagflow.engine.window_repair import repair_command
from dagflow.errors import JournalError, MissingError, ReplacedFilesGoneError, StorageError
from dagflow.journal.events import Event, Repair, ReplayCancelled, WindowReplay
from dagflow.journal.journal import Journal
from dagflow.journal.windows import WindowIntent
from dagflow.storage.context import StorageContext
from dagflow.storage.location import is_local, join, redacted
from dagflow.storage.pending import Durability, PendingFile
from dagflow.storage.publishing import discard_all, find_lost, replace_all
from dagflow.suggestions import command_to_replay

logger = logging.getLogger(__name__)


class Publication:
    """Publishes windows in all targets and locations of an app.

    Guarantee: a window, or a replay, is in a target once or not at all.

    Args:
        locations: Which operator publishes into each location.

    Attributes:
        targets: How messages name the targets, by operator.
        writes_again: Whether a target writes all rows once more.
        lost: What targets have lost of what they had, in words.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        journal: Journal,
        storage: StorageContext,
        durability: Durability,
        locations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._journal = journal
        self._storage = storage
        file_targets = file_targets_of(operators, storage)
        targets = {name: target for name, target in file_targets.items() if isinstance(target, Target)}
        self.targets = {name: target.name for name, target in targets.items()}
        self.writes_again = any(target.writes_again for target in targets.values())
        self._in_targets = {
            name: TargetPublisher(name, target, journal, storage, durability) for name, target in targets.items()
        }
        self.lost: list[str] = []
        others = {name: target for name, target in file_targets.items() if name not in targets}
        by_name = Publisher(journal, storage, durability, others)
        self._publishers: dict[str, Publisher] = {**self._in_targets, "": by_name}
        self._locations = {url: others.get(name) for url, name in locations.items() if name not in targets}

    def require_not_ahead(self) -> None:
        """Refuse to start where a target has more windows than the journal; a taken name is an error later."""
        self.lost += filter(None, (publisher.require_not_ahead() for publisher in self._in_targets.values()))
        self.lost += filter(None, (self._lost_from(url, table) for url, table in self._locations.items()))

    def _lost_from(self, url: str, table: FileTarget | None) -> str:
        """What is said where nothing is left below a location into which files were published by their names.

        Files may be taken away from a directory, which stays where a store has directories; but not from a table.
        """
        if table is None and not is_local(url):
            return ""
        with contextlib.suppress(MissingError):
            if next(iter(self._storage.list_directory(url)), None) is not None or table is None:
                return ""
        inside = join(url, "")
        if not any(published.startswith(inside) for published in self._journal.published_last()):
            return ""
        lost = (
            f"{redacted(url) if table is None else table.name} has lost all files that this checkpoint has published "
            "there: it was removed, or moved; the run continues after them. To write their records again, start over "
            "with --fresh"
        )
        logger.warning("%s", lost)
        return lost

    def decide(
        self, files: Iterable[PendingFile], earlier: Sequence[PendingFile] | None = None
    ) -> dict[str, TargetDecision]:
        """The targets' decisions about the files of a window, by operator.

        Args:
            files: The files, in the same order each time that the window runs.
            earlier: In a replay, the files of other windows that no transaction has shown yet; None in a run, where
                those count that wait to be merged.
        """
        asked = []
        for operator, own in _files_by_operator(files).items():
            if earlier is not None:
                self._publisher(operator).state()  # the decision depends on the columns that the target has now
            asked.append(self._publishers[operator].decide(self._waiting(operator, earlier), own))
        return {name: decision for each in asked for name, decision in each.items() if decision is not None}

    def check(self, files: Iterable[PendingFile], earlier: Sequence[PendingFile] | None = None) -> None:
        """Refuse files of windows that could not be published, before their intent is written."""
        for operator, own in _files_by_operator(files).items():
            self._publishers[operator].check(self._waiting(operator, earlier), own)

    def _waiting(self, operator: str, earlier: Sequence[PendingFile] | None) -> list[PendingFile]:
        if earlier is not None:
            return [file for file in earlier if file.target == operator]
        waiting = self._journal.state.held.waiting.get(operator, ())
        # One file of each schema says all.
        return list({held.file.facts.schema: held.file for held in waiting if held.file.facts is not None}.values())

    def taken(self, window_id: int) -> dict[str, list[PendingFile]]:
        """The files of a repaired window that targets have by an earlier decision, by operator.

        They are decided again, in place of the files that the operator has made since.
        """
        repaired = _files_by_operator(self._journal.state.repaired.get(window_id, ()))
        found = {name: self._publishers[name].taken(window_id) for name in repaired if name in self._publishers}
        taken = {name: own for name, own in found.items() if own is not None}
        for name in taken:
            logger.info("target has the repaired window operator=%s window=%d", name, window_id)
        return taken

    def publish(self, window_id: int, files: Iterable[PendingFile]) -> dict[str, str]:
        """Publish a committed window; may be repeated, and then continues where it has failed."""
        receipts = {}
        by_operator = _files_by_operator(files)
        # A repaired window may make no files any more for a target that has some of an earlier decision.
        earlier = _files_by_operator(self._journal.state.repaired.get(window_id, ()))
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

    def has_replay(self, operator: str, number: int) -> bool:
        return operator in self._in_targets and self._in_targets[operator].has_replay(number)

    def require_shown(self, files: Iterable[PendingFile]) -> None:
        """Refuse to replace files that targets do not show any more, or whose targets are not the app's any more."""
        for operator, own in _files_by_operator(files).items():
            self._publisher(operator).require_shown(own)

    def beside(self, files: Iterable[PendingFile]) -> dict[str, Collection[str]]:
        """The names of the files that have to be replaced with published ones, by the names of these."""
        asked = (self._publisher(name).beside(own) for name, own in _files_by_operator(files).items() if name)
        return {name: others for found in asked for name, others in found.items()}

    def replace(self, decided: Iterable[WindowReplay], correction: WindowIntent | None = None) -> dict[str, str]:
        """Replace what a decided replay replaces in targets, those of all windows in one transaction of each target.

        May be repeated, and then continues where it has failed.

        Args:
            correction: A window that is added in the same transactions.

        Returns:
            Each target's name for its state with the replay, by operator.

        Raises:
            ReplacedFilesGoneError: A target does not show files any more that would be replaced, and no target has a
                part of the replay.
        """
        receipts: dict[str, str] = {}
        for operator, replay in sorted(_replays(decided, correction).items()):
            try:
                receipts[operator] = self._publisher(operator).replace(replay)
            except ReplacedFilesGoneError as error:
                if not receipts:
                    raise
                raise StorageError(
                    f"replay {replay.number} is in the target of operator '{min(receipts)}', and {error.url}: "
                    f"{error.message}",
                    url=error.url,
                    hint="restore the table as it was before the other program changed it; the next run continues",
                ) from error
        return receipts

    def _publisher(self, operator: str) -> TargetPublisher:
        if operator not in self._in_targets:
            raise JournalError(
                f"windows have added files to the target of operator '{operator}', and the app has no such operator "
                "that writes to one",
                url=redacted(self._journal.url),
                hint=f"give the app operator '{operator}' again, as it was, for the replay",
            )
        return self._in_targets[operator]


def finish_replay(
    journal: Journal, storage: StorageContext, operators: Mapping[str, Operator], again: Collection[int] = ()
) -> None:
    """Replace the files of every window whose replay is decided and not done.

    May be repeated: if a process dies in between, the next call continues. All new files are checked before the first
    published file is replaced. Targets come before files that become visible by their names.

    Args:
        again: Windows that are about to be replayed. Lost files are no error where all decided windows are among them:
            the files will be made again.

    Raises:
        ReplacedFilesGoneError: A target does not show the old files any more; the decision is taken back.
        StorageError: A new file is lost, or the store refused.
    """
    decided = dict(sorted(journal.state.reprocessing.items()))
    if not decided:
        return
    # Regardless of the app's durability: a record of the journal says that these files are complete.
    publication = Publication(operators, journal, storage, "power")
    correction = journal.state.intents.get(max(window.correction for window in decided.values()))
    number = max(window.number for window in decided.values())
    files = [(file, window.number) for window in decided.values() for file in window.made]
    # Of targets that lose nothing, those of the correction are published later, as in any other window.
    touched = {"", *(file.target for each in decided.values() for file in [*each.replaced, *each.made])}
    files += [(file, number) for file in (correction.files if correction else ()) if file.target in touched]
    done = {
        each
        for each in {(file.target, number) for file, number in files if file.target}
        if publication.has_replay(*each)
    }
    if lost := find_lost(storage, [file for file, number in files if (file.target, number) not in done]):
        if decided.keys() <= set(again):
            return
        raise StorageError(
            f"{len(lost)} of the {len(files)} files that a replay has made are neither pending nor in their places",
            url=redacted(lost[0].final_url),
            hint="another program removed them; make them again: "
            + command_to_replay(redacted(journal.url), decided, is_local=journal.state.is_local),
        )
    try:
        receipts = publication.replace(decided.values(), correction)
    except ReplacedFilesGoneError as error:
        _cancel(journal, storage, decided, correction)
        if correction is None:
            raise
        raise ReplacedFilesGoneError(error.message, url=error.url, hint=_RUN_AGAIN) from error
    removed = {url for window in decided.values() for url in window.removed}
    replace_all(storage, [file for file, _ in files if not file.target], removed, journal.check_epoch)
    for window_id, window in decided.items():
        targets = {file.target for file in [*window.replaced, *window.made]}
        journal.end_replay(window_id, {name: receipts[name] for name in sorted(targets & receipts.keys())})


_RUN_AGAIN = "run it again: the correction is made anew for the table as it is now"


def _cancel(
    journal: Journal, storage: StorageContext, decided: Mapping[int, WindowReplay], correction: WindowIntent | None
) -> None:
    """Take back a decided replay before any of its files is visible."""
    published = {window_id: journal.window(window_id).intent for window_id in decided}
    events: list[Event] = [
        ReplayCancelled(window_id, intent.counters, intent.accounting)
        for window_id, intent in published.items()
        if intent
    ]
    events += [] if correction is None else [Repair(correction.window_id)]
    journal.append(*events)
    discard_all(storage, [file for window in decided.values() for file in window.made])


def _replays(decided: Iterable[WindowReplay], correction: WindowIntent | None) -> dict[str, DecidedReplay]:
    replays = list(decided)
    removed = _files_by_operator(file for each in replays for file in each.replaced)
    added = _files_by_operator(file for each in replays for file in each.made)
    number = max((each.number for each in replays), default=0)
    new = {} if correction is None else _files_by_operator(correction.files)
    window_id = 0 if correction is None else correction.window_id
    return {
        name: DecidedReplay(
            number,
            tuple(removed.get(name, ())),
            tuple(added.get(name, ())),
            decided_window(window_id, new[name]) if name in new else None,
        )
        for name in {*removed, *added} - {""}
    }


def _files_by_operator(files: Iterable[PendingFile]) -> dict[str, list[PendingFile]]:
    """Files by the operator whose target they are for; "" for files that become visible by their names."""
    by_operator: dict[str, list[PendingFile]] = defaultdict(list)
    for file in files:
        by_operator[file.target].append(file)
    return dict(by_operator)
