"""Selects names for a scan: hidden names, patterns and globs."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dagflow.api.regular_expressions import matcher
from dagflow.metrics import names as metrics
from operators.splitter.scan.listing import INCOMPLETE_SUFFIXES, UNFINISHED_ENDS, Entries
from operators.splitter.scan.scan_roots import Root

_MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
_SUFFIXES = b"|".join(map(re.escape, INCOMPLETE_SUFFIXES))
HIDDEN = re.compile(rb"\..*|_(?:" + _MARKERS + rb")|.*(?:" + _SUFFIXES + rb")|.+~|#.+#", re.DOTALL)
"""Names that a scan skips: dot files; markers and staging directories of Hadoop, Spark and table formats; incomplete
copies; files that editors create beside a file. Unlike Hadoop it does not skip every name that begins with an
underscore, such as _vendor.
"""

_SKIPPED_ENDS = (*UNFINISHED_ENDS, *(end + b"/" for end in UNFINISHED_ENDS))
_SKIPPED_TAILS = tuple({end[-3:] for end in _SKIPPED_ENDS})
_LAST_BYTES = frozenset(end[-1:] for end in _SKIPPED_ENDS)

_ANY_NAME = "\N{REPLACEMENT CHARACTER}" * 8
"""A name that a segment of a glob matches only if it matches any name."""

States = frozenset[int]
"""Positions in a root's glob that a path has reached: indexes of the segments that its next name may match."""

EVERYTHING: States = frozenset({-1})
"""The states in which everything below is selected."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules by which a scan selects names.

    Attributes:
        file_pattern: Matches the whole name of each file that is selected; None for all.
        ignore_pattern: Matches the whole name of each file and directory that is skipped; None for none.
    """

    recursive: bool = True
    file_pattern: str | None = None
    ignore_pattern: str | None = None

    def selects_file(self, name: str) -> bool:
        return (self.file_pattern is None or matcher(self.file_pattern)(name)) and self.enters(name)

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

    def enters_all(self, states: States, names: list[bytes]) -> bool:
        """Whether, without a check of each, every directory of a sorted list is entered with everything below."""
        selection = self._selection
        is_plain = states is EVERYTHING and selection.recursive and selection.ignore_pattern is None
        return is_plain and not _may_be_hidden(names)

    def selected(self, states: States, entries: Entries) -> Entries:
        """The selected files among entries, and the walked directories, which all are."""
        names = entries.names
        chosen: Sequence[int]
        if _may_be_hidden(names, is_walked=entries.is_walked):
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


def _may_be_hidden(names: list[bytes], *, is_walked: bool = False) -> bool:
    """Whether a sorted list may have hidden names; a cheap test that saves most directories a check of each name."""
    for first in (b".", b"_"):
        position = bisect.bisect_left(names, first)
        if names[position : position + 1] and names[position].startswith(first):
            return True
    # Names in a directory have few different suffixes; these take a quarter of the time of a check of each name.
    tails = {name[-3:] for name in names}
    has_skipped_tail = any(tail.endswith(_SKIPPED_TAILS) for tail in tails if tail[-1:] in _LAST_BYTES)
    if has_skipped_tail and any(name.endswith(_SKIPPED_ENDS) for name in names):
        return True
    joined = b"\0".join(names) if is_walked else b""
    return b"/." in joined or b"/_" in joined
