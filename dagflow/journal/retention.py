"""Keeps the journal small: finished windows move to the archive, snapshots replace records."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from dagflow.errors import MissingError
from dagflow.journal.archives import (
    archive_directory,
    archived_windows,
    archived_windows_backwards,
    archives_in,
    window_in,
)
from dagflow.journal.frames import TornError, decode, encode, from_json, to_json
from dagflow.journal.log import LOG, SNAPSHOTS, Log, number_of, slot_name
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

_SNAPSHOTS_KEPT = 2


@dataclass(frozen=True, slots=True)
class JournalRetention:
    """When a journal is made smaller.

    Attributes:
        finished_windows: Finished windows to move to the archive together, at most.
        finished_bytes: Bytes of finished windows, held in memory, from which on they are moved even if they are fewer.
        records: Records after the newest snapshot from which on a new one is due, even if no window finished.
        kept_windows: Finished windows to keep for queries, at least; None for all.
    """

    finished_windows: int = 32
    finished_bytes: int = 1 << 20
    records: int = 128
    kept_windows: int | None = None

    def is_due(self, state: JournalState, records: int) -> bool:
        """Whether it is time; records counts those after the newest snapshot."""
        is_full = sum(map(len, state.finished.values())) >= self.finished_bytes
        return is_full or len(state.finished) >= self.finished_windows or records >= self.records


def archive(log: Log, state: JournalState) -> None:
    """Move the finished windows from the state to the archive.

    After a crash between this and the next snapshot they are archived again, under an overlapping range; readers skip
    windows that they have seen.
    """
    if not state.finished:
        return
    first, last = min(state.finished), max(state.finished)
    name = f"{archive_directory(state)}{first:012d}-{last:012d}"
    frames = [state.finished[window_id] for window_id in sorted(state.finished)]
    if log.store.roots.pairs:
        # The state has whole locations; written objects have the names of roots.
        frames = [encode(decode(frame, name), log.store.roots) for frame in frames]
    log.create_if_absent(name, b"".join(frames), len(frames))
    state.finished.clear()


def take_snapshot(log: Log, state: JournalState, seq: int) -> None:
    log.create_if_absent(slot_name(SNAPSHOTS, seq), encode(state.to_json(), log.store.roots))


def trim(log: Log) -> None:
    """Remove the records that the snapshot before the newest one covers, and all older snapshots.

    The newest snapshot is never the only way to restore a state.
    """
    store = log.store
    snapshots = sorted(store.list(SNAPSHOTS))
    if len(snapshots) < _SNAPSHOTS_KEPT:
        return
    covered = number_of(snapshots[-_SNAPSHOTS_KEPT])
    records = list(takewhile(lambda name: number_of(name) <= covered, store.list(LOG)))
    log.check_epoch()
    store.delete(records)
    store.delete(snapshots[:-_SNAPSHOTS_KEPT])
    log.forget_epochs()


def forget(state: JournalState, kept_windows: int | None) -> None:
    """Mark windows beyond the newest kept_windows as not kept; called before a snapshot of the state."""
    if kept_windows is not None:
        # A window that is being replayed is needed until its replay is done.
        last = min([state.last_done - kept_windows, *(window_id - 1 for window_id in state.reprocessing)])
        state.forgotten = max(state.forgotten, last)
        kept = {window_id: name for window_id, name in state.reprocessed.items() if window_id > state.forgotten}
        state.reprocessed = kept


def remove_forgotten(log: Log, state: JournalState) -> None:
    """Remove the archives whose windows are all forgotten, and the results of replays that no longer count."""
    # Archives are in the order of their windows, so only those to be removed and one more are looked at.
    archives = archives_in(log.store, archive_directory(state))
    old = list(takewhile(lambda name: int(name.rpartition("-")[2]) <= state.forgotten, archives))
    old += set(log.store.list(_replayed_directory(state))) - set(state.reprocessed.values())
    if old:
        log.check_epoch()
        log.store.delete(old)


def all_windows(store: ObjectStore, state: JournalState, window_id: int = 0) -> Iterator[Window]:
    """All committed windows, from window_id on, in their order; replayed ones as of their last replay."""
    first = max(window_id, state.forgotten + 1)
    later = (held for held in sorted({*state.finished, *state.intents}) if held >= first)
    held_windows = (_held_window(store, state, held) for held in later)
    for window in itertools.chain(archived_windows(store, state, first), held_windows):
        yield _as_at_last(store, state, window)


def newest_windows(store: ObjectStore, state: JournalState, before: int = 0) -> Iterator[Window]:
    """The windows that a journal keeps, the newest first: planned ones, and committed ones as of their last replay.

    Yields:
        The windows. Archives of older windows are opened only as the caller reads on.
    """
    end = min(before or state.last_planned + 1, state.last_planned + 1)
    held = {**state.planned, **state.intents, **state.finished}
    for window_id in sorted((held_id for held_id in held if held_id < end), reverse=True):
        end = window_id
        yield _as_at_last(store, state, _held_window(store, state, window_id))
    for window in archived_windows_backwards(store, state, end):
        yield _as_at_last(store, state, window)


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
        return window_in(store, name, store.read(name))
    except TornError as error:
        raise error.damage("the record of a replay was damaged after it was written") from error


def keep_replayed(log: Log, state: JournalState, seq: int, window: Window) -> str:
    name = f"{_replayed_directory(state)}{window.plan.window_id:012d}-{seq:012d}"
    log.create_if_absent(name, encode(to_json(window), log.store.roots))
    return name


def published_urls(store: ObjectStore, state: JournalState) -> Iterator[str]:
    """The final URL of every file that was published, or will be."""
    committed = (window.intent for window in all_windows(store, state) if window.intent is not None)
    for intent in itertools.chain(committed, (event.intent for event in state.reprocessing.values())):
        yield from (file.final_url for file in intent.files if not file.target)
    # Some of these may have been published before their commit was taken back.
    yield from (file.final_url for files in state.repaired.values() for file in files if not file.target)


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


def _replayed_directory(state: JournalState) -> str:
    return f"reprocessed/{state.generation:06d}/"
