"""Keeps the journal small: finished windows move to the archive, which is compacted, and snapshots replace records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from dagflow.errors import MissingError
from dagflow.frozen import frozen
from dagflow.journal.frames import decode, encode, to_json
from dagflow.journal.log import LOG, SNAPSHOTS, Log, is_whole, number_of, slot_name
from dagflow.journal.reader import archive_directory, archives_in, window_range
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.objects import ObjectStore

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
    # By first window, the longest first: covered archives come after those that cover them.
    reach, last_name = 0, ""
    for name, (first, last) in sorted(ranges.items(), key=lambda item: (item[1][0], -item[1][1])):
        if last_name and last <= reach and first >= ranges[last_name][0]:
            covered[name] = last_name
            continue
        if last > reach:
            reach, last_name = last, name
    return covered


def _adjacent(names: Sequence[str]) -> list[str]:
    chain: list[str] = []
    for name in reversed(names):
        if chain and window_range(name)[1] + 1 != window_range(chain[-1])[0]:
            break
        chain.append(name)
    return chain[::-1]
