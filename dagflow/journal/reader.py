"""Reads a journal without taking it over: a run that is under way is not disturbed."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from dagflow.errors import FROM_A_COPY, JournalError, MissingError, MissingJournalError
from dagflow.frozen import frozen
from dagflow.journal.frames import WRITER_DIED, TornError, decode, encode, frames_of, from_json, to_json
from dagflow.journal.log import LOG, SNAPSHOTS, Log, is_whole, load, number_of, slot_name
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import Roots, redacted

_LISTINGS = 5


def read_state(store: ObjectStore) -> JournalState:
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

    Archives of older windows are opened only as the caller reads on.
    """
    end = min(before or state.last_planned + 1, state.last_planned + 1)
    held = {**state.planned, **state.intents, **state.finished}
    for window_id in sorted((held_id for held_id in held if held_id < end), reverse=True):
        yield _as_at_last(store, state, _held_window(store, state, window_id))
    for window in _archived_windows(store, state, state.forgotten + 1, end, newest_first=True):
        yield _as_at_last(store, state, window)


def find_window(store: ObjectStore, state: JournalState, window_id: int) -> Window:
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
            hint=FROM_A_COPY,
        )


def _frames_in(store: ObjectStore, name: str) -> list[bytes]:
    """The windows of an archive, not decoded; a TornError if it has fewer than its name says."""
    url = redacted(f"{store.url}/{name}")
    frames, (first, last) = frames_of(store.read(name), url), window_range(name)
    if len(frames) < (count := last - first + 1):
        raise TornError(f"{len(frames)} of {count} windows are there{WRITER_DIED}", url=url)
    return frames


def _window_in(store: ObjectStore, name: str, frame: bytes) -> Window:
    url = redacted(f"{store.url}/{name}")
    return from_json(Window, decode(frame, url, store.roots), url)


_SNAPSHOTS_KEPT = 2


@frozen
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


def keep_replayed(log: Log, state: JournalState, seq: int, window: Window) -> str:
    name = f"{_replayed_directory(state)}{window.plan.window_id:012d}-{seq:012d}"
    log.create_if_absent(name, encode(to_json(window), log.store.roots))
    return name


def _replayed_directory(state: JournalState) -> str:
    return f"reprocessed/{state.generation:06d}/"


COMPACTED_ARCHIVES = 32
"""How many archives are merged into one."""

_LARGE_WINDOWS = 512
# Archives of up to this size: 32 are held in memory during compaction, and written to an object store by one request.
_MOST_BYTES = 512 << 10


def compact_archives(log: Log, directory: str) -> None:
    """Put the newest small archives into one, if there are enough of them.

    A crash in between leaves overlapping ranges; readers skip windows that they have seen, and the next compaction
    removes the covered archives.
    """
    store = log.store
    names = list(archives_in(store, directory))
    if covered := _covered(names):
        # A driver that crashed wrote the covering archive; where that is torn, only the covered ones have the windows.
        torn = {name for name in {*covered.values()} if not is_whole(store, name, _windows_in(name))}
        needless = torn or {*covered}
        log.check_epoch()
        store.delete(sorted(needless))
        names = [name for name in names if name not in needless]
    small = [name for name in names if _windows_in(name) < _LARGE_WINDOWS]
    if len(small) < COMPACTED_ARCHIVES:
        return
    parts = _adjacent(small[-COMPACTED_ARCHIVES:])
    content = _content(store, parts)
    if len(parts) < 2 or content is None:
        return
    name = f"{directory}{window_range(parts[0])[0]:012d}-{window_range(parts[-1])[1]:012d}"
    log.create_if_absent(name, content, sum(map(_windows_in, parts)))
    log.check_epoch()
    store.delete(parts)


def _content(store: ObjectStore, names: Sequence[str]) -> bytes | None:
    """The bytes of all, one behind the other; None where one is large, or gone."""
    parts: list[bytes] = []
    # The last one first: where windows are large, so are all archives, and one look is enough.
    for name in reversed(names):
        try:
            parts.append(store.read(name))
        except MissingError:
            return None
        if len(parts[-1]) > _MOST_BYTES:
            return None
    return b"".join(reversed(parts))


def _windows_in(name: str) -> int:
    first, last = window_range(name)
    return last - first + 1


def _covered(names: Sequence[str]) -> dict[str, str]:
    """The archives whose windows are all in another archive, each with that archive."""
    ranges = {name: window_range(name) for name in names}
    covered: dict[str, str] = {}
    cover = ""
    # By first window, the longest first: covered archives come after those that cover them.
    for name in sorted(ranges, key=lambda name: (ranges[name][0], -ranges[name][1])):
        if cover and ranges[name][1] <= ranges[cover][1]:
            covered[name] = cover
        else:
            cover = name
    return covered


def _adjacent(names: Sequence[str]) -> list[str]:
    chain: list[str] = []
    for name in reversed(names):
        if chain and window_range(name)[1] + 1 != window_range(chain[-1])[0]:
            break
        chain.append(name)
    return chain[::-1]
