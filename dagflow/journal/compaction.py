"""Compacts small archives into large ones, so that their number grows a thousand times slower than that of windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dagflow.errors import MissingError
from dagflow.journal.log import Log, is_whole
from dagflow.storage.objects import ObjectStore

COMPACTED_ARCHIVES = 32
"""How many archives are made into one."""

_LARGE_WINDOWS = 512
# Of so many bytes each, 32 are held in memory while they are compacted, and written by one request to an object store.
_MOST_BYTES = 512 << 10


_RANGE = re.compile(r"\d{12}-\d{12}")


def archives_in(store: ObjectStore, directory: str) -> Iterator[str]:
    """The archives in a directory, in the order of their windows; other objects are left out.

    Raises:
        StorageError: The store failed.
    """
    return (name for name in store.list(directory) if _RANGE.fullmatch(name.removeprefix(directory)))


def compact_archives(log: Log, directory: str) -> None:
    """Put the newest small archives into one, if there are enough of them.

    A death in between leaves ranges that overlap; readers pass over windows that they have seen, and the next
    compaction removes what is covered.

    Args:
        log: This driver's right to act.
        directory: Where the archives of this generation are.

    Raises:
        FencedError: Another driver has taken over; nothing was removed.
        StorageError: The store failed.
    """
    store = log.store
    names = list(archives_in(store, directory))
    if covered := _covered(names):
        # What covers others was written by a driver that died; where it was torn, they are all there is.
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
    """The bytes of all, as they stand one behind the other; None where one is large, or gone."""
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
    """The archives whose windows are all in another one, each with that one."""
    ranges = {name: window_range(name) for name in names}
    covered: dict[str, str] = {}
    # By first window, the longest first: what is covered comes behind what covers it.
    reach, last_name = 0, ""
    for name, (first, last) in sorted(ranges.items(), key=lambda item: (item[1][0], -item[1][1])):
        if last_name and last <= reach and first >= ranges[last_name][0]:
            covered[name] = last_name
            continue
        if last > reach:
            reach, last_name = last, name
    return covered


def _adjacent(names: Sequence[str]) -> list[str]:
    """The last of the names that follow on each other without a gap or an overlap."""
    chain: list[str] = []
    for name in reversed(names):
        if chain and window_range(name)[1] + 1 != window_range(chain[-1])[0]:
            break
        chain.append(name)
    return chain[::-1]
