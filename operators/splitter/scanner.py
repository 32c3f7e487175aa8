"""Walks what a splitter is told to read, once and in order, holding no more than one listing per level."""

from __future__ import annotations

import heapq
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dagflow.errors import MissingError
from dagflow.metrics import names
from dagflow.storage.location import redacted
from operators.splitter.listing import DIRECTORY, Stat
from operators.splitter.roots import Root, below, find_root
from operators.splitter.sharding import ShardedLister

logger = logging.getLogger(__name__)

MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
HIDDEN = re.compile(rb"\..*|_(?:" + MARKERS + rb")|.*\._COPYING_|.*\.tmp", re.DOTALL)
"""Names that a scan passes over: dot files; the markers and staging directories that Hadoop, Spark and table
formats leave; copies that are not complete. Not every name with an underscore, as Hadoop has it: that would lose
directories such as _vendor without a word."""

_EVERYTHING: frozenset[int] = frozenset({-1})


@dataclass(slots=True)
class Found:
    """A file or directory that a scan came by.

    Attributes:
        key: Its path in bytes; a directory's ends in "/". A scan gives each once.
        stat: The version of a file; DIRECTORY for a directory.
        root: The root that it was found under.
    """

    key: bytes
    stat: Stat
    root: Root

    @property
    def name(self) -> bytes:
        """Its path as it is remembered, which differs below a named root; a scan gives these in ascending order."""
        return self.root.name(self.key)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.key.endswith(b"/")

    @property
    def url(self) -> str:
        """Where it is."""
        return self.root.lister.url(self.key.rstrip(b"/"))

    @property
    def relative_path(self) -> str:
        """Its path below the root, with no slash at the end; a root that is a file has its name."""
        start = len(below(self.root.base)) if self.root.kind != "file" else self.key.rindex(b"/") + 1
        return self.root.lister.url(self.key[start:].rstrip(b"/"))


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
    """

    def __init__(
        self,
        locations: Sequence[str],
        selection: Selection,
        counters: Counter[str] | None = None,
        *,
        tolerates_missing: bool = False,
        sharded: Callable[[], ShardedLister] | None = None,
    ) -> None:
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
        """Go through everything once.

        Raises:
            MissingError: A location does not exist, or a glob matches nothing.
            StorageError: A directory cannot be listed, or a file not be examined.
        """
        pending = self.roots()[::-1]
        heads: list[tuple[bytes, int, Found, Iterator[Found]]] = []
        opened = 0
        last = b""
        while heads or pending:
            # A root is opened when its first path may be next, so that a thousand roots hold one listing.
            while pending and (not heads or pending[-1].name(pending[-1].first_key) <= heads[0][0]):
                walk = self._walk(pending.pop())
                opened += 1
                if (found := next(walk, None)) is not None:
                    heapq.heappush(heads, (found.name, opened, found, walk))
            if not heads:
                continue
            key, order, found, walk = heads[0]
            if key != last:
                last = key
                yield found
            if (following := next(walk, None)) is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.name, order, following, walk))

    def _walk(self, root: Root) -> Iterator[Found]:
        if root.kind == "file":
            stat = root.lister.stat(root.base)
            if stat is None and not self._tolerates_missing:
                raise MissingError("neither a file nor a directory", url=redacted(root.named))
            if stat is not None:
                yield Found(root.base, stat, root)
            return
        walk = _Walk(root, self._selection, self._counters)
        try:
            yield from walk.steps()
        except MissingError:
            # Only the root itself: what goes away further down is no more to be read.
            if not self._tolerates_missing:
                raise
        if root.kind == "glob" and not walk.has_matched and not self._tolerates_missing:
            raise MissingError("the glob matches nothing", url=redacted(root.named))


class _Walk:
    """A depth-first walk below one root.

    Attributes:
        has_matched: Whether the root's glob has matched anything, taken or not.
    """

    def __init__(self, root: Root, selection: Selection, counters: Counter[str]) -> None:
        self._root = root
        self._lister = root.lister
        self._selection = selection
        self._counters = counters
        self.has_matched = False

    def steps(self) -> Iterator[Found]:
        """Every file and directory below the root that is taken, by path."""
        states = _EVERYTHING if self._root.kind == "directory" else _closed(frozenset({0}), self._root)
        base = below(self._root.base)
        ancestors = [self._lister.identity(base)]
        # Each level: its path, the glob's states in it, and what is left of its listing.
        levels = [(base, states, self._lister.children(base))]
        while levels:
            directory, states, entries = levels[-1]
            entry = next(entries, None)
            if entry is None:
                levels.pop()
                ancestors.pop()
                continue
            name, stat = entry
            after = self._after(states, name)
            if not after:
                continue
            key = directory + name
            if not name.endswith(b"/"):
                if _is_taken(after, self._root) and (stat := stat or self._lister.stat(key)) is not None:
                    yield Found(key, stat, self._root)
                continue
            if (descent := self._enter(key, ancestors)) is not None:
                if _is_taken(after, self._root):
                    yield Found(key, DIRECTORY, self._root)
                levels.append((key, after, descent))

    def _enter(self, directory: bytes, ancestors: list[object]) -> Iterator[tuple[bytes, Stat | None]] | None:
        try:
            identity = self._lister.identity(directory)
        except MissingError:
            return None
        if identity in ancestors:
            logger.warning("a link leads back to where it lies, left out path=%s", self._lister.url(directory))
            return None
        ancestors.append(identity)
        return self._listing(directory)

    def _listing(self, directory: bytes) -> Iterator[tuple[bytes, Stat | None]]:
        try:
            yield from self._lister.children(directory)
        except MissingError:
            logger.info("directory went away during the scan path=%s", self._lister.url(directory))

    def _after(self, states: frozenset[int], name: bytes) -> frozenset[int]:
        """The glob's states below an entry; empty where it is passed over, _EVERYTHING where all below is taken."""
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
        if not after:
            return after
        self.has_matched = self.has_matched or _is_taken(after, self._root)
        if passed or not (self._selection.enters(text) if is_directory else self._selection.takes_file(text)):
            self._counters[names.IGNORED] += 1
            return frozenset()
        return after

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
