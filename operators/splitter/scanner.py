"""Walks what a splitter is told to read, once and in order, holding no more than one listing per level."""

from __future__ import annotations

import bisect
import contextlib
import heapq
import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dagflow.errors import MissingError
from dagflow.metrics import names
from dagflow.storage.location import redacted
from operators.splitter.examining import Examiner, Group
from operators.splitter.found import Found, FoundFiles, Gathering
from operators.splitter.helpers import Helpers
from operators.splitter.listing import DIRECTORY, Entries, Stats
from operators.splitter.listing_ahead import AheadLister
from operators.splitter.roots import Root, below, find_root
from operators.splitter.scan_helper import INCOMPLETE
from operators.splitter.sharding import ShardedLister

logger = logging.getLogger(__name__)

MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
HIDDEN = re.compile(rb"\..*|_(?:" + MARKERS + rb")|.*(?:" + b"|".join(map(re.escape, INCOMPLETE)) + rb")", re.DOTALL)
"""Names that a scan passes over: dot files; the markers and staging directories that Hadoop, Spark and table
formats leave; copies that are not complete. Not every name with an underscore, as Hadoop has it: that would lose
directories such as _vendor without a word."""

_EVERYTHING: frozenset[int] = frozenset({-1})
_SLASH = ord("/")

FIRST_STEP, LAST_STEP = 64, 8192
"""Files that a scan gives at a time: the first are wanted at once, later larger steps cost less."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which names a scan takes.

    Attributes:
        recursive: Whether directories below a scanned directory are scanned too.
        file_pattern: Matches the whole name of each file that is taken; None for all.
        ignore_pattern: Matches the whole name of each file and directory that is passed over; None for none.
    """

    recursive: bool = True
    file_pattern: re.Pattern[str] | None = None
    ignore_pattern: re.Pattern[str] | None = None

    def takes_file(self, name: str) -> bool:
        """Whether a file of that name is taken."""
        return (self.file_pattern is None or self.file_pattern.fullmatch(name) is not None) and self.enters(name)

    def enters(self, name: str) -> bool:
        """Whether a directory of that name is scanned."""
        return self.ignore_pattern is None or self.ignore_pattern.fullmatch(name) is None


class Scanner:
    """Finds what locations name.

    Guarantee: a scan gives every file that exists all the while exactly once, by the bytes of its path,
    also where locations overlap. A file that is named by its own path is given whatever its name.

    Args:
        locations: Files, directories and globs, as the user wrote them.
        selection: Which names are taken.
        counters: Where names that are passed over are counted.
        tolerates_missing: Whether a location that does not exist is waited for; otherwise it is an error.
        sharded: Makes a lister that lets tasks list local directories; None lists them here.
        helpers: Makes the helpers of one scan.
    """

    def __init__(
        self,
        locations: Sequence[str],
        selection: Selection,
        counters: Counter[str] | None = None,
        *,
        tolerates_missing: bool = False,
        sharded: Callable[[], ShardedLister] | None = None,
        helpers: Callable[[], Helpers] = Helpers,
    ) -> None:
        self._helpers = helpers
        self._sharded = sharded
        self._locations = locations
        self._selection = selection
        self._counters: Counter[str] = Counter() if counters is None else counters
        self._tolerates_missing = tolerates_missing
        self._reported: set[str] = set()

    def roots(self) -> list[Root]:
        """What the locations are now, by path.

        Raises:
            MissingError: A location does not exist.
        """
        roots = []
        for location in self._locations:
            try:
                root = find_root(location)
                if self._sharded is not None and root.is_local:
                    root = replace(root, lister=self._sharded())
                roots.append(root)
            except MissingError:
                if not self._tolerates_missing:
                    raise
                if location not in self._reported:
                    self._reported.add(location)
                    logger.warning("location does not exist yet, waiting for it location=%s", location)
        # Of locations that lie in each other the outermost is opened first, and gives its path to what both have.
        return sorted(roots, key=lambda root: root.name(root.first_key))

    def scan(self) -> Iterator[Found]:
        """Go through everything once, one by one; see steps."""
        for step in self.steps():
            yield from step

    def steps(self) -> Iterator[FoundFiles]:
        """Go through everything once.

        Raises:
            MissingError: A location does not exist, or a glob matches nothing.
            StorageError: A directory cannot be listed, or a file not be examined.
        """
        with contextlib.closing(self._helpers()) as helpers:
            yield from self._merged(self.roots()[::-1], helpers)

    def _merged(self, pending: list[Root], helpers: Helpers) -> Iterator[FoundFiles]:
        """What the walks from the roots, the first of which stands last, give together by path."""
        heads: list[tuple[bytes, int, FoundFiles, Iterator[FoundFiles]]] = []
        opened = 0
        last = b""
        while heads or pending:
            # A root is opened when its first path may be next, so that a thousand roots hold one listing.
            while pending and (not heads or pending[-1].name(pending[-1].first_key) <= heads[0][0]):
                walk = self._walk(pending.pop(), helpers)
                opened += 1
                if (found := next(walk, None)) is not None:
                    heapq.heappush(heads, (found.names[0], opened, found, walk))
            if not heads:
                continue
            first, order, found, walk = heads[0]
            others = [head[0] for head in heads[1:3]] + [root.name(root.first_key) for root in pending[-1:]]
            count = _count_before(found.names, min(others)) if others else len(found)
            if given := found.slice(int(first == last), count):
                last = given.names[-1]
                yield given
            following = found.slice(count, len(found)) if count < len(found) else next(walk, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.names[0], order, following, walk))

    def _walk(self, root: Root, helpers: Helpers) -> Iterator[FoundFiles]:
        if root.kind == "file":
            stat = root.lister.stat(root.base)
            if stat is None and not self._tolerates_missing:
                raise MissingError("neither a file nor a directory", url=redacted(root.named))
            if stat is not None:
                yield FoundFiles(root, [root.base], Stats.of([stat]))
            return
        if self._sharded is None and root.is_local:
            root = replace(root, lister=AheadLister(helpers, passed_over=self._selection.ignore_pattern))
        walk = Walk(root, self._selection, self._counters, Examiner(helpers))
        try:
            yield from walk.steps()
        except MissingError:
            # Only the root itself: what goes away further down is no more to be read.
            if not self._tolerates_missing:
                raise
        if root.kind == "glob" and not walk.has_matched and not self._tolerates_missing:
            raise MissingError("the glob matches nothing", url=redacted(root.named))


def _count_before(names: list[bytes], bound: bytes) -> int:
    """How many of the sorted names can be given, at least one, before it is another walk's turn."""
    return len(names) if names[-1] < bound else max(1, bisect.bisect_left(names, bound))


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

    def __init__(self, root: Root, selection: Selection, counters: Counter[str], examiner: Examiner) -> None:
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
