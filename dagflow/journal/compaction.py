"""Compacts small archives into large ones, so that their number grows a thousand times slower than that of windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dagflow.errors import MissingError
from dagflow.journal.log import Log, is_whole
from dagflow.storage.objects import ObjectStore

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
    """The ids of the first and the last window of an archive."""
    first, _, last = name.rpartition("/")[2].partition("-")
    return int(first), int(last)


def windows_in(name: str) -> int:
    """How many windows an archive holds."""
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
    """The names at the end that follow each other without a gap or an overlap."""
    chain: list[str] = []
    for name in reversed(names):
        if chain and window_range(name)[1] + 1 != window_range(chain[-1])[0]:
            break
        chain.append(name)
    return chain[::-1]
