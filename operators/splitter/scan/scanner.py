"""Scans all locations of a splitter once, in order of path, with one listing per level of directories in memory."""

from __future__ import annotations

import bisect
import contextlib
import functools
import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dagflow.errors import MissingError
from dagflow.metrics import names as metrics
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listed_stats import DIRECTORY
from operators.splitter.scan.listing_prefetch import PrefetchingLister
from operators.splitter.scan.notices import Notices
from operators.splitter.scan.output_locations import OutputLocations
from operators.splitter.scan.own_names import OwnNames
from operators.splitter.scan.scan_roots import Root, below, find_roots, listed_in
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.stat_prefetch import StatPrefetcher
from operators.splitter.scan.walk import READ_ALREADY, Walk
from operators.splitter.scan.workers import WorkerProcesses, Workers

NO_MARKS = (
    "the store gives neither the modification time of a file nor a tag of its content, so that a change that leaves "
    "the size as it was is not noticed"
)
"""The warning about a location whose files have only a size."""


class Scanner:
    """Lists the files of locations.

    Guarantee: a scan emits every file that exists throughout exactly once, by the bytes of its path,
    even if locations overlap. A file that is named by its own path is emitted whatever its name.

    Args:
        locations: Files, directories and globs, as the user wrote them.
        selection: Which names are selected.
        counters: Counts skipped names.
        storage: Reaches the stores; None for the default context.
        tolerates_missing: Whether a location that does not exist is waited for; otherwise it is an error.
        workers: Makes the workers of one scan.
        written: Locations that the app writes into; a scan follows no link to them.
    """

    def __init__(
        self,
        locations: Sequence[str],
        selection: Selection,
        counters: Counter[str] | None = None,
        *,
        storage: StorageContext | None = None,
        tolerates_missing: bool = False,
        workers: Callable[[], Workers[Any]] = WorkerProcesses,
        written: Sequence[str] = (),
    ) -> None:
        self._written = written
        self._workers = workers
        self._storage = storage or StorageContext.default()
        self._locations = locations
        self._selection = selection
        self._counters: Counter[str] = Counter() if counters is None else counters
        self._tolerates_missing = tolerates_missing
        self._notices = Notices()

    def roots(self) -> list[Root]:
        """The current roots of the locations, by path.

        Raises:
            MissingError: A location does not exist.
        """
        roots: list[Root] = []
        for location in self._locations:
            try:
                roots += find_roots(location, self._storage)
            except MissingError:
                if not self._tolerates_missing:
                    raise
                self._notices.say("location does not exist yet, waiting for it", os.fsencode(redacted(location)))
        # The outermost of nested locations comes first, and determines the relative path of common files.
        return sorted(roots, key=_first_name)

    def scan(self) -> Iterator[ListedFiles]:
        """List everything once, in steps of ascending index names.

        Raises:
            MissingError: A location does not exist, or a glob matches nothing.
            StorageError: A directory cannot be listed, or a file cannot be examined.
        """
        with contextlib.closing(self._workers()) as workers:
            roots = self.roots()
            own_names, written = OwnNames(roots, self._selection), OutputLocations.of(self._written)
            walk = functools.partial(self._walk, own_names=own_names, written=written, workers=workers)
            yield from self._merged(roots[::-1], walk)

    def _merged(
        self, pending: list[Root], walk_below: Callable[[Root], Iterator[ListedFiles]]
    ) -> Iterator[ListedFiles]:
        """The files of all roots by index name; the first root is last."""
        heads: list[tuple[bytes, int, ListedFiles, Iterator[ListedFiles]]] = []
        opened = 0
        last = b""
        while heads or pending:
            # A root is opened when its first path may be next: a thousand roots have one listing in memory.
            while pending and (not heads or _first_name(pending[-1]) <= heads[0][0]):
                walk = walk_below(pending.pop())
                opened += 1
                if (files := next(walk, None)) is not None:
                    heapq.heappush(heads, (files.index_names[0], opened, files, walk))
            if not heads:
                continue
            first, order, files, walk = heads[0]
            others = [head[0] for head in heads[1:3]] + [_first_name(root) for root in pending[-1:]]
            count = _count_before(files.index_names, min(others)) if others else len(files)
            if given := files.slice(int(first == last), count):
                last = given.index_names[-1]
                yield given
            following = files.slice(count, len(files)) if count < len(files) else next(walk, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.index_names[0], order, following, walk))

    def _walk(
        self, root: Root, own_names: OwnNames, written: OutputLocations, workers: Workers[Any]
    ) -> Iterator[ListedFiles]:
        if root.is_local:
            ignored = self._selection.ignore_pattern
            root = replace(root, lister=PrefetchingLister(workers, ignored=ignored, notices=self._notices))
        known = own_names if root.lister.is_link(root.base) else own_names.elsewhere(root)
        if known is not None and known.reads(root.base):
            self._counters[metrics.IGNORED] += 1
            self._notices.say(READ_ALREADY, root.base)
            return
        if root.kind == "file":
            stat = root.lister.stat(root.base)
            if stat is None and not self._tolerates_missing:
                raise MissingError("neither a file nor a directory", url=redacted(root.named))
            if stat is not None:
                yield self._noted(ListedFiles.single(root, root.base, stat))
            return
        walk = Walk(root, self._selection, self._counters, StatPrefetcher(workers), own_names, self._notices, written)
        steps = map(self._noted, walk.steps())
        try:
            if (first := next(steps, None)) is not None:
                yield first
                yield from steps
            elif root.kind == "directory" and not any(map(len, root.lister.entries(below(root.base)))):
                # Nothing below it shows that it is there.
                yield ListedFiles.single(root, below(root.base), DIRECTORY)
        except MissingError:
            # Only the root itself: a directory further down that goes away ends nothing.
            if not self._tolerates_missing:
                raise
        if root.kind == "glob" and not walk.has_matched and not self._tolerates_missing:
            place = redacted(root.lister.url(root.base))
            raise MissingError(f"the glob matches nothing in {place}", url=redacted(root.named), hint=listed_in(root))

    def _noted(self, files: ListedFiles) -> ListedFiles:
        """The files; warns of a root whose store has only sizes to distinguish versions."""
        if not files.root.is_local and files.stats.has_unmarked:
            self._notices.say(NO_MARKS, os.fsencode(redacted(files.root.named)))
        return files


def _first_name(root: Root) -> bytes:
    return root.index_name(root.first_key)


def _count_before(names: list[bytes], bound: bytes) -> int:
    """How many of the sorted names, at least one, come before the next name of another walk."""
    return len(names) if names[-1] < bound else max(1, bisect.bisect_left(names, bound))
