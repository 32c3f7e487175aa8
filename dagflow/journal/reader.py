"""Reads a journal without taking it over: a run that is under way is not disturbed."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

from dagflow.errors import ANOTHER_CHECKPOINT, JournalError, MissingError, MissingJournalError
from dagflow.journal.frames import WRITER_DIED, TornError, decode, frames_of, from_json
from dagflow.journal.log import SNAPSHOTS, load, number_of
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore
from dagflow.storage.roots import Roots

_LISTINGS = 5


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


def all_windows(store: ObjectStore, state: JournalState, window_id: int = 0) -> Iterator[Window]:
    """All committed windows, from window_id on, in their order; replayed ones as of their last replay."""
    first = max(window_id, state.forgotten + 1)
    held = (held_id for held_id in sorted({*state.finished, *state.intents}) if held_id >= first)
    held_windows = (_held_window(store, state, held_id) for held_id in held)
    for window in itertools.chain(_archived_windows(store, state, first), held_windows):
        yield _as_at_last(store, state, window)


def newest_windows(store: ObjectStore, state: JournalState, before: int = 0) -> Iterator[Window]:
    """The windows that a journal keeps, the newest first: planned ones, and committed ones as of their last replay.

    Yields:
        The windows. Archives of older windows are opened only as the caller reads on.
    """
    end = min(before or state.last_planned + 1, state.last_planned + 1)
    held = {**state.planned, **state.intents, **state.finished}
    for window_id in sorted((held_id for held_id in held if held_id < end), reverse=True):
        yield _as_at_last(store, state, _held_window(store, state, window_id))
    for window in _archived_windows(store, state, state.forgotten + 1, end, newest_first=True):
        yield _as_at_last(store, state, window)


def find_window(store: ObjectStore, state: JournalState, window_id: int) -> Window:
    """The journal's information about one window."""
    if window_id in state.planned:
        return Window(state.planned[window_id])
    if 0 < window_id <= state.forgotten:
        raise MissingError(
            f"window {window_id} is no longer kept, windows from {state.forgotten + 1} on are",
            url=redacted(store.url),
            hint="attributes: {retain_windows: all} keeps those to come for ever",
        )
    window = next(all_windows(store, state, window_id), None)
    if window is not None and window.plan.window_id == window_id:
        return window
    known = f"windows 1 to {state.last_planned} are known" if state.last_planned else "and so is every other one"
    raise MissingError(
        f"window {window_id} is unknown, {known}",
        url=redacted(store.url),
        hint="" if state.last_planned else "no run has planned a window on this checkpoint yet",
    )


def published_urls(store: ObjectStore, state: JournalState) -> Iterator[str]:
    """The final URL of every file that was published, or will be."""
    committed = (window.intent for window in all_windows(store, state) if window.intent is not None)
    for intent in itertools.chain(committed, (event.intent for event in state.reprocessing.values())):
        yield from (file.final_url for file in intent.files if not file.target)
    # Some of these may have been published before their commit was taken back.
    yield from (file.final_url for files in state.repaired.values() for file in files if not file.target)


def _held_window(store: ObjectStore, state: JournalState, window_id: int) -> Window:
    if window_id in state.finished:
        return from_json(Window, decode(state.finished[window_id], store.url), store.url)
    if window_id in state.intents:
        return Window(state.committing[window_id].without_state(), state.intents[window_id])
    return Window(state.planned[window_id])


def _as_at_last(store: ObjectStore, state: JournalState, window: Window) -> Window:
    """A window as of its last replay; unchanged if it was never replayed."""
    name = state.reprocessed.get(window.plan.window_id)
    if name is None:
        return window
    try:
        return _window_in(store, name, store.read(name))
    except TornError as error:
        raise error.damage("the record of a replay was damaged after it was written") from error


def archive_directory(state: JournalState) -> str:
    return f"archive/{state.generation:06d}/"


_RANGE = re.compile(r"\d{12}-\d{12}")


def archives_in(store: ObjectStore, directory: str) -> Iterator[str]:
    """The archives in a directory, in the order of their windows; other objects are left out."""
    return (name for name in store.list(directory) if _RANGE.fullmatch(name.removeprefix(directory)))


def window_range(name: str) -> tuple[int, int]:
    first, _, last = name.rpartition("/")[2].partition("-")
    return int(first), int(last)


def require_archives(store: ObjectStore, state: JournalState) -> None:
    """Check that the archive has all kept windows, by the names of its objects alone."""
    for name, first, end in _chain(store, state, state.forgotten + 1, sys.maxsize, {}):
        if not name:
            _require_forgotten(store, state, first, end)


def _archived_windows(
    store: ObjectStore, state: JournalState, first: int, end: int = sys.maxsize, *, newest_first: bool = False
) -> Iterator[Window]:
    """The windows from first to before end that are only in the archive, in their order, or the newest first."""
    torn: dict[str, TornError] = {}
    for listing in range(1, _LISTINGS + 1):
        try:
            chain = _chain(store, state, first, end, torn)
            for name, low, high in reversed(chain) if newest_first else chain:
                if not name:
                    if listing < _LISTINGS:
                        break
                    if torn:
                        raise [*torn.values()][-1].damage("the archive was damaged after it was written")
                    _require_forgotten(store, state, low, high)
                    continue
                try:
                    frames = _frames_in(store, name)
                except TornError as error:
                    torn[name] = error
                    break
                start = window_range(name)[0]
                for window_id in reversed(range(low, high)) if newest_first else range(low, high):
                    first, end = (first, window_id) if newest_first else (window_id + 1, end)
                    yield _window_in(store, name, frames[window_id - start])
            else:
                return
        except MissingError:
            # A running driver has compacted it into another one, which the next listing shows. The same holds for one
            # that a listing does not show while that driver compacts.
            continue
    raise MissingError("archives vanish while they are read", url=redacted(f"{store.url}/{archive_directory(state)}"))


def _chain(
    store: ObjectStore, state: JournalState, first: int, end: int, torn: Mapping[str, TornError]
) -> list[tuple[str, int, int]]:
    """The archives of some windows, in order: the name of each, and the windows to take from it; "" for a gap.

    Archives overlap after a crash: between archive and snapshot, or during compaction. The latter may have torn an
    archive; then all its parts still exist.
    """
    end = min([end, state.last_done + 1, *state.finished])
    chain: list[tuple[str, int, int]] = []
    due, lost = first, state.forgotten + 1
    for name in archives_in(store, archive_directory(state)) if first < end else ():
        low, high = window_range(name)
        if name in torn:
            continue
        if high >= due:
            if low >= end:
                break
            if low > due:
                chain.append(("", lost, low))
            chain.append((name, max(due, low), min(high + 1, end)))
            due = high + 1
        lost = max(lost, high + 1)
        if due >= end:
            break
    return chain if due >= end else [*chain, ("", lost, end)]


def _require_forgotten(store: ObjectStore, state: JournalState, first: int, end: int) -> None:
    """Refuse an archive without windows that are kept.

    A running driver may have removed them since the state was read; or the snapshot that recorded it is torn.
    """
    newest = max(map(number_of, store.list(SNAPSHOTS)), default=0)
    loaded = load(store)
    if end - 1 > loaded.state.forgotten and loaded.snapshot_seq >= newest:
        raise JournalError(
            f"the archive of {f'windows {first} to {end - 1}' if first < end - 1 else f'window {first}'} is missing",
            url=redacted(f"{store.url}/{archive_directory(state)}"),
            hint=f"restore the checkpoint from a copy, or {ANOTHER_CHECKPOINT}",
        )


def _frames_in(store: ObjectStore, name: str) -> list[bytes]:
    """The windows of an archive, not decoded.

    Raises:
        TornError: The archive has fewer windows than its name says.
    """
    url = redacted(f"{store.url}/{name}")
    frames, (first, last) = frames_of(store.read(name), url), window_range(name)
    if len(frames) < (count := last - first + 1):
        raise TornError(f"{len(frames)} of {count} windows are there{WRITER_DIED}", url=url)
    return frames


def _window_in(store: ObjectStore, name: str, frame: bytes) -> Window:
    url = redacted(f"{store.url}/{name}")
    return from_json(Window, decode(frame, url, store.roots), url)
