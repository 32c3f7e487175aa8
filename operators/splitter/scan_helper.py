"""Lists directories and examines files, and is the program that does so in the helpers of a scan.

A helper runs this file alone, so that it is ready in some ten milliseconds: it imports nothing but Python.
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
"""Lengths in bytes, modification times in nanoseconds, inodes."""

AT_ONCE: Final = 256
"""So many files are examined before it is put into columns, which take 32 bytes a file: objects take 700."""

EXAMINE: Final = b"e"
LIST: Final = b"l"
"""What a request begins with."""

NOT_REACHED, LEFT, LISTED = range(3)
"""What became of a directory that was to be listed: nothing yet, it is left to the scan, its entries follow."""


def examined(directory: bytes, names: Sequence[bytes]) -> Columns | None:
    """The versions of files in a directory; None unless every name is a file, and can be examined."""
    found = _found(directory, names)
    return found[1] if found is not None and _are(stat.S_ISREG, found[0]) else None


def listed(directory: bytes, most_files: int) -> tuple[list[bytes], Columns] | None:
    """A directory's entries by their bytes, directories with a slash at the end, and their versions.

    Args:
        directory: It.
        most_files: A larger one is left to the scan, which goes through it in parts.

    Returns:
        None where there are too many, or one that is neither a file nor a directory, or nothing can be said. What a
        directory has instead of a length is -1.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    names.sort()
    if len(names) > most_files or (found := _found(directory, names)) is None:
        return None
    modes, columns = found
    if _are(stat.S_ISREG, modes):
        return names, columns
    if not _are(lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode), modes):
        return None
    entries: list[tuple[bytes, int, int, int]] = sorted(
        (name + b"/", -1, 0, 0) if stat.S_ISDIR(mode) else (name, size, mtime, inode)
        for name, mode, size, mtime, inode in zip(names, modes, *columns, strict=True)
    )
    columns = _no_columns()
    _extend(columns, zip(*(version for _, *version in entries), strict=True))
    return [name for name, *_ in entries], columns


def _found(directory: bytes, names: Sequence[bytes]) -> tuple[array[int], Columns] | None:
    """The modes and the versions of files in a directory; None unless each can be examined."""
    modes, columns = array("q"), _no_columns()
    examine = os.stat
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
            columns[1].fromlist([one.st_mtime_ns for one in found])
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
        request: EXAMINE and groups, joined by two NULs, each a directory and names in it, joined by NULs; or LIST, how
            many files are to be listed at most and directories, joined by NULs.

    Returns:
        To EXAMINE: for each group whether its versions follow; then of all these files the lengths, then the
        modification times, then the inodes. To LIST: for each directory what became of it, how many entries follow,
        and how many bytes of names; then the versions as above; then the names, in each directory joined by NULs.
    """
    return (_listed_all if request.startswith(LIST) else _examined_all)(request[1:])


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
    told = array("q")
    columns = _no_columns()
    joined: list[bytes] = []
    number, *directories = request.split(b"\0")
    most_files = int(number)
    for directory in directories:
        # No other is begun after so many.
        if len(columns[0]) >= most_files:
            told.extend((NOT_REACHED, 0, 0))
        elif (found := listed(directory, most_files)) is None:
            told.extend((LEFT, 0, 0))
        else:
            names, versions = found
            joined.append(b"\0".join(names))
            told.extend((LISTED, len(names), len(joined[-1])))
            _extend(columns, versions)
    return b"".join([*(column.tobytes() for column in (told, *columns)), *joined])


def _no_columns() -> Columns:
    return array("q"), array("q"), array("q")


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
