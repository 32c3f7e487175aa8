"""Scans what a splitter is told to read, once and in order, holding no more than one listing per level."""

from __future__ import annotations

import bisect
import contextlib
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dagflow.errors import MissingError
from dagflow.storage.location import redacted
from operators.splitter.scan.listed_files import Found, FoundFiles
from operators.splitter.scan.listing import Stats
from operators.splitter.scan.listing_prefetch import PrefetchingLister
from operators.splitter.scan.roots import Root, find_root
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.sharding import ShardedLister
from operators.splitter.scan.stat_prefetch import StatPrefetcher
from operators.splitter.scan.walk import Walk
from operators.splitter.scan.workers import Helpers

logger = logging.getLogger(__name__)


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
            root = replace(root, lister=PrefetchingLister(helpers, passed_over=self._selection.ignore_pattern))
        walk = Walk(root, self._selection, self._counters, StatPrefetcher(helpers))
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
