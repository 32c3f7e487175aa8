"""The archive of a journal: gives each of its windows once, without a gap, and compacts small archives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from dagflow.errors import ANOTHER_CHECKPOINT, JournalError, MissingError
from dagflow.journal.frames import WRITER_DIED, TornError, decode, frames_of, from_json
from dagflow.journal.log import SNAPSHOTS, Log, is_whole, load, number_of
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore

_LISTINGS = 5


def archive_directory(state: JournalState) -> str:
    return f"archive/{state.generation:06d}/"


def archived_windows(store: ObjectStore, state: JournalState, window_id: int) -> Iterator[Window]:
    """The windows that are only in the archive, in their order, from window_id on."""
    for name, frames in _archives(store, state, window_id, lambda name: _archived_frames(store, name)):
        for frame in frames:
            yield window_in(store, name, frame)


def require_archives(store: ObjectStore, state: JournalState) -> None:
    """Check that the archive has all kept windows, by the names of its objects alone."""
    for _ in _archives(store, state, state.forgotten + 1, lambda name: [b""] * windows_in(name)):
        pass


def _archives(
    store: ObjectStore, state: JournalState, window_id: int, read: Callable[[str], list[bytes]]
) -> Iterator[tuple[str, list[bytes]]]:
    """The archives with windows from window_id on, each with its windows that no earlier archive has."""
    # A crash between archive and snapshot leaves windows in both, and may have torn that archive.
    end = min(state.finished, default=state.last_done + 1)
    due = window_id
    for _ in range(_LISTINGS):
        if due >= end:
            return
        problem: JournalError | MissingError | None = None
        lost, later = state.forgotten + 1, end
        try:
            for name in archives_in(store, archive_directory(state)):
                first, last = window_range(name)
                if last < due:
                    lost = max(lost, last + 1)
                    continue
                if first > due:
                    later = min(first, end)
                    break
                try:
                    frames = read(name)
                except TornError as error:
                    # A crash during compaction may have torn this archive; then all its parts still exist.
                    problem = error
                    continue
                start, due, lost = due, last + 1, last + 1
                yield name, frames[start - first : end - first]
                if due >= end:
                    return
        except MissingError as error:
            # A running driver has compacted it into another one, which the next listing shows. The same holds for one
            # that a listing does not show while that driver compacts.
            problem = error
    if isinstance(problem, TornError) or not _are_forgotten(store, later - 1):
        raise _gap(store, state, (lost, later - 1), problem)
    yield from _archives(store, state, later, read)


def _gap(
    store: ObjectStore, state: JournalState, windows: tuple[int, int], problem: JournalError | MissingError | None
) -> JournalError | MissingError:
    url = redacted(f"{store.url}/{archive_directory(state)}")
    if isinstance(problem, TornError):
        return problem.damage("the archive was damaged after it was written")
    if problem is not None:
        return MissingError("archives vanish while they are read", url=url)
    first, last = windows
    return JournalError(
        f"the archive of {f'windows {first} to {last}' if first < last else f'window {first}'} is missing",
        url=url,
        hint=f"restore the checkpoint from a copy, or {ANOTHER_CHECKPOINT}",
    )


def _are_forgotten(store: ObjectStore, window_id: int) -> bool:
    """Whether windows up to this one are not kept any more, which the state may not show.

    A running driver has removed them since the state was read; or the snapshot that recorded it is torn.
    """
    newest = max(map(number_of, store.list(SNAPSHOTS)), default=0)
    loaded = load(store)
    return window_id <= loaded.state.forgotten or loaded.snapshot_seq < newest


def _archived_frames(store: ObjectStore, name: str) -> list[bytes]:
    """The windows of an archive, not decoded.

    Raises:
        TornError: The archive has fewer windows than its name says.
    """
    url = redacted(f"{store.url}/{name}")
    frames = frames_of(store.read(name), url)
    if len(frames) < (count := windows_in(name)):
        raise TornError(f"{len(frames)} of {count} windows are there{WRITER_DIED}", url=url)
    return frames


def window_in(store: ObjectStore, name: str, frame: bytes) -> Window:
    url = redacted(f"{store.url}/{name}")
    return from_json(Window, decode(frame, url, store.roots), url)


def archived_windows_backwards(store: ObjectStore, state: JournalState, end: int) -> Iterator[Window]:
    """The windows in the archive below end that are kept, the newest first."""
    for _ in range(_LISTINGS):
        if end - 1 <= state.forgotten:
            return
        problem: JournalError | MissingError | None = None
        earlier = state.forgotten
        try:
            names = archives_in(store, archive_directory(state))
            for name in sorted(names, key=lambda archive: window_range(archive)[1], reverse=True):
                first, last = window_range(name)
                if first >= end:
                    continue
                if last < end - 1:
                    earlier = max(last, state.forgotten)
                    break
                try:
                    frames = _archived_frames(store, name)
                except TornError as error:
                    problem = error  # as in _archives
                    continue
                for frame in reversed(frames[max(state.forgotten + 1 - first, 0) : end - first]):
                    end -= 1
                    yield window_in(store, name, frame)
                if end - 1 <= state.forgotten:
                    return
        except MissingError as error:
            problem = error  # as in _archives
    if isinstance(problem, TornError) or not _are_forgotten(store, end - 1):
        raise _gap(store, state, (earlier + 1, end - 1), problem)


COMPACTED_ARCHIVES = 32
"""How many archives are merged into one."""

_LARGE_WINDOWS = 512
# Archives of up to this size: 32 are held in memory during compaction, and written to an object store by one request.
_MOST_BYTES = 512 << 10


_RANGE = re.compile(r"\d{12}-\d{12}")


def archives_in(store: ObjectStore, directory: str) -> Iterator[str]:
    """The archives in a directory, in the order of their windows; other objects are left out."""
    return (name for name in store.list(directory) if _RANGE.fullmatch(name.removeprefix(directory)))


def compact_archives(log: Log, directory: str) -> None:
    """Put the newest small archives into one, if there are enough of them.

    A crash in between leaves overlapping ranges; readers skip windows that they have seen, and the next compaction
    removes the covered archives.
    """
    store = log.store
    names = list(archives_in(store, directory))
    if covered := _covered(names):
        # A driver that crashed wrote the covering archive; where that is torn, only the covered ones have the windows.
        torn = {name for name in {*covered.values()} if not is_whole(store, name, windows_in(name))}
        needless = torn or {*covered}
        log.check_epoch()
        store.delete(sorted(needless))
        names = [name for name in names if name not in needless]
    small = [name for name in names if windows_in(name) < _LARGE_WINDOWS]
    if len(small) < COMPACTED_ARCHIVES:
        return
    parts = _adjacent(small[-COMPACTED_ARCHIVES:])
    content = _content(store, parts)
    if len(parts) < 2 or content is None:
        return
    name = f"{directory}{window_range(parts[0])[0]:012d}-{window_range(parts[-1])[1]:012d}"
    log.create_if_absent(name, content, sum(map(windows_in, parts)))
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


def window_range(name: str) -> tuple[int, int]:
    first, _, last = name.rpartition("/")[2].partition("-")
    return int(first), int(last)


def windows_in(name: str) -> int:
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
