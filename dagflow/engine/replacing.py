"""Putting what a replay made in the place of what its window had published."""

from __future__ import annotations

import contextlib

from dagflow.errors import MissingError
from dagflow.journal import Journal, WindowIntent
from dagflow.storage.pending import Durability, PendingFile, remove, replace


def finish_replays(journal: Journal, durability: Durability) -> None:
    """Replace the files of every replay that is decided and not done; a death in between is repaired by doing it again.

    Raises:
        FencedError: Another driver has taken over.
        StorageError: A file is lost, or the store refused.
    """
    for text, value in sorted(journal.state.redoing.items()):
        for file in WindowIntent.from_json(value["intent"]).files:
            replace(PendingFile.from_json(file), durability=durability)
        for url in value["removed"]:
            with contextlib.suppress(MissingError):
                remove(url)
        journal.end_replay(int(text))
