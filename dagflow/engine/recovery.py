"""Finishes what earlier runs of a checkpoint left: decided replays, and pending files that no window publishes.

The driver handles windows: it publishes those whose commit was decided, and runs planned ones again.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from dagflow.api.operator import Operator
from dagflow.engine.target_replays import TargetReplays
from dagflow.errors import FencedError, JournalError, ReplacedFilesGoneError, StorageError
from dagflow.journal.events import ReplayCancelled, WindowReplay
from dagflow.journal.journal import Journal
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.publishing import discard_all, find_lost, replace_all
from dagflow.suggestions import window_options

logger = logging.getLogger(__name__)


def finish_replay(
    journal: Journal, storage: StorageContext, operators: Mapping[str, Operator], again: Collection[int] = ()
) -> None:
    """Replace the files of every window whose replay is decided and not done.

    May be repeated: if a process dies in between, the next call continues. All new files are checked before the first
    published file is replaced. Targets come before files that become visible by their names.

    Args:
        journal: Open, with its epoch claimed.
        storage: Reaches the stores of the files.
        operators: The operators of the app.
        again: Windows that are about to be replayed. Lost files are no error where all decided windows are among them:
            the files will be made again.

    Raises:
        FencedError: Another driver has taken over.
        ReplacedFilesGoneError: A target does not show the old files any more; the decision is taken back.
        StorageError: A new file is lost, or the store refused.
    """
    decided = dict(sorted(journal.state.reprocessing.items()))
    if not decided:
        return
    replays = TargetReplays(operators, journal, storage)
    files = [(file, window.number) for window in decided.values() for file in window.made]
    done = {each for each in {(file.target, number) for file, number in files if file.target} if replays.has(*each)}
    if lost := find_lost(storage, [file for file, number in files if (file.target, number) not in done]):
        if decided.keys() <= set(again):
            return
        raise StorageError(
            f"{len(lost)} of the {len(files)} files that a replay has made are neither pending nor in their places",
            url=redacted(lost[0].final_url),
            hint=f"another program removed them; make them again: dagflow replay {shlex.quote(redacted(journal.url))} "
            f"{window_options(decided)}",
        )
    try:
        receipts = replays.finish(decided.values())
    except ReplacedFilesGoneError:
        _cancel(journal, storage, decided)
        raise
    removed = {url for window in decided.values() for url in window.removed}
    replace_all(storage, [file for file, _ in files if not file.target], removed, journal.check_epoch)
    for window_id, window in decided.items():
        targets = {file.target for file in [*window.replaced, *window.made]}
        journal.end_replay(window_id, {name: receipts[name] for name in sorted(targets & receipts.keys())})


def _cancel(journal: Journal, storage: StorageContext, decided: Mapping[int, WindowReplay]) -> None:
    """Take back a decided replay before any of its files is visible."""
    published = {window_id: journal.window(window_id).intent for window_id in decided}
    events = (
        ReplayCancelled(window_id, intent.counters, intent.accounting)
        for window_id, intent in published.items()
        if intent
    )
    journal.append(*events)
    discard_all(storage, [file for window in decided.values() for file in window.made])


@contextlib.contextmanager
def pending_files_swept(roots: Sequence[str], journal: Journal, storage: StorageContext) -> Iterator[None]:
    """Remove, before and after the body, what tasks wrote and no window will publish.

    A failure after the body is only logged: it does not change the result of the run, and the next run tries again. So
    is a failure in a location that the app does not name any more, which may be gone.

    Args:
        roots: Where the app publishes.
        journal: Open, with its epoch claimed; lists where the app published before.
        storage: Reaches the stores.

    Raises:
        StorageError: The store refused, before the body.
        JournalError: This driver does not hold the journal any more, before the body.
    """

    def sweep(locations: Iterable[str], before_epoch: int) -> None:
        keep = {file.pending_url for file in journal.state.unpublished_files()}
        for place in locations:
            storage.backend(place).pending.sweep(
                place,
                owner=journal.state.app_uuid,
                before_epoch=before_epoch,
                require_right=journal.check_epoch,
                keep=keep,
            )

    sweep(roots, journal.epoch)
    for place in sorted({*journal.state.outputs, *journal.state.earlier_outputs}.difference(roots)):
        try:
            sweep([place], journal.epoch)
        except StorageError as error:
            logger.info("pending files were not removed where the app publishes no more error=%s", error)
    try:
        yield
    finally:
        try:
            sweep(roots, journal.epoch + 1)
        except FencedError:
            logger.info("pending files are left to the driver that has taken over")
        except (StorageError, JournalError) as error:
            logger.warning("pending files were not removed, the next run will try again error=%s", error)
