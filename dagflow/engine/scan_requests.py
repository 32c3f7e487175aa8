"""Asks a running run to scan for new files at once, through small objects in its checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from dagflow.errors import MissingJournalError, TransientStorageError
from dagflow.journal.reader import read_state
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

REQUESTS = "requests/"
_SCAN = "scan-"
LOOK_EVERY_S = 1.0
"""How often a run looks for requests: each look lists an empty directory, which an object store charges for."""


def request_scan(checkpoint: str, storage: StorageContext) -> str:
    """Ask the run that follows on a checkpoint to look for new files now.

    Returns:
        The name of the request; the run that takes the request removes it.
    """
    store = storage.objects(checkpoint)
    if not read_state(store).app:
        raise MissingJournalError("there is no journal", url=redacted(store.url))
    name = f"{REQUESTS}{_SCAN}{os.urandom(8).hex()}"
    store.create(name, name.encode())
    return name


def is_waiting(checkpoint: str, request: str, storage: StorageContext) -> bool:
    return request in set(storage.objects(checkpoint).list(REQUESTS))


class ScanRequests:
    def __init__(self, store: ObjectStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._due_s = clock()

    def take_scan(self) -> bool:
        """Whether a scan was asked for since the last call; looks at most once every LOOK_EVERY_S."""
        if self._clock() < self._due_s:
            return False
        self._due_s = self._clock() + LOOK_EVERY_S
        try:
            names = [name for name in self._store.list(REQUESTS) if name.startswith(REQUESTS + _SCAN)]
            if names:
                self._store.delete(names)
        except TransientStorageError:
            return False  # the next look finds it
        return bool(names)
