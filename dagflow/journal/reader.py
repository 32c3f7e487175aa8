"""Reads a journal without taking it over: a run that is under way is not disturbed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dagflow.errors import MissingJournalError
from dagflow.journal.log import load
from dagflow.journal.retention import all_windows, find_window
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots


def read_state(store: ObjectStore) -> JournalState:
    """The state of the journal in a store at this moment."""
    replay = load(store)
    if replay.seq == 0:
        raise MissingJournalError("there is no journal", url=redacted(store.url))
    return replay.state


def with_roots_of_run(storage: StorageContext, checkpoint: str) -> ObjectStore:
    """A checkpoint whose named roots are where the newest run had them, for readers without the app."""
    return _with_roots(storage, checkpoint, read_state(storage.objects(checkpoint)).roots)


def read_state_with_roots(storage: StorageContext, checkpoint: str) -> JournalState:
    """The state of a journal, with named roots where the newest run had them."""
    return read_journal(storage, checkpoint)[1]


def read_journal(storage: StorageContext, checkpoint: str) -> tuple[ObjectStore, JournalState]:
    """A checkpoint whose named roots are where the newest run had them, and the state of its journal."""
    store = storage.objects(checkpoint)
    state = read_state(store)
    if not state.roots:
        return store, state
    store = _with_roots(storage, checkpoint, state.roots)
    return store, read_state(store)


def _with_roots(storage: StorageContext, checkpoint: str, named: Iterable[str]) -> ObjectStore:
    located = (text.partition("=") for text in named)
    roots = Roots.of({name: url for name, _, url in located})
    return replace(storage, roots=roots).objects(checkpoint)


def read_window(store: ObjectStore, window_id: int) -> Window:
    """The journal's information about one window; without operator state once the window is committed.

    Raises:
        MissingError: There is no journal, or no such window.
        JournalError: The journal is damaged, or of an unknown version.
        StorageError: The store failed.
    """
    return find_window(store, read_state(store), window_id)


def committed_windows(store: ObjectStore, window_id: int = 1) -> Iterator[Window]:
    """All committed windows from window_id on, in their order."""
    return all_windows(store, read_state(store), window_id)
