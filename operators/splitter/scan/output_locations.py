"""The directories that an app writes into: whether a scan would read or reach them; they may not exist yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from dagflow.storage.location import absolute, is_local
from operators.splitter.scan.scan_roots import Root, below
from operators.splitter.scan.selection import NameFilter, Selection


class OutputLocations:
    """Directories of this machine that an app writes into, under their names without links.

    Args:
        directories: Their paths without links, each with "/" at its end.
    """

    def __init__(self, directories: Iterable[bytes] = ()) -> None:
        self._directories = list(directories)

    @classmethod
    def of(cls, urls: Iterable[str]) -> OutputLocations:
        """The directories behind some locations on this machine, as links lead now."""
        return cls(_real(os.fsencode(absolute(url))) for url in urls if is_local(url))

    def elsewhere(self, root: Root) -> OutputLocations:
        """The directories that a root is not in: if a root is within one, the app reads it on purpose."""
        if not root.is_local or not self._directories:
            return NOTHING_WRITTEN
        base = _real(root.base)
        return OutputLocations(each for each in self._directories if not base.startswith(each))

    def hold(self, path: bytes) -> bool:
        return bool(self._directories) and _real(path).startswith(tuple(self._directories))

    def may_be_below(self, directory: bytes) -> bool:
        real = _real(directory) if self._directories else b""
        return any(each.startswith(real) for each in self._directories)


NOTHING_WRITTEN = OutputLocations()


def reads_all_in(root: Root, selection: Selection, directory: str) -> bool:
    """Whether a scan would read every file with an ordinary name in a directory.

    Args:
        selection: The names that it selects; with a pattern for files, the app has said what it reads.
    """
    if root.kind == "file" or selection.file_pattern is not None:
        return False
    filter = NameFilter(root, selection, Counter())
    return any(_reads_all_in(filter, names) for names in _ways_to(os.fsencode(absolute(directory)), root))


def _reads_all_in(filter: NameFilter, names: list[bytes]) -> bool:
    states = filter.first
    for name in names:
        states, is_ignored = filter.reached(states, name + b"/")
        if not states or is_ignored:
            return False
    return filter.selects_any(states)


def _ways_to(path: bytes, root: Root) -> Iterator[list[bytes]]:
    """The names of the directories between a root and a path, by each known way."""
    if not root.is_local:
        if below(path).startswith(below(root.base)):
            yield _names_between(below(root.base), path)
        return
    if not path.startswith(b"/"):
        return
    # A scan follows links: each directory above the path may be the root's, or below it, under another name.
    real_base = _real(root.base)
    head, rest = path, b""
    while True:
        real = _real(head)
        if real.startswith(real_base):
            yield _names_between(real_base, real + rest)
        if head == b"/":
            return
        head, name = os.path.split(head)
        rest = name + b"/" + rest


def _names_between(base: bytes, path: bytes) -> list[bytes]:
    return [name for name in path[len(base) :].split(b"/") if name]


def _real(path: bytes) -> bytes:
    return below(os.path.realpath(path))
