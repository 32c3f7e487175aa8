"""A walk below one root: which of its directories are entered, and which files taken, by path."""

from __future__ import annotations

import bisect
import itertools
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dagflow.errors import MissingError
from dagflow.metrics import names
from operators.splitter.scan.listed_files import FoundFiles, Gathering
from operators.splitter.scan.listing import DIRECTORY, Entries, Stats
from operators.splitter.scan.roots import Root, below
from operators.splitter.scan.selection import HIDDEN, Selection
from operators.splitter.scan.stat_prefetch import Group, StatPrefetcher
from operators.splitter.scan.worker_program import INCOMPLETE

logger = logging.getLogger(__name__)

_EVERYTHING: frozenset[int] = frozenset({-1})
_SLASH = ord("/")

FIRST_STEP, LAST_STEP = 64, 8192
"""Files that a scan gives at a time: the first are wanted at once, later larger steps cost less."""


class _Piece(NamedTuple):
    """What is taken of a directory.

    Attributes:
        entries: A run of entries; or a single directory that is to be entered.
        after: The glob's states below that directory; None for a run.
    """

    entries: Entries
    after: frozenset[int] | None


class _Level(NamedTuple):
    """A directory that a walk is in.

    Attributes:
        directory: Its path.
        pieces: What is left of it.
        depth: How many ancestors it has.
        is_linked: Whether the walk has come through a link.
    """

    directory: bytes
    pieces: Iterator[_Piece]
    depth: int = 0
    is_linked: bool = False


class Walk:
    """A depth-first walk below one root.

    Attributes:
        has_matched: Whether the root's glob has matched anything, taken or not.
    """

    def __init__(self, root: Root, selection: Selection, counters: Counter[str], examiner: StatPrefetcher) -> None:
        self._root = root
        self._examiner = examiner
        self._lister = root.lister
        self._selection = selection
        self._counters = counters
        self.has_matched = False

    def steps(self) -> Iterator[FoundFiles]:
        """Every file and directory below the root that is taken, by path, in steps that grow."""
        for step in self._examiner.examined(self._lister, self._cut()):
            gathering = Gathering(self._root)
            for directory, bare, versions in step:
                if versions is not None:
                    gathering.add([directory + name for name in bare], versions)
            if len(gathering):
                yield gathering.take()

    def _cut(self) -> Iterator[list[Group]]:
        """The stretches in steps that grow."""
        step: list[Group] = []
        count, size = 0, FIRST_STEP
        for directory, bare, stats in self._stretches():
            done = 0
            while done < len(bare):
                part = bare[done : done + size - count]
                end = done + len(part)
                step.append(Group(directory, part, None if stats is None else stats.slice(done, end)))
                count += len(part)
                done = end
                if count == size:
                    yield step
                    step, count, size = [], 0, min(2 * size, LAST_STEP)
        if step:
            yield step

    def _stretches(self) -> Iterator[tuple[bytes, list[bytes], Stats | None]]:
        """Directories, names in them, and versions where the listing has brought these along."""
        states = _EVERYTHING if self._root.kind == "directory" else _closed(frozenset({0}), self._root)
        base = below(self._root.base)
        ancestors = [self._lister.identity(base)]
        levels = [_Level(base, self._pieces(base, states, self._lister.stretches(base)))]
        while levels:
            directory, pieces, depth, is_linked = levels[-1]
            piece = next(pieces, None)
            if piece is None:
                levels.pop()
                del ancestors[depth:]
            elif piece.after is None:
                yield directory, piece.entries.names, piece.entries.stats
            else:
                (name,), depth = piece.entries.names, len(ancestors)
                if (descent := self._enter(directory, name, ancestors)) is not None:
                    if _is_taken(piece.after, self._root):
                        yield directory, [name], Stats.of([DIRECTORY])
                    key = directory + name
                    is_linked = is_linked or self._lister.is_link(key)
                    pieces = self._pieces(key, piece.after, descent, is_linked=is_linked)
                    levels.append(_Level(key, pieces, depth, is_linked))

    def _pieces(
        self, directory: bytes, states: frozenset[int], listing: Iterator[Entries], *, is_linked: bool = False
    ) -> Iterator[_Piece]:
        """What is taken of the listing: single directories that are to be entered, and runs of the rest."""
        for entries in listing:
            names = entries.names
            positions = [at for at, name in enumerate(names) if name.endswith(b"/")] if b"/" in b"".join(names) else []
            entirely = self._expected(directory, states, names, positions, goes_down=not is_linked)
            start = 0
            for first, end in _rows(positions, entirely):
                if start < first:
                    yield from self._run(states, _part(entries, start, first))
                start = end
                if entirely[first]:
                    yield from self._entered(directory, names[first:end])
                elif after := self._after(states, names[first]):
                    yield _Piece(_part(entries, first, end), after)
            if start < len(names):
                yield from self._run(states, _part(entries, start, len(names)))

    def _expected(
        self, directory: bytes, states: frozenset[int], names: list[bytes], positions: list[int], *, goes_down: bool
    ) -> bytearray:
        """Let the lister know what directories are entered; gives for each name whether it may go down by itself.

        It may where all that is below is taken. Behind a link it may not: each directory may be one that the walk is
        in, and only the walk knows them.
        """
        entirely, entered = bytearray(len(names)), positions
        selection = self._selection
        if states is _EVERYTHING and selection.recursive and selection.ignore_pattern is None and not _may_hide(names):
            for at in positions:
                entirely[at] = goes_down
        else:
            reached = {at: self._reached(states, names[at]) for at in positions}
            entered = [at for at, (after, is_ignored) in reached.items() if after and not is_ignored]
            for at in entered:
                entirely[at] = goes_down and reached[at][0] is _EVERYTHING
        self._lister.expect((directory + names[at] for at in entered if entirely[at]), entirely=True)
        self._lister.expect(directory + names[at] for at in entered if not entirely[at])
        return entirely

    def _entered(self, directory: bytes, names: list[bytes]) -> Iterator[_Piece]:
        """What is below directories of which everything is taken, as far as the lister has gone down by itself."""
        self.has_matched = True
        for entries in self._lister.below(directory, names):
            if entries.is_walked:
                yield from self._run(_EVERYTHING, entries)
                continue
            above, _, name = entries.names[0][:-1].rpartition(b"/")
            # Of those that were named it is known; others were left to the walk for their names, too.
            if after := self._after(_EVERYTHING, name + b"/") if above else _EVERYTHING:
                yield _Piece(entries, after)

    def _run(self, states: frozenset[int], files: Entries) -> Iterator[_Piece]:
        """Those of the files that are taken, and the directories among them, which are."""
        if (chosen := self._chosen(states, files)).names:
            yield _Piece(chosen, None)

    def _chosen(self, states: frozenset[int], files: Entries) -> Entries:
        bare = files.names
        chosen: Sequence[int]
        if _may_hide(bare, is_walked=files.is_walked):
            chosen = [index for index, name in enumerate(bare) if self._takes(states, name)]
        else:
            chosen = self._plainly_chosen(states, bare)
        if len(chosen) == len(bare):
            return files
        kept = [bare[index] for index in chosen]
        return Entries(kept, None if files.stats is None else files.stats.take(chosen))

    def _takes(self, states: frozenset[int], path: bytes) -> bool:
        return path.endswith(b"/") or _is_taken(self._after(states, path.rpartition(b"/")[2]), self._root)

    def _plainly_chosen(self, states: frozenset[int], bare: list[bytes]) -> Sequence[int]:
        """Where the files stand that are taken, where none is hidden: what _after says, for all of them at once."""
        selection, segments = self._selection, self._root.segments
        has_patterns = selection.file_pattern is not None or selection.ignore_pattern is not None
        is_all = _is_taken(states, self._root)
        chosen: Sequence[int] = range(len(bare))
        # No name has a NUL, and one call is a fifth of many.
        texts = [] if is_all and not has_patterns else self._lister.url(b"\0".join(bare)).split("\0")
        if not is_all:
            ends = [state for state in states if len(segments) in _closed(frozenset({state + 1}), self._root)]
            matches = [segment.fullmatch for state in ends if (segment := segments[state]) is not None]
            chosen = sorted({index for match in matches for index, text in enumerate(texts) if match(text)})
        self.has_matched = self.has_matched or len(chosen) > 0
        if not has_patterns:
            return chosen
        # Of a path the name counts; a directory has none here.
        bare_texts = [text.rpartition("/")[2] for text in texts]
        taken = [index for index in chosen if not bare_texts[index] or selection.takes_file(bare_texts[index])]
        if len(taken) < len(chosen):
            self._counters[names.IGNORED] += len(chosen) - len(taken)
        return taken

    def _enter(self, directory: bytes, name: bytes, ancestors: list[object]) -> Iterator[Entries] | None:
        """The listing of a directory, which is now the last ancestor; None where it is not to be entered."""
        above = [name[: slash + 1] for slash, character in enumerate(name[:-1]) if character == _SLASH]
        try:
            between = [self._lister.identity(directory + path) for path in above]
            identity = self._lister.identity(directory + name)
        except MissingError:
            return None
        if identity in ancestors or identity in between:
            logger.warning("a link leads back to where it lies, left out path=%s", self._lister.url(directory + name))
            return None
        ancestors += [*between, identity]
        return self._listing(directory + name)

    def _listing(self, directory: bytes) -> Iterator[Entries]:
        try:
            yield from self._lister.stretches(directory)
        except MissingError:
            logger.info("directory went away during the scan path=%s", self._lister.url(directory))

    def _after(self, states: frozenset[int], name: bytes) -> frozenset[int]:
        """The glob's states below an entry; empty where it is passed over, _EVERYTHING where all below is taken."""
        after, is_ignored = self._reached(states, name)
        if not after:
            return after
        self.has_matched = self.has_matched or _is_taken(after, self._root)
        if is_ignored:
            self._counters[names.IGNORED] += 1
            return frozenset()
        return after

    def _reached(self, states: frozenset[int], name: bytes) -> tuple[frozenset[int], bool]:
        """The glob's states below an entry, as if it were not passed over, and whether it is."""
        is_directory = name.endswith(b"/")
        bare = name[:-1] if is_directory else name
        is_hidden = HIDDEN.fullmatch(bare) is not None
        text = self._lister.url(bare)
        if states is _EVERYTHING:
            after = _EVERYTHING if not is_directory or self._selection.recursive else frozenset()
            passed = is_hidden
        else:
            passed = False
            after = self._stepped(states, text, is_hidden, is_directory)
        takes = self._selection.enters if is_directory else self._selection.takes_file
        return after, bool(after) and (passed or not takes(text))

    def _stepped(self, states: frozenset[int], name: str, is_hidden: bool, is_directory: bool) -> frozenset[int]:
        """The states after one more name; a directory in the last state is one that the glob matches."""
        segments = self._root.segments
        if len(segments) in states and (self._selection.recursive or not is_directory):
            # Below a directory that the glob matched, everything is taken as below a directory that is named.
            return frozenset() if is_hidden else _EVERYTHING
        reached = set()
        for state in states - {len(segments)}:
            segment = segments[state]
            if segment is None and not is_hidden:
                reached.add(state)
            elif segment is not None and segment.fullmatch(name) and (not is_hidden or self._root.asks_hidden[state]):
                reached.add(state + 1)
        return _closed(frozenset(reached), self._root)


def _may_hide(names: list[bytes], *, is_walked: bool = False) -> bool:
    """Whether a sorted list may have hidden names: for most directories that settles it."""
    for first in (b".", b"_"):
        position = bisect.bisect_left(names, first)
        if names[position : position + 1] and names[position].startswith(first):
            return True
    joined = b"\0".join([*names, b""])
    ends = (end + behind for end in INCOMPLETE for behind in (b"\0", b"/\0"))
    return any(end in joined for end in ends) or (is_walked and (b"/." in joined or b"/_" in joined))


def _rows(positions: list[int], together: bytearray) -> Iterator[tuple[int, int]]:
    """Ranges of positions: of those in a row of which all are to stay together, and each of the others by itself."""
    numbered = enumerate(positions)
    for _, group in itertools.groupby(numbered, lambda each: each[1] - each[0] if together[each[1]] else each):
        row = [at for _, at in group]
        yield row[0], row[-1] + 1


def _part(entries: Entries, start: int, end: int) -> Entries:
    stats = None if entries.stats is None else entries.stats.slice(start, end)
    return Entries(entries.names[start:end], stats)


def _closed(states: frozenset[int], root: Root) -> frozenset[int]:
    """The states with those that `**` reaches by standing for no directory at all."""
    reached = set(states)
    for state in sorted(states):
        while state < len(root.segments) and root.segments[state] is None:
            state += 1
            reached.add(state)
    return frozenset(reached)


def _is_taken(states: frozenset[int], root: Root) -> bool:
    return states is _EVERYTHING or len(root.segments) in states
