"""A depth-first walk below one root, by the bytes of the paths."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from dagflow.errors import MissingError
from dagflow.metrics import names as metrics
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listing import DIRECTORY, Entries, ListedStats, Notices
from operators.splitter.scan.scan_roots import Root, below
from operators.splitter.scan.selection import (
    EVERYTHING,
    NOTHING_WRITTEN,
    NameFilter,
    OutputLocations,
    OwnNames,
    Selection,
    States,
)

logger = logging.getLogger(__name__)

NAMELESS = "an object with content whose key ends in a slash, left out: copy it to another key to read it"
READ_ALREADY = "a link to something that is read under its own name, left out"
WRITTEN = "a link leads to where the app writes, or below, left out; name that directory itself to read it"

_ONE_DIRECTORY = ListedStats.of([DIRECTORY])

FIRST_STEP, LAST_STEP = 64, 8192
"""Files that a scan emits at a time: few at first, as the first window waits for them; larger steps cost less."""


class _Piece(NamedTuple):
    """Selected files of a directory, or a directory in it that the walk enters.

    Attributes:
        entries: The files; None for a directory.
        name: The directory, with "/" at its end.
        states: The states below the directory.
        is_link: Whether the directory is a link to one.
    """

    entries: Entries | None
    name: bytes = b""
    states: States = EVERYTHING
    is_link: bool = False


class _Level(NamedTuple):
    """A directory on the path of the walk.

    Attributes:
        above: The identities of the directories above it that the walk has not seen, because a link leads here.
        is_linked: Whether the walk has come to it through a link.
    """

    directory: bytes
    pieces: Iterator[_Piece]
    above: Sequence[object] = ()
    is_linked: bool = False


class Walk:
    """A depth-first walk below one root."""

    def __init__(
        self,
        root: Root,
        selection: Selection,
        counters: Counter[str],
        own_names: OwnNames,
        notices: Notices,
        written: OutputLocations = NOTHING_WRITTEN,
    ) -> None:
        self._root = root
        self._counters = counters
        self._own_names = own_names
        self._elsewhere = own_names.elsewhere(root)
        self._notices = notices
        self._lister = root.lister
        self._filter = NameFilter(root, selection, counters)
        self._written = written.elsewhere(root)

    @cached_property
    def _above_root(self) -> frozenset[object]:
        """The directories above the root, which only a link can lead back to."""
        return frozenset(self._lister.identities_above(self._root.base))

    @property
    def has_matched(self) -> bool:
        return self._filter.has_matched

    def steps(self) -> Iterator[ListedFiles]:
        """Every selected file and directory below the root, by path, in steps that grow."""
        for step in self._steps():
            keys, versions = list[bytes](), list[ListedStats]()
            for directory, entries in step:
                names, stats = entries.names, entries.stats
                if stats is None:
                    names, stats = self._lister.stats(directory, names)
                keys += [directory + name for name in names]
                versions.append(stats)
            if keys:
                yield ListedFiles(self._root, keys, ListedStats.concatenated(versions))

    def _steps(self) -> Iterator[list[tuple[bytes, Entries]]]:
        step: list[tuple[bytes, Entries]] = []
        count, size = 0, FIRST_STEP
        for directory, entries in self._selected():
            done, end = 0, len(entries)
            while done < end:
                taken = min(size - count, end - done)
                step.append((directory, entries.slice(done, done + taken)))
                count, done = count + taken, done + taken
                if count == size:
                    yield step
                    step, count, size = [], 0, min(2 * size, LAST_STEP)
        if step:
            yield step

    def _selected(self) -> Iterator[tuple[bytes, Entries]]:
        """The selected entries of all directories, each with the path of its directory."""
        base = below(self._root.base)
        levels = [_Level(base, self._pieces(base, self._filter.first, self._lister.entries(base)))]
        while levels:
            directory, pieces, _, is_linked = levels[-1]
            piece = next(pieces, None)
            if piece is None:
                levels.pop()
            elif piece.entries is not None:
                yield directory, piece.entries
            elif (above := self._above(piece, levels)) is not None:
                if self._filter.is_selected(piece.states):
                    yield directory, Entries([piece.name], _ONE_DIRECTORY)
                path, is_linked = directory + piece.name, is_linked or piece.is_link
                pieces = self._pieces(path, piece.states, self._listing(path), is_linked=is_linked)
                levels.append(_Level(path, pieces, above, is_linked))

    def _pieces(
        self, directory: bytes, states: States, listing: Iterator[Entries], *, is_linked: bool = False
    ) -> Iterator[_Piece]:
        """The selected entries of a listing."""
        for listed in listing:
            if listed.names[:1] == [b""]:
                listed = self._without_nameless(directory, states, listed)
            entries = self._without_linked(directory, states, listed, is_linked=is_linked)
            names, start = entries.names, 0
            if b"/" in b"".join(names):
                entered = self._entered(states, names)
                # Behind a link a directory may be one that the walk is in, and only the walk knows its ancestors.
                may_go_on = not is_linked and self._elsewhere is None
                for is_whole in (True, False):
                    reached = (at for at, after in entered if after and (may_go_on and after is EVERYTHING) == is_whole)
                    self._lister.queue((directory + names[at] for at in reached), is_whole_tree=is_whole)
                for at, after in entered:
                    if start < at:
                        yield from self._files(states, entries.slice(start, at))
                    start = at + 1
                    if after:
                        yield _Piece(None, names[at], after, names[at] in entries.links)
            if start < len(names):
                yield from self._files(states, entries.slice(start, len(names)))

    def _entered(self, states: States, names: list[bytes]) -> list[tuple[int, States]]:
        """The directories among names, by their positions, with the states below them: none for one that is skipped."""
        positions = [at for at, name in enumerate(names) if name.endswith(b"/")]
        if self._filter.enters_all(states, names):
            self._filter.has_matched = True
            return [(at, EVERYTHING) for at in positions]
        return [(at, self._filter.after(states, names[at])) for at in positions]

    def _without_nameless(self, directory: bytes, states: States, entries: Entries) -> Entries:
        """The entries after the first one, a file whose key ends in a slash: such a key counts as a directory."""
        if self._filter.is_selected(self._filter.after(states, b"")):
            self._counters[metrics.IGNORED] += 1
            self._notices.say(NAMELESS, directory)
        return entries.slice(1, len(entries))

    def _without_linked(self, directory: bytes, states: States, entries: Entries, *, is_linked: bool) -> Entries:
        """The entries without what links lead to, if that is read under its own name, or if the app writes into it.

        Each run would read the output of the run before it. If the root itself would read a directory that the app
        writes into, this is refused before the run starts; the targets of links in the input are not known by then.
        """
        known = self._own_names if is_linked else self._elsewhere
        if known is not None and not known.may_read_in(directory):
            known = None
        is_near_output = is_linked and self._written.may_be_below(directory)
        if known is None and not is_near_output and not entries.links:
            return entries
        left_out: dict[bytes, str] = {}
        for name in entries.names:
            is_link = name in entries.links
            own_names = self._own_names if is_link else known
            may_be_written = name.endswith(b"/") and (is_near_output or is_link)
            if own_names is None and not may_be_written:
                continue
            after, is_ignored = self._filter.reached(states, name)
            if not after or is_ignored:
                continue
            if own_names is not None and own_names.reads(directory + name):
                left_out[name] = READ_ALREADY
            elif may_be_written and self._written.hold(directory + name):
                left_out[name] = WRITTEN
        if not left_out:
            return entries
        self._filter.has_matched = True
        self._counters[metrics.IGNORED] += len(left_out)
        for name, why in left_out.items():
            self._notices.say(why, directory + name)
        return entries.without(frozenset(left_out))

    def _files(self, states: States, entries: Entries) -> Iterator[_Piece]:
        if (selected := self._filter.selected(states, entries)).names:
            yield _Piece(selected)

    def _above(self, piece: _Piece, levels: Sequence[_Level]) -> Sequence[object] | None:
        """The directories above what a link leads to; None where it is gone, or one that the walk is in or below."""
        if not piece.is_link:
            return ()
        path = levels[-1].directory + piece.name
        try:
            identity, above = self._lister.identity(path), self._lister.identities_above(path)
            within = {self._lister.identity(level.directory) for level in levels}
        except MissingError:
            return None
        if identity in within or identity in self._above_root or any(identity in level.above for level in levels):
            self._notices.say("a link leads back to where it lies, left out", path)
            return None
        return above

    def _listing(self, directory: bytes) -> Iterator[Entries]:
        try:
            yield from self._lister.entries(directory)
        except MissingError:
            logger.info("directory went away during the scan path=%s", self._lister.url(directory))
