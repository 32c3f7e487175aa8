"""Selects names for a scan: hidden names, patterns and globs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import re2

from dagflow.api.regular_expressions import matcher
from dagflow.frozen import frozen
from dagflow.metrics import names as metrics
from dagflow.storage.location import ARCHIVE_NAME, absolute, is_archive_name, is_local
from operators.splitter.scan.listing import INCOMPLETE_SUFFIXES, UNFINISHED_ENDS, Entries
from operators.splitter.scan.scan_roots import Root, below

_MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
_SUFFIXES = b"|".join(map(re.escape, INCOMPLETE_SUFFIXES))
HIDDEN = re.compile(rb"\..*|_(?:" + _MARKERS + rb")|.*(?:" + _SUFFIXES + rb")|.+~|#.+#", re.DOTALL)
"""Names that a scan skips: dot files; markers and staging directories of Hadoop, Spark and table formats; incomplete
copies; files that editors create beside a file. Unlike Hadoop it does not skip every name that begins with an
underscore, such as _vendor.
"""

ARCHIVE_END = re.compile(rb"(?:%b)\0" % ARCHIVE_NAME.encode(), re.IGNORECASE)
"""The end of the name of an archive, with a zero byte behind it."""

_ANY_NAME = "\N{REPLACEMENT CHARACTER}" * 8
"""A name that a segment of a glob matches only if it matches any name."""

States = frozenset[int]
"""Positions in a root's glob that a path has reached: indexes of the segments that its next name may match."""

EVERYTHING: States = frozenset({-1})
"""The states in which everything below is selected."""


@frozen
class Selection:
    """The rules by which a scan selects names.

    Attributes:
        file_pattern: Matches the whole name of each file that is selected; None for all.
        ignore_pattern: Matches the whole name of each file and directory that is skipped; None for none.
        archives: Whether archives are selected as files, `whole`, or each of their members is by its name, `open`; or
            archives are files only if finding their members takes decompressing them, `estimated`.
    """

    recursive: bool = True
    file_pattern: str | None = None
    ignore_pattern: str | None = None
    archives: str = "open"

    def selects_file(self, name: str) -> bool:
        is_opened = self.archives != "whole" and is_archive_name(name)
        is_named = self.file_pattern is None or is_opened or matcher(self.file_pattern)(name)
        return is_named and self.enters(name)

    def opens(self, name: str) -> bool:
        """Whether the members of a file are read in its place."""
        is_indexed = name.lower().endswith((".zip", ".tar"))
        return is_archive_name(name) and (self.archives == "open" or (self.archives == "estimated" and is_indexed))

    def selects_member(self, path: str) -> bool:
        """Whether a member of an archive is selected, which is searched like a directory."""
        *directories, name = path.split("/")
        if HIDDEN.fullmatch(os.fsencode(name)) or any(HIDDEN.fullmatch(os.fsencode(each)) for each in directories):
            return False
        is_entered = not directories or (self.recursive and all(map(self.enters, directories)))
        return is_entered and self.selects_file(name)

    def enters(self, name: str) -> bool:
        return self.ignore_pattern is None or not matcher(self.ignore_pattern)(name)


class NameFilter:
    """Applies a selection, and the root's glob, to names.

    Attributes:
        has_matched: Whether the root's glob has matched a name, selected or skipped.
    """

    def __init__(self, root: Root, selection: Selection, counters: Counter[str]) -> None:
        self._root = root
        self._selection = selection
        self._counters = counters
        self.has_matched = False

    @property
    def first(self) -> States:
        return EVERYTHING if self._root.kind == "directory" else self._closed(frozenset({0}))

    def is_selected(self, states: States) -> bool:
        """Whether a name that led to these states is selected itself."""
        return states is EVERYTHING or len(self._root.segments) in states

    def selects_any(self, states: States) -> bool:
        """Whether every file with an ordinary name is selected in a directory that led to these states."""
        # A directory that a glob has matched is scanned.
        return self.is_selected(states) or self.is_selected(self._next(states, _ANY_NAME, False, False))

    def below(self, directories: Iterable[bytes]) -> States:
        """The states below directories, each of which is in the one before; empty if one is not entered."""
        states = self.first
        for name in directories:
            states, is_ignored = self.reached(states, name + b"/")
            if not states or is_ignored:
                return frozenset()
        return states

    def enters_all(self, states: States, names: list[bytes]) -> bool:
        """Whether, without a check of each, every directory of a sorted list is entered with everything below."""
        selection = self._selection
        is_plain = states is EVERYTHING and selection.recursive and selection.ignore_pattern is None
        return is_plain and not _may_be_hidden(names)

    def selected(self, states: States, entries: Entries) -> Entries:
        """The selected files among entries, and the walked directories, which all are."""
        names = entries.names
        chosen: Sequence[int]
        if _may_be_hidden(names):
            chosen = [index for index, name in enumerate(names) if self._selects(states, name)]
        else:
            chosen = self._select_together(states, names)
        if len(chosen) == len(names):
            return entries
        kept = [names[index] for index in chosen]
        return Entries(kept, None if entries.stats is None else entries.stats.take(chosen))

    def _selects(self, states: States, path: bytes) -> bool:
        return path.endswith(b"/") or self.is_selected(self.after(states, path.rpartition(b"/")[2]))

    def _select_together(self, states: States, paths: list[bytes]) -> Sequence[int]:
        """Positions of the selected files, none of which is hidden: the result of after(), for all of them at once."""
        selection, segments = self._selection, self._root.segments
        has_patterns = selection.file_pattern is not None or selection.ignore_pattern is not None
        is_all = self.is_selected(states)
        chosen: Sequence[int] = range(len(paths))
        # No name has a NUL, and one call takes a fifth of the time of many.
        texts = [] if is_all and not has_patterns else self._root.lister.url(b"\0".join(paths)).split("\0")
        if not is_all:
            last = [state for state in states if len(segments) in self._closed(frozenset({state + 1}))]
            matches = [segment for state in last if (segment := segments[state]) is not None]
            chosen = sorted({index for match in matches for index, text in enumerate(texts) if match(text)})
        self.has_matched = self.has_matched or len(chosen) > 0
        if not has_patterns:
            return chosen
        # Patterns apply to the last part of a path, which a walked directory does not have.
        names = [text.rpartition("/")[2] for text in texts]
        kept = [index for index in chosen if not names[index] or selection.selects_file(names[index])]
        if len(kept) < len(chosen):
            self._counters[metrics.IGNORED] += len(chosen) - len(kept)
        return kept

    def after(self, states: States, name: bytes) -> States:
        """The states below an entry; empty if it is skipped, which is counted."""
        after, is_ignored = self.reached(states, name)
        if not after:
            return after
        self.has_matched = self.has_matched or self.is_selected(after)
        if is_ignored:
            self._counters[metrics.IGNORED] += 1
            return frozenset()
        return after

    def reached(self, states: States, name: bytes) -> tuple[States, bool]:
        """The states below an entry as if it were not skipped, and whether it is."""
        is_directory = name.endswith(b"/")
        bare = name[:-1] if is_directory else name
        is_hidden = HIDDEN.fullmatch(bare) is not None
        text = self._root.lister.url(bare)
        if states is EVERYTHING:
            after = EVERYTHING if not is_directory or self._selection.recursive else frozenset()
            is_skipped = is_hidden
        else:
            after = self._next(states, text, is_hidden, is_directory)
            is_skipped = False
        selects = self._selection.enters if is_directory else self._selection.selects_file
        return after, bool(after) and (is_skipped or not selects(text))

    def _next(self, states: States, name: str, is_hidden: bool, is_directory: bool) -> States:
        """The states after one more name; a directory in the last state is one that the glob matches."""
        segments = self._root.segments
        if len(segments) in states and (self._selection.recursive or not is_directory):
            # Everything below a directory that the glob matched is selected, as below a directory that is named.
            return frozenset() if is_hidden else EVERYTHING
        reached = set()
        for state in states - {len(segments)}:
            segment = segments[state]
            if segment is None and not is_hidden:
                reached.add(state)
            elif segment is not None and segment(name) and (not is_hidden or self._root.asks_hidden[state]):
                reached.add(state + 1)
        return self._closed(frozenset(reached))

    def _closed(self, states: States) -> States:
        """The states, and those behind each `**`, which may match no directory at all."""
        reached, segments = set(states), self._root.segments
        for state in sorted(states):
            while state < len(segments) and segments[state] is None:
                state += 1
                reached.add(state)
        return frozenset(reached)


_OPTIONS = re2.Options()
_OPTIONS.encoding = re2.Options.Encoding.LATIN1
_ENDS = b"|".join(map(re.escape, UNFINISHED_ENDS))
_MAYBE_HIDDEN = re2.compile(rb"(?:^|[\x00/])[._]|(?:" + _ENDS + rb")/?(?:\x00|$)", _OPTIONS)


def _may_be_hidden(names: list[bytes]) -> bool:
    """Whether some paths may have hidden names; a cheap test that saves most directories a check of each name."""
    return _MAYBE_HIDDEN.search(b"\0".join(names)) is not None


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
    ways = map(filter.below, _ways_to(os.fsencode(absolute(directory)), root))
    return any(states and filter.selects_any(states) for states in ways)


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
        bases = ((root, os.path.split(root.base)) for root in self._roots if not os.path.islink(root.base))
        return [(root, os.path.join(os.path.realpath(directory), name)) for root, (directory, name) in bases]

    @cached_property
    def _unlinked(self) -> list[Root]:
        return [root for root in self._roots if os.path.realpath(root.base) == root.base]

    def elsewhere(self, root: Root) -> OwnNames | None:
        """For a root with a link in its path, what roots without links read of it; None if they read nothing of it."""
        if not root.is_local or (real := os.path.realpath(root.base)) == root.base:
            return None
        beside = below(real)
        bases = [(root, below(root.base)) for root in self._unlinked]
        others = [root for root, base in bases if base.startswith(beside) or beside.startswith(base)]
        return OwnNames(others, self._selection) if others else None

    def reads(self, path: bytes) -> bool:
        """Whether the target of a link, or of a path through links, exists and is read under its own name.

        For a directory, with or without `/` at its end, whether everything below it is read.
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
        inner = real[len(below(base)) :]
        names = inner.split(b"/") if inner else []
        states = filter.below(names if is_directory else names[:-1])
        if is_directory:
            return states is EVERYTHING and self._selection.recursive
        states, is_ignored = filter.reached(states, names[-1]) if states else (states, True)
        return not is_ignored and filter.is_selected(states)
