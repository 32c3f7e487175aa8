"""Lists directories and examines files, and is the program that does so in the helpers of a scan.

A helper runs this file alone, so that it is ready in some ten milliseconds: it imports nothing but Python.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Final

Columns = tuple["array[int]", "array[int]", "array[int]"]
"""Lengths in bytes, modification times in nanoseconds, inodes."""

AT_ONCE: Final = 256
"""So many files are examined before it is put into columns, which take 32 bytes a file: objects take 700."""

EXAMINE: Final = b"e"
LIST: Final = b"l"
WALK: Final = b"w"
"""What a request begins with."""

NOT_REACHED, LEFT, LISTED = range(3)
"""What became of a directory that was to be listed: nothing yet, it is left to the scan, its entries follow."""

WALKED, TO_BE_WALKED, TO_BE_ENTERED = -1, -2, -3
"""What a directory has instead of a length: all below it follows; nobody has come to it; it is left to the scan."""

INCOMPLETE: Final = (b"._COPYING_", b".tmp")
"""How names end of copies that are not complete."""

_MAY_HIDE: Final = (b".", b"_")
_DEEPEST: Final = 100
"""So many levels are gone down from one directory."""

_FEW: Final = 8
"""So many files are examined by their whole paths: from the directory's descriptor it is not worth opening it."""


def examined(directory: bytes, names: Sequence[bytes]) -> Columns | None:
    """The versions of files in a directory; None unless every name is a file, and can be examined."""
    found = _found(directory, names)
    return found[1] if found is not None and _are(stat.S_ISREG, found[0]) else None


def listed(directory: bytes, most_entries: int) -> tuple[list[bytes], Columns] | None:
    """A directory's entries by their bytes, directories with a slash at the end, and their versions.

    Args:
        directory: It.
        most_entries: A larger one is left to the scan, which goes through it in parts.

    Returns:
        None where there are too many, or one that is neither a file nor a directory, or nothing can be said. What a
        directory has instead of a length is TO_BE_ENTERED.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    if len(names) > most_entries:
        return None
    names.sort()
    if (found := _found(directory, names)) is None:
        return None
    modes, columns = found
    if _are(stat.S_ISREG, modes):
        return names, columns
    if not _are(lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode), modes):
        return None
    if _are(stat.S_ISDIR, modes):
        count = len(names)
        return sorted(name + b"/" for name in names), (array("q", [TO_BE_ENTERED]) * count, *_nothing(count))
    entries: list[tuple[bytes, int, int, int]] = sorted(
        (name + b"/", TO_BE_ENTERED, 0, 0) if stat.S_ISDIR(mode) else (name, size, mtime, inode)
        for name, mode, size, mtime, inode in zip(names, modes, *columns, strict=True)
    )
    columns = _no_columns()
    _extend(columns, zip(*(version for _, *version in entries), strict=True))
    return [name for name, *_ in entries], columns


def _nothing(count: int) -> tuple[array[int], array[int]]:
    return array("q", [0]) * count, array("q", [0]) * count


class _Descent:
    """Goes down from directories, as a scan does that takes all below them.

    Not entered are links, because one may lead back up, names that a scan may pass over, and what cannot be listed.

    Args:
        most_entries: Where so many were found below one that was asked for, no further directory is begun; a larger
            directory is not entered.
        passed_over: Matches names of directories that the scan passes over.
    """

    def __init__(self, most_entries: int, passed_over: re.Pattern[str] | None) -> None:
        self._most = self._room = most_entries
        self._passed_over = passed_over
        self.names: list[bytes] = []
        self.columns = _no_columns()

    def enter(self, directory: bytes, name: bytes, depth: int = 0) -> bool:
        """Append a directory, whose path begins with directory and goes on with name, and what is below it.

        Returns:
            False where it is left to the scan; nothing was appended.
        """
        path = directory + name
        if not depth:
            # What is asked for is finished, if it can be: the walk has to wait for what is left over.
            self._room = len(self.names) + self._most
        if os.path.islink(path[:-1]) or (found := listed(path, self._most)) is None:
            return False
        self.names.append(name)
        _append(self.columns, WALKED)
        own, versions = found
        names = [name + each for each in own]
        if TO_BE_ENTERED not in versions[0]:
            self.names += names
            _extend(self.columns, versions)
            return True
        for each, bare, *version in zip(names, own, *versions, strict=True):
            if version[0] != TO_BE_ENTERED:
                self.names.append(each)
                _extend(self.columns, ([number] for number in version))
            elif self._passes_over(bare):
                self._leave(each, TO_BE_ENTERED)
            elif len(self.names) >= self._room or depth == _DEEPEST:
                self._leave(each, TO_BE_WALKED)
            elif not self.enter(directory, each, depth + 1):
                self._leave(each, TO_BE_ENTERED)
        return True

    def _leave(self, name: bytes, size: int) -> None:
        self.names.append(name)
        _append(self.columns, size)

    def _passes_over(self, name: bytes) -> bool:
        bare = name[:-1]
        if bare.startswith(_MAY_HIDE) or bare.endswith(INCOMPLETE):
            return True
        return self._passed_over is not None and self._passed_over.fullmatch(os.fsdecode(bare)) is not None


def _found(directory: bytes, names: Sequence[bytes]) -> tuple[array[int], Columns] | None:
    """The modes and the versions of files in a directory; None unless each can be examined."""
    modes, columns = array("q"), _no_columns()
    examine = os.stat
    if len(names) <= _FEW:
        below = directory if directory.endswith(b"/") else directory + b"/"
        try:
            found = [examine(below + name) for name in names]
        except OSError:
            return None
        for one in found:
            modes.append(one.st_mode)
            _append(columns, one.st_size, _bounded(one.st_mtime_ns), one.st_ino)
        return modes, columns
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # From the directory's descriptor the kernel has one name to look up, not all of the path.
        for start in range(0, len(names), AT_ONCE):
            found = [examine(name, dir_fd=descriptor) for name in names[start : start + AT_ONCE]]
            modes.fromlist([one.st_mode for one in found])
            columns[0].fromlist([one.st_size for one in found])
            try:
                columns[1].fromlist([one.st_mtime_ns for one in found])
            except OverflowError:
                columns[1].fromlist([_bounded(one.st_mtime_ns) for one in found])
            columns[2].fromlist([one.st_ino for one in found])
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return modes, columns


def _are(kind: Callable[[int], bool], modes: array[int]) -> bool:
    # Of thousands of files there are few modes.
    return all(map(kind, set(modes)))


def answer(request: bytes) -> bytes:
    """What a helper says to a request: native 64-bit numbers, and names.

    Args:
        request: EXAMINE and groups, joined by two NULs, each a directory and names in it, joined by NULs. LIST, how
            many entries are to be listed at most, and directories, joined by NULs. WALK, the same number, the pattern
            of the directories that are passed over, or nothing, and directories with a slash at the end.

    Returns:
        To EXAMINE: for each group whether its versions follow; then of all these files the lengths, then the
        modification times, then the inodes. To LIST: for each directory what became of it, how many entries follow,
        and how many bytes of names; then the versions as above; then the names, each with a NUL behind it. To WALK:
        the same; a directory's entries are itself, by its name, and what is below it, by the paths from there.
    """
    answer_to = {EXAMINE: _examined_all, LIST: _listed_all, WALK: _walked_all}
    return answer_to[request[:1]](request[1:])


def _examined_all(request: bytes) -> bytes:
    told = array("q")
    columns = _no_columns()
    for group in request.split(b"\0\0"):
        directory, *names = group.split(b"\0")
        found = examined(directory, names)
        told.append(found is not None)
        _extend(columns, found or ())
    return b"".join(column.tobytes() for column in (told, *columns))


def _listed_all(request: bytes) -> bytes:
    number, *directories = request.split(b"\0")
    names: list[bytes] = []
    columns = _no_columns()

    def add(directory: bytes) -> bool:
        if (found := listed(directory, int(number))) is None:
            return False
        names.extend(found[0])
        _extend(columns, found[1])
        return True

    return _added(directories, int(number), add, names, columns)


def _walked_all(request: bytes) -> bytes:
    number, passed_over, *directories = request.split(b"\0")
    descent = _Descent(int(number), re.compile(os.fsdecode(passed_over)) if passed_over else None)

    def add(directory: bytes) -> bool:
        start = directory.rindex(b"/", 0, -1) + 1
        return descent.enter(directory[:start], directory[start:])

    return _added(directories, int(number), add, descent.names, descent.columns)


def _added(
    directories: list[bytes], most: int, add: Callable[[bytes], bool], names: list[bytes], columns: Columns
) -> bytes:
    """What is said of directories, each of which add() appends to the names and the columns if it can."""
    told = array("q")
    joined: list[bytes] = []
    for directory in directories:
        before = len(names)
        # No other is begun after so many.
        if before >= most:
            told.extend((NOT_REACHED, 0, 0))
        elif add(directory):
            joined.append(b"\0".join([*names[before:], b""]))
            told.extend((LISTED, len(names) - before, len(joined[-1])))
        else:
            told.extend((LEFT, 0, 0))
    return b"".join([*(column.tobytes() for column in (told, *columns)), *joined])


def _bounded(nanoseconds: int) -> int:
    # As dagflow.storage.local_disk.bounded_ns, which is not to be had here.
    return max(-(1 << 63), min(nanoseconds, (1 << 63) - 1))


def _no_columns() -> Columns:
    return array("q"), array("q"), array("q")


def _append(columns: Columns, size: int, mtime: int = 0, inode: int = 0) -> None:
    columns[0].append(size)
    columns[1].append(mtime)
    columns[2].append(inode)


def _extend(columns: Columns, found: Iterable[Iterable[int]]) -> None:
    for column, values in zip(columns, found, strict=False):
        column.extend(values)


def framed(message: bytes) -> bytes:
    """A message as it is sent: after its length."""
    return array("q", [len(message)]).tobytes() + message


def received(source: IO[bytes]) -> bytes | None:
    """The next message; None where it ends before it is complete."""
    if len(length := source.read(8)) < 8:
        return None
    size = array("q", length)[0]
    message = source.read(size)
    return message if len(message) == size else None


if __name__ == "__main__":
    # Ctrl-C goes to every process of a terminal, and the run that asks is allowed to end cleanly.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing here refers to itself, and looking for that among thousands of versions takes a fifth of the time.
    gc.disable()
    while (asked := received(sys.stdin.buffer)) is not None:
        sys.stdout.buffer.write(framed(answer(asked)))
        sys.stdout.buffer.flush()
