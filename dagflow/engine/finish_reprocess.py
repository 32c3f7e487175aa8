"""Putting what a replay made in the place of what its windows had published."""

from __future__ import annotations

from collections.abc import Collection

from dagflow.errors import StorageError
from dagflow.journal import Journal
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from dagflow.storage.replacement import lost_of, replace_all


def finish_reprocess(journal: Journal, again: Collection[int] = ()) -> None:
    """Replace the files of every replay that is decided and not done; a death in between is repaired by doing it again.

    All files are looked for before the first is replaced, so that what cannot be finished is not begun.

    Args:
        journal: Open, with its epoch claimed.
        again: Windows that will be replayed now. Where these are all that is decided, lost files are no error:
            they are made anew.

    Raises:
        FencedError: Another driver has taken over.
        StorageError: A file is lost, or the store refused.
    """
    redos = journal.state.reprocessing
    files = [PendingFile.from_json(file) for redo in redos.values() for file in redo.intent.files]
    if lost := lost_of(files):
        if redos.keys() <= set(again):
            return
        windows = " ".join(f"--window {window_id}" for window_id in redos)
        raise StorageError(
            f"{len(lost)} of the {len(files)} files that a replay has made are neither pending nor in their places",
            url=redacted(lost[0].final_url),
            hint=f"somebody removed them; make them again: dagflow replay CHECKPOINT {windows}",
        )
    if redos:
        replace_all(files, {url for redo in redos.values() for url in redo.removed}, journal.check_epoch)
    for window_id in redos:
        journal.end_reprocess(window_id)
