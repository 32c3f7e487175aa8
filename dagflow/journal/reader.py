"""Reads a journal without taking it over: a run that is under way is not disturbed."""

from __future__ import annotations

from collections.abc import Iterator
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


def read_journal(storage: StorageContext, checkpoint: str) -> tuple[ObjectStore, JournalState]:
    """A checkpoint whose named roots are where the newest run had them, for readers without the app, and its state."""
    store = storage.objects(checkpoint)
    state = read_state(store)
    if state.roots:
        located = (text.partition("=") for text in state.roots)
        store = replace(storage, roots=Roots.of({name: url for name, _, url in located})).objects(checkpoint)
        state = read_state(store)
    return store, state


def read_window(store: ObjectStore, window_id: int) -> Window:
    """The journal's information about one window; without operator state once the window is committed."""
    return find_window(store, read_state(store), window_id)


def committed_windows(store: ObjectStore, window_id: int = 1) -> Iterator[Window]:
    """All committed windows from window_id on, in their order."""
    return all_windows(store, read_state(store), window_id)
