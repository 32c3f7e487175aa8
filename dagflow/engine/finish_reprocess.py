"""Replaces published files by those that reprocessing made."""

from __future__ import annotations

from collections.abc import Collection

from dagflow.errors import StorageError
from dagflow.journal import Journal
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.publishing import find_lost, replace_all


def finish_reprocess(journal: Journal, storage: StorageContext, again: Collection[int] = ()) -> None:
    """Replace the files of every window whose reprocessing is decided and not done.

    May be repeated: where a process dies in between, the next call goes on. All new files are looked for before the
    first published file is replaced.

    Args:
        journal: Open, with its epoch claimed.
        storage: Reaches the stores of the files.
        again: Windows that are about to be reprocessed. Lost files are no error where all decided windows are among
            them: the files will be made again.

    Raises:
        FencedError: Another driver has taken over.
        StorageError: A new file is lost, or the store refused.
    """
    decided = dict(sorted(journal.state.reprocessing.items()))
    files = [file for window in decided.values() for file in window.intent.files]
    if lost := find_lost(storage, files):
        if decided.keys() <= set(again):
            return
        windows = " ".join(f"--window {window_id}" for window_id in decided)
        raise StorageError(
            f"{len(lost)} of the {len(files)} files that reprocessing has made are neither pending nor in their places",
            url=redacted(lost[0].final_url),
            hint=f"another program removed them; make them again: dagflow replay CHECKPOINT {windows}",
        )
    if decided:
        removed = {url for window in decided.values() for url in window.removed}
        replace_all(storage, files, removed, journal.check_epoch)
    for window_id in decided:
        journal.end_reprocess(window_id)
