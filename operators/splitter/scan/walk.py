"""A depth-first walk below one root, by the bytes of the paths."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterator
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

_SLASH = ord("/")

NAMELESS = "an object with content whose key ends in a slash, left out: copy it to another key to read it"
READ_ALREADY = "a link to something that is read under its own name, left out"
WRITTEN = "a link leads to where the app writes, or below, left out; name that directory itself to read it"

FIRST_STEP, LAST_STEP = 64, 8192
"""Files that a scan emits at a time: few at first, as the first window waits for them; larger steps cost less."""


class _Piece(NamedTuple):
    """Selected entries of a directory.

    Attributes:
        after: The states below that directory; None for other entries.
    """

    entries: Entries
    after: States | None


class _Level(NamedTuple):
    """A directory on the path of the walk."""

    directory: bytes
    pieces: Iterator[_Piece]
    depth: int = 0
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
            for entries in step:
                names, stats = entries.names, entries.stats
                if stats is None:
                    names, stats = self._lister.stats(entries.directory, names)
                keys += [entries.directory + name for name in names]
                versions.append(stats)
            if keys:
                yield ListedFiles(self._root, keys, ListedStats.concatenated(versions))

    def _steps(self) -> Iterator[list[Entries]]:
        step: list[Entries] = []
        count, size = 0, FIRST_STEP
        for entries in self._selected():
            done = 0
            while done < len(entries):
                step.append(part := entries.slice(done, done + size - count))
                count += len(part)
                done += len(part)
                if count == size:
                    yield step
                    step, count, size = [], 0, min(2 * size, LAST_STEP)
        if step:
            yield step

    def _selected(self) -> Iterator[Entries]:
        """The selected entries of all directories, with the directory of each."""
        base = below(self._root.base)
        ancestors = [self._lister.identity(base)]
        levels = [_Level(base, self._pieces(base, self._filter.first, self._lister.entries(base)))]
        while levels:
            directory, pieces, depth, is_linked = levels[-1]
            piece = next(pieces, None)
            if piece is None:
                levels.pop()
                del ancestors[depth:]
            elif piece.after is None:
                yield Entries(piece.entries.names, piece.entries.stats, directory=directory)
            else:
                (name,), depth = piece.entries.names, len(ancestors)
                key = directory + name
                is_link = self._lister.is_link(key)
                if (descent := self._enter(directory, name, ancestors, is_link=is_link)) is not None:
                    if self._filter.is_selected(piece.after):
                        yield Entries([name], ListedStats.of([DIRECTORY]), directory=directory)
                    is_linked = is_linked or is_link
                    pieces = self._pieces(key, piece.after, descent, is_linked=is_linked)
                    levels.append(_Level(key, pieces, depth, is_linked))

    def _pieces(
        self, directory: bytes, states: States, listing: Iterator[Entries], *, is_linked: bool = False
    ) -> Iterator[_Piece]:
        """The selected entries of a listing: single directories that are to be entered, and the rest."""
        for listed in listing:
            if listed.names[:1] == [b""]:
                listed = self._without_nameless(directory, states, listed)
            entries = self._without_linked(directory, states, listed, is_linked=is_linked)
            names = entries.names
            positions = [at for at, name in enumerate(names) if name.endswith(b"/")] if b"/" in b"".join(names) else []
            may_walk = not is_linked and self._elsewhere is None
            is_whole = self._queue(directory, states, names, positions, may_walk=may_walk)
            start = 0
            for first, end in _ranges(positions, is_whole):
                if start < first:
                    yield from self._files(states, entries.slice(start, first))
                start = end
                if is_whole[first]:
                    yield from self._whole_trees(directory, names[first:end])
                elif after := self._filter.after(states, names[first]):
                    yield _Piece(entries.slice(first, end), after)
            if start < len(names):
                yield from self._files(states, entries.slice(start, len(names)))

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

    def _queue(
        self, directory: bytes, states: States, names: list[bytes], positions: list[int], *, may_walk: bool
    ) -> bytearray:
        """Queue the subdirectories that will be entered.

        A lister may walk a directory by itself if everything below it is selected, but not behind a link: each
        directory there may be one that the walk is in, and only the walk knows its ancestors.

        Returns:
            For each name whether the lister may walk it.
        """
        is_whole, entered = bytearray(len(names)), positions
        if self._filter.enters_all(states, names):
            for at in positions:
                is_whole[at] = may_walk
        else:
            reached = {at: self._filter.reached(states, names[at]) for at in positions}
            entered = [at for at, (after, is_ignored) in reached.items() if after and not is_ignored]
            for at in entered:
                is_whole[at] = may_walk and reached[at][0] is EVERYTHING
        self._lister.queue((directory + names[at] for at in entered if is_whole[at]), is_whole_tree=True)
        self._lister.queue(directory + names[at] for at in entered if not is_whole[at])
        return is_whole

    def _whole_trees(self, directory: bytes, names: list[bytes]) -> Iterator[_Piece]:
        """The trees below directories in which everything is selected, as far as the lister has walked them."""
        self._filter.has_matched = True
        for entries in self._lister.walked(directory, names):
            if entries.is_walked:
                yield from self._files(EVERYTHING, entries)
                continue
            parent, _, name = entries.names[0][:-1].rpartition(b"/")
            # The queued directories are known to be selected; others were left to the walk also for their names.
            if after := self._filter.after(EVERYTHING, name + b"/") if parent else EVERYTHING:
                yield _Piece(entries, after)

    def _files(self, states: States, entries: Entries) -> Iterator[_Piece]:
        if (selected := self._filter.selected(states, entries)).names:
            yield _Piece(selected, None)

    def _enter(
        self, directory: bytes, name: bytes, ancestors: list[object], *, is_link: bool
    ) -> Iterator[Entries] | None:
        """The listing of a directory, which becomes the last ancestor; None if it is gone, or a loop of links."""
        parents = [name[: slash + 1] for slash, character in enumerate(name[:-1]) if character == _SLASH]
        try:
            between = [self._lister.identity(directory + path) for path in parents]
            identity = self._lister.identity(directory + name)
            # The walk enters directories from above, except through a link: it has not seen the directories above a
            # link's target.
            above = self._lister.identities_above(directory + name) if is_link else []
            is_loop = identity in ancestors or identity in between or (is_link and identity in self._above_root)
        except MissingError:
            return None
        if is_loop:
            self._notices.say("a link leads back to where it lies, left out", directory + name)
            return None
        ancestors += [*between, *above, identity]
        return self._listing(directory + name)

    def _listing(self, directory: bytes) -> Iterator[Entries]:
        try:
            yield from self._lister.entries(directory)
        except MissingError:
            logger.info("directory went away during the scan path=%s", self._lister.url(directory))


def _ranges(positions: list[int], is_whole: bytearray) -> Iterator[tuple[int, int]]:
    """Half-open ranges of positions: consecutive whole trees together, each other directory by itself."""
    numbered = enumerate(positions)
    for _, group in itertools.groupby(numbered, lambda item: item[1] - item[0] if is_whole[item[1]] else item):
        row = [at for _, at in group]
        yield row[0], row[-1] + 1
