"""Lists directories and examines files; also the program of the worker processes of a scan.

A worker process runs this file alone and is ready in about ten milliseconds: it imports Python's own modules, and for
patterns RE2, from the directory that its argument names.
"""

from __future__ import annotations

import gc
import os
import signal
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Final

Columns = tuple["array[int]", "array[int]", "array[int]"]
"""Lengths in bytes, modification times in nanoseconds, inode numbers as signed 64 bits."""

STAT: Final = b"s"
LIST: Final = b"l"
WALK: Final = b"w"
"""First byte of a request; see answer()."""

NOT_REACHED, LEFT_TO_WALK, LISTED = range(3)
"""Outcome of a directory in a request: not started, must be listed by the walk itself, entries follow."""

WALKED, NOT_VISITED, TO_BE_ENTERED = -1, -2, -3
"""Length of a directory in an answer: everything below it follows; not visited yet; the walk must enter it itself."""

INCOMPLETE_SUFFIXES: Final = (
    *(b"._COPYING_", b".crdownload", b".filepart", b".part", b".partial"),
    *(b".swo", b".swp", b".swx", b".tmp"),
)
"""Suffixes of the names of incomplete copies and of editors' swap files."""

UNFINISHED_ENDS: Final = (*INCOMPLETE_SUFFIXES, b"~", b"#")
"""Suffixes of names that a scan may skip."""

_HIDDEN_PREFIXES: Final = (b".", b"_")
_MAX_DEPTH: Final = 100
"""Levels that a walk descends below one requested directory."""

_STATS_AT_ONCE: Final = 256
"""Files examined before the results go into columns: 32 bytes a file there, 700 as objects."""

_FEW_NAMES: Final = 8
"""Up to this many files are examined by full path: opening the directory first would cost more than it saves."""


def stat_files(directory: bytes, names: Sequence[bytes]) -> Columns | None:
    """The versions of files in a directory; None unless every name is a regular file, and no link to one."""
    examined = _stat_all(directory, names)
    return examined[1] if examined is not None and _all_modes(stat.S_ISREG, examined[0]) else None


def list_directory(directory: bytes, max_entries: int) -> tuple[list[bytes], Columns] | None:
    """A directory's entries by their bytes, directories with "/" at the end, and their versions.

    Args:
        max_entries: A larger directory is left to the walk, which reads it in parts.

    Returns:
        None if there are more entries, or one is a link, or neither file nor directory, or a call fails. The length of
        a directory is TO_BE_ENTERED.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    if len(names) > max_entries:
        return None
    names.sort()
    if (examined := _stat_all(directory, names)) is None:
        return None
    modes, columns = examined
    if _all_modes(stat.S_ISREG, modes):
        return names, columns
    if not _all_modes(lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode), modes):
        return None
    if _all_modes(stat.S_ISDIR, modes):
        zeros = array("q", [0]) * len(names)
        return sorted(name + b"/" for name in names), (array("q", [TO_BE_ENTERED]) * len(names), zeros, zeros)
    entries: list[tuple[bytes, int, int, int]] = sorted(
        (name + b"/", TO_BE_ENTERED, 0, 0) if stat.S_ISDIR(mode) else (name, size, mtime, inode)
        for name, mode, size, mtime, inode in zip(names, modes, *columns, strict=True)
    )
    columns = _empty_columns()
    _extend(columns, zip(*(version for _, *version in entries), strict=True))
    return [name for name, *_ in entries], columns


class _Descent:
    """Descends below directories as a walk does that selects everything below them.

    Does not enter links, because one may lead back up, names that a scan may skip, and directories that cannot be
    listed.

    Args:
        max_entries: Number of entries below one requested directory after which no further directory is started; a
            larger directory is not entered.
        ignored: A pattern, as bytes_of() gives it, for names of directories that the scan skips; empty for none.
    """

    def __init__(self, max_entries: int, ignored: bytes) -> None:
        self._max_entries = self._stop_at = max_entries
        self._is_ignored = _matcher(ignored) if ignored else None
        self.names: list[bytes] = []
        self.columns = _empty_columns()

    def enter(self, directory: bytes, name: bytes, depth: int = 0) -> bool:
        """Append directory + name and everything below it.

        Returns:
            False if the directory is left to the walk; nothing was appended.
        """
        path = directory + name
        if not depth:
            # A requested directory is finished if possible: the walk has to wait for whatever remains of it.
            self._stop_at = len(self.names) + self._max_entries
        if os.path.islink(path[:-1]) or (listed := list_directory(path, self._max_entries)) is None:
            return False
        self.names.append(name)
        _append(self.columns, WALKED)
        bare_names, versions = listed
        names = [name + bare for bare in bare_names]
        if TO_BE_ENTERED not in versions[0]:
            self.names += names
            _extend(self.columns, versions)
            return True
        for below, bare, *version in zip(names, bare_names, *versions, strict=True):
            if version[0] != TO_BE_ENTERED:
                self.names.append(below)
                _extend(self.columns, ([number] for number in version))
            elif self._may_skip(bare):
                self._append_directory(below, TO_BE_ENTERED)
            elif len(self.names) >= self._stop_at or depth == _MAX_DEPTH:
                self._append_directory(below, NOT_VISITED)
            elif not self.enter(directory, below, depth + 1):
                self._append_directory(below, TO_BE_ENTERED)
        return True

    def _append_directory(self, name: bytes, size: int) -> None:
        self.names.append(name)
        _append(self.columns, size)

    def _may_skip(self, name: bytes) -> bool:
        bare = name[:-1]
        if bare.startswith(_HIDDEN_PREFIXES) or bare.endswith(UNFINISHED_ENDS):
            return True
        return self._is_ignored is not None and self._is_ignored(bare)


def _matcher(pattern: bytes) -> Callable[[bytes], bool]:
    # Most scans ignore nothing.
    import re2

    fullmatch = re2.compile(pattern).fullmatch
    # As bytes_of() of dagflow.api.regular_expressions, which a worker process cannot import.
    return lambda name: fullmatch(os.fsdecode(name).encode("utf-8", "surrogatepass")) is not None


def _stat_all(directory: bytes, names: Sequence[bytes]) -> tuple[array[int], Columns] | None:
    """Modes and versions of the names in a directory, links not followed; None unless each name can be examined."""
    modes, columns = array("q"), _empty_columns()
    # A link is left to the walk, which knows whether its target is read under its own name.
    examine = os.lstat
    if len(names) <= _FEW_NAMES:
        below = directory if directory.endswith(b"/") else directory + b"/"
        try:
            statuses = [examine(below + name) for name in names]
        except OSError:
            return None
        modes.fromlist([one.st_mode for one in statuses])
        _add_versions(columns, statuses)
        return modes, columns
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Relative to the directory's descriptor the kernel looks up one name, not the whole path.
        for start in range(0, len(names), _STATS_AT_ONCE):
            statuses = [examine(name, dir_fd=descriptor) for name in names[start : start + _STATS_AT_ONCE]]
            modes.fromlist([one.st_mode for one in statuses])
            _add_versions(columns, statuses)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return modes, columns


def _all_modes(kind: Callable[[int], bool], modes: array[int]) -> bool:
    # Thousands of files have few different modes.
    return all(map(kind, set(modes)))


def answer(request: bytes) -> bytes:
    """Answer one request of a scan.

    Args:
        request: One of
            STAT, then groups joined by two NULs, each a directory and names in it, joined by NULs;
            LIST, then the most entries to list and directories, joined by NULs;
            WALK, then the most entries, the pattern of ignored directories or nothing, and directories with "/" at
            their end, joined by NULs.

    Returns:
        Native 64-bit numbers, then names.
        For STAT: 1 or 0 for each group, whether its versions follow; then the lengths of all these files, then the
        modification times, then the inode numbers.
        For LIST: for each directory its outcome, the number of entries and the bytes of their names; then the columns
        as above; then the names, each followed by a NUL.
        For WALK: as LIST; the entries of a directory are its own name and the paths below it, relative to its parent.
    """
    answer_to = {STAT: _answer_stat, LIST: _answer_list, WALK: _answer_walk}
    return answer_to[request[:1]](request[1:])


def _answer_stat(request: bytes) -> bytes:
    outcomes = array("q")
    columns = _empty_columns()
    for group in request.split(b"\0\0"):
        directory, *names = group.split(b"\0")
        columns_of_group = stat_files(directory, names)
        outcomes.append(columns_of_group is not None)
        _extend(columns, columns_of_group or ())
    return b"".join(column.tobytes() for column in (outcomes, *columns))


def _answer_list(request: bytes) -> bytes:
    number, *directories = request.split(b"\0")
    names: list[bytes] = []
    columns = _empty_columns()

    def add(directory: bytes) -> bool:
        if (listed := list_directory(directory, int(number))) is None:
            return False
        names.extend(listed[0])
        _extend(columns, listed[1])
        return True

    return _encoded(directories, int(number), add, names, columns)


def _answer_walk(request: bytes) -> bytes:
    number, ignored, *directories = request.split(b"\0")
    descent = _Descent(int(number), ignored)

    def add(directory: bytes) -> bool:
        start = directory.rindex(b"/", 0, -1) + 1
        return descent.enter(directory[:start], directory[start:])

    return _encoded(directories, int(number), add, descent.names, descent.columns)


def _encoded(
    directories: list[bytes], max_entries: int, add: Callable[[bytes], bool], names: list[bytes], columns: Columns
) -> bytes:
    """The answer for directories, each of which add() appends to names and columns if it can."""
    outcomes = array("q")
    joined: list[bytes] = []
    for directory in directories:
        before = len(names)
        if before >= max_entries:
            outcomes.extend((NOT_REACHED, 0, 0))
        elif add(directory):
            joined.append(b"\0".join([*names[before:], b""]))
            outcomes.extend((LISTED, len(names) - before, len(joined[-1])))
        else:
            outcomes.extend((LEFT_TO_WALK, 0, 0))
    return b"".join([*(column.tobytes() for column in (outcomes, *columns)), *joined])


def _add_versions(columns: Columns, statuses: Sequence[os.stat_result]) -> None:
    columns[0].fromlist([one.st_size for one in statuses])
    # Nearly all numbers fit, and a function call for each would take longer than its work.
    try:
        columns[1].fromlist([one.st_mtime_ns for one in statuses])
    except OverflowError:
        columns[1].fromlist([bounded_ns(one.st_mtime_ns) for one in statuses])
    try:
        columns[2].fromlist([one.st_ino for one in statuses])
    except OverflowError:
        columns[2].fromlist([file_id_of(one.st_ino) for one in statuses])


# Functions of dagflow.storage, backends.local.disk and fingerprint, which a worker process cannot import.
def bounded_ns(nanoseconds: int) -> int:
    return max(-(1 << 63), min(nanoseconds, (1 << 63) - 1))


def file_id_of(inode: int) -> int:
    return inode - (1 << 64) if inode >= 1 << 63 else inode


def _empty_columns() -> Columns:
    return array("q"), array("q"), array("q")


def _append(columns: Columns, size: int, mtime: int = 0, inode: int = 0) -> None:
    columns[0].append(size)
    columns[1].append(mtime)
    columns[2].append(inode)


def _extend(columns: Columns, rows: Iterable[Iterable[int]]) -> None:
    for column, values in zip(columns, rows, strict=False):
        column.extend(values)


def framed(message: bytes) -> bytes:
    return array("q", [len(message)]).tobytes() + message


def received(source: IO[bytes]) -> bytes | None:
    """The next message; None if the stream ends before it is complete."""
    if len(length := source.read(8)) < 8:
        return None
    size = array("q", length)[0]
    message = source.read(size)
    return message if len(message) == size else None


if __name__ == "__main__":
    # Terminals and service managers send these to every process, and the run that asks may end cleanly.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # There are no reference cycles, and a collector among thousands of versions takes a fifth of the time.
    gc.disable()
    sys.path.extend(sys.argv[1:])
    while (asked := received(sys.stdin.buffer)) is not None:
        sys.stdout.buffer.write(framed(answer(asked)))
        sys.stdout.buffer.flush()
