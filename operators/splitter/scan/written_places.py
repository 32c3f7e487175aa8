"""Written places: whether a scan would read what is written into a directory, which need not be there yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from dagflow.storage.location import absolute
from operators.splitter.scan.scan_roots import Root, below
from operators.splitter.scan.selection import NameFilter, Selection


def reads_all_in(root: Root, selection: Selection, directory: str) -> bool:
    """Whether a scan would read every file with an ordinary name that lies in a directory.

    Args:
        root: Where the scan begins.
        selection: Which names it selects; where it has a pattern for files, the app has said what it reads.
        directory: The directory, under any of its names.
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
    """The names of the directories between a root and a path, by each way that is known to lead there."""
    if not root.is_local:
        if below(path).startswith(below(root.base)):
            yield _names_between(below(root.base), path)
        return
    if not path.startswith(b"/"):
        return
    # A scan follows links: each directory above the path may be the root's, or below it, under another name.
    real_base = below(os.path.realpath(root.base))
    head, rest = path, b""
    while True:
        real = os.path.realpath(head)
        if below(real).startswith(real_base):
            yield _names_between(real_base, below(real) + rest)
        if head == b"/":
            return
        head, name = os.path.split(head)
        rest = name + b"/" + rest


def _names_between(base: bytes, path: bytes) -> list[bytes]:
    return [name for name in path[len(base) :].split(b"/") if name]
