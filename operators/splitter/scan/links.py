"""Where links lead: the directories that an app writes into, and the names under which a scan reads files directly."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from dagflow.storage.location import absolute, is_local
from operators.splitter.scan.scan_roots import Root, below
from operators.splitter.scan.selection import EVERYTHING, NameFilter, Selection, States


class OutputLocations:
    """Directories of this machine that an app writes into, under their names without links."""

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
        return OutputLocations(directory for directory in self._directories if not base.startswith(directory))

    def hold(self, path: bytes) -> bool:
        return bool(self._directories) and _real(path).startswith(tuple(self._directories))

    def may_be_below(self, directory: bytes) -> bool:
        real = _real(directory) if self._directories else b""
        return any(written.startswith(real) for written in self._directories)


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


class OwnNames:
    """The names without links under which a scan reads files of this machine."""

    def __init__(self, roots: Sequence[Root], selection: Selection) -> None:
        self._roots = [root for root in roots if root.is_local]
        self._selection = selection

    @cached_property
    def _real_bases(self) -> list[tuple[Root, bytes]]:
        """The roots that are no links themselves, with their bases."""
        return [(root, _with_real_parent(root.base)) for root in self._roots if not os.path.islink(root.base)]

    @cached_property
    def _unlinked(self) -> list[Root]:
        return [root for root in self._roots if os.path.realpath(root.base) == root.base]

    def elsewhere(self, root: Root) -> OwnNames | None:
        """For a root with a link in its path, what roots without links read of it; None if they read nothing of it."""
        if not root.is_local or (real := os.path.realpath(root.base)) == root.base:
            return None
        beside = below(real)
        others = [root for root in self._unlinked if _is_one_in_other(below(root.base), beside)]
        return OwnNames(others, self._selection) if others else None

    def reads(self, path: bytes) -> bool:
        """Whether the target of a link, or of a path through links, exists and is read under its own name.

        For a directory, whether everything below it is read.

        Args:
            path: The path; b"/" at its end is allowed.
        """
        if not os.path.exists(path):
            return False
        real, is_directory = os.path.realpath(path), os.path.isdir(path)
        return any(self._is_read(root, base, real, is_directory=is_directory) for root, base in self._real_bases)

    def may_read_in(self, directory: bytes) -> bool:
        """Whether a file directly in a directory that is reached through links may be read under its own name."""
        real = os.path.realpath(directory)
        return any(real == os.path.dirname(base) or below(real).startswith(below(base)) for _, base in self._real_bases)

    def _is_read(self, root: Root, base: bytes, real: bytes, *, is_directory: bool) -> bool:
        if root.kind == "file":
            return real == base
        if not below(real).startswith(below(base)):
            return False
        filter = NameFilter(root, self._selection, Counter())
        states: States = filter.first
        inner = real[len(below(base)) :]
        names = inner.split(b"/") if inner else []
        for name in names if is_directory else names[:-1]:
            states, is_ignored = filter.reached(states, name + b"/")
            if not states or is_ignored:
                return False
        if is_directory:
            return states is EVERYTHING and self._selection.recursive
        states, is_ignored = filter.reached(states, names[-1])
        return bool(states) and not is_ignored and filter.is_selected(states)


def _is_one_in_other(one: bytes, other: bytes) -> bool:
    return one.startswith(other) or other.startswith(one)


def _with_real_parent(path: bytes) -> bytes:
    directory, name = os.path.split(path)
    return os.path.join(os.path.realpath(directory), name)
