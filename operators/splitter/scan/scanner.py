"""Scans all locations of a splitter once, in order of path, with one listing per level of directories in memory."""

from __future__ import annotations

import bisect
import contextlib
import functools
import heapq
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.regular_expressions import bytes_of
from dagflow.errors import MissingError
from dagflow.metrics import names as metrics
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from operators.splitter.scan import worker_program
from operators.splitter.scan.links import OutputLocations, OwnNames
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listing import DIRECTORY, Entries, ListedStats, Notices
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import Root, below, find_roots, listed_in
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.walk import READ_ALREADY, StatPrefetcher, Walk
from operators.splitter.scan.worker_program import LIST, LISTED, NOT_REACHED, NOT_VISITED, WALK, WALKED
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
        storage: Reaches the stores; None for the default context.
        tolerates_missing: Whether a location that does not exist is waited for; otherwise it is an error.
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
        """The current roots of the locations, by path."""
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
            if fresh := files.slice(int(first == last), count):
                last = fresh.index_names[-1]
                yield fresh
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
        if not files.root.is_local and files.stats.has_unmarked:
            self._notices.say(NO_MARKS, os.fsencode(redacted(files.root.named)))
        return files


def _first_name(root: Root) -> bytes:
    return root.index_name(root.first_key)


def _count_before(names: list[bytes], bound: bytes) -> int:
    """How many of the sorted names, at least one, come before the next name of another walk."""
    return len(names) if names[-1] < bound else max(1, bisect.bisect_left(names, bound))


MAX_DIRECTORIES = 512
"""Largest number of directories of one request."""

MAX_FILES = 8192
"""Number of files that one request should find; a directory with more is left to the walk."""

FIRST_FILES, MAX_FILES_HERE = 64, 1024
"""Files that this process lists at a time if no worker did: few at first, as the first window waits for them."""

PREFETCHED_REQUESTS = 5
"""Number of answers that are held ahead of the walk, some 50 bytes a file; more where more requests may be pending."""

DIRECTORY_FILES = 16
"""Memory of a directory without entries, in terms of files."""


@dataclass(frozen=True, slots=True)
class _Request:
    """Directories that are listed together.

    Attributes:
        is_walk: Whether everything below them is listed too.
    """

    directories: dict[bytes, None]
    is_walk: bool

    def encoded(self, max_files: int, ignored: bytes) -> bytes:
        kind = [WALK + b"%d" % max_files, ignored] if self.is_walk else [LIST + b"%d" % max_files]
        return b"\0".join([*kind, *self.directories])


class _Answer:
    """A worker's answer, kept as the bytes that arrived: single names would take three times the memory."""

    def __init__(self, request: _Request, data: bytes) -> None:
        self.directories = list(request.directories)
        head = np.frombuffer(data, np.int64, 3 * len(self.directories)).reshape(-1, 3)
        self.outcomes, self.counts, lengths = head.T.tolist()
        self._columns = np.frombuffer(data, np.int64, 3 * sum(self.counts), head.nbytes).reshape(3, -1)
        self._names = memoryview(data)[head.nbytes + self._columns.nbytes :]
        self._ends = np.append(0, np.cumsum(self.counts)).tolist()
        self._name_ends = np.append(0, np.cumsum(lengths)).tolist()

    def entries(self, first: int, end: int) -> tuple[list[bytes], npt.NDArray[np.int64]]:
        names = bytes(self._names[self._name_ends[first] : self._name_ends[end]]).split(b"\0")[:-1]
        return names, self._columns[:, self._ends[first] : self._ends[end]]

    def count_listed(self, first: int, parent: bytes, names: list[bytes]) -> int:
        """How many directories, from the first on, were listed and have these names below the parent."""
        for count, name in enumerate(names[: len(self.directories) - first]):
            if self.directories[first + count] != parent + name or self.outcomes[first + count] != LISTED:
                return count
        return min(len(self.directories) - first, len(names))

    @property
    def is_complete(self) -> bool:
        return all(outcome == LISTED for outcome in self.outcomes) and not self._has_unvisited

    @property
    def _has_unvisited(self) -> bool:
        return bool((self._columns[0] == NOT_VISITED).any())

    def unvisited(self) -> Iterator[bytes]:
        if not self._has_unvisited:
            return
        for index, path in enumerate(self.directories):
            names, columns = self.entries(index, index + 1)
            parent = _parent(path)
            yield from (parent + names[at] for at in np.flatnonzero(columns[0] == NOT_VISITED).tolist())


class QueuedDirectories:
    """Directories in the order of the walk, which is the order of their paths."""

    def __init__(self) -> None:
        self._paths: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def add(self, directories: Iterable[bytes]) -> None:
        """Queue directories, which must be behind the walk's position."""
        for path in directories:
            heapq.heappush(self._paths, path)

    def take_through(self, directory: bytes) -> list[bytes]:
        """Remove and return everything up to a directory that the walk enters; earlier directories were skipped."""
        passed = []
        while self._paths and self._paths[0] <= directory:
            passed.append(heapq.heappop(self._paths))
        return passed

    def take(self, count: int) -> list[bytes]:
        return [heapq.heappop(self._paths) for _ in range(min(count, len(self._paths)))]


class PrefetchingLister(LocalLister):
    """Lists the entries of LocalLister, many directories at a time, with workers as soon as there is work for them.

    Guarantee: the same entries in the same order, even if a worker dies.
    """

    def __init__(
        self,
        workers: Workers[Any],
        max_files: int = MAX_FILES,
        ignored: str | None = None,
        notices: Notices | None = None,
    ) -> None:
        super().__init__(notices=notices)
        self._workers = workers
        self._max_files = max_files
        self._max_held_files = max(PREFETCHED_REQUESTS, workers.max_pending + 2) * max_files
        self._max_files_here = FIRST_FILES
        self._ignored = b"" if ignored is None else bytes_of(ignored)
        # A NUL cannot be sent to a worker.
        self._can_walk = b"\0" not in self._ignored
        self._queued = QueuedDirectories()
        # The queued directories that are listed alone; the others, which are most, are walked.
        self._only_listed: set[bytes] = set()
        self._pending: dict[Any, _Request] = {}
        # The answers ahead of the walk: by directory, in order of path, and their size.
        self._listed: dict[bytes, tuple[_Answer, int]] = {}
        self._listed_ahead = QueuedDirectories()
        self._held_files = 0
        self._left_to_walk: set[bytes] = set()
        # Recent number of files per directory; at first directories are expected to be large.
        self._seen_directories, self._seen_files = 1, max_files // 8

    def queue(self, directories: Iterable[bytes], *, is_whole_tree: bool = False) -> None:
        paths = list(directories)
        self._queued.add(paths)
        if not (is_whole_tree and self._can_walk):
            self._only_listed.update(paths)

    def entries(self, directory: bytes) -> Iterator[Entries]:
        listed = self._prefetched(directory)
        if listed is not None:
            names, (sizes, *others) = listed[0].entries(listed[1], listed[1] + 1)
            self._drop([directory])
            yield Entries(names, ListedStats(np.maximum(sizes, WALKED), *others))
            return
        count = 0
        for entries in super().entries(directory):
            count += len(entries)
            yield entries
        self._count_seen(1, min(count, self._max_files))

    def walked(self, directory: bytes, names: list[bytes]) -> Iterator[Entries]:
        if not self._can_walk:
            yield from super().walked(directory, names)
            return
        at = 0
        while at < len(names):
            path = directory + names[at]
            listed = self._prefetched(path)
            if listed is None and path not in self._left_to_walk:
                listed = self._list_here(path)
            if listed is None:
                self._left_to_walk.discard(path)
                yield Entries([names[at]])
                at += 1
                continue
            answer, first = listed
            count = answer.count_listed(first, directory, names[at : at + MAX_DIRECTORIES])
            entries = answer.entries(first, first + count)
            at += count
            self._drop(answer.directories[first : first + count])
            yield from self._completed(directory, *entries)

    def _completed(self, directory: bytes, names: list[bytes], columns: npt.NDArray[np.int64]) -> Iterator[Entries]:
        """The entries of an answer, with the entries of unvisited directories in their place."""
        stats, sizes = ListedStats(*columns), columns[0].tolist()

        def group_of(numbered: tuple[int, int]) -> tuple[int, object]:
            index, at = numbered
            return at - index, _parent(names[at]) if sizes[at] == NOT_VISITED else at

        done = 0
        for _, group in itertools.groupby(enumerate(np.flatnonzero(columns[0] < WALKED).tolist()), group_of):
            positions = [at for _, at in group]
            first, end = positions[0], positions[-1] + 1
            if done < first:
                yield Entries(names[done:first], stats.slice(done, first), is_walked=True)
            done = end
            if sizes[first] != NOT_VISITED:
                yield Entries([names[first]])
                continue
            parent = _parent(names[first])
            for entries in self.walked(directory + parent, [name[len(parent) :] for name in names[first:end]]):
                yield replace(entries, names=[parent + name for name in entries.names])
        if done < len(names):
            yield Entries(names[done:], stats.slice(done, len(names)), is_walked=True)

    def _count_seen(self, directories: int, files: int) -> None:
        # The next directories are probably like the last ones.
        self._seen_directories = self._seen_directories // 2 + directories
        self._seen_files = self._seen_files // 2 + files

    def _prefetched(self, directory: bytes) -> tuple[_Answer, int] | None:
        """The answer that has a directory, and its position there; None if it is left to this process."""
        self._only_listed.difference_update(self._queued.take_through(directory))
        # Without its slash it sorts after the skipped directories and before itself.
        self._drop(self._listed_ahead.take_through(directory[:-1]))
        self._ask()
        is_pending = True
        while self._pending and is_pending:
            is_pending = any(directory in request.directories for request in self._pending.values())
            for pending in self._workers.ready(self._pending, waits=is_pending):
                request = self._pending.pop(pending)
                if (data := self._workers.answer(pending)) is not None:
                    answer = self._receive(request, data)
                    self._count_seen(answer.outcomes.count(LISTED), sum(answer.counts))
            # Workers that are done get new requests while the walk waits for others.
            self._ask()
        return self._listed.get(directory)

    def _list_here(self, directory: bytes) -> tuple[_Answer, int] | None:
        """Walk a directory, and the next queued ones, in this process."""
        max_files, self._max_files_here = self._max_files_here, min(2 * self._max_files_here, MAX_FILES_HERE)
        self._queued.add([directory])
        request = self._next_request(max_files)
        answer = self._receive(request, worker_program.answer(request.encoded(max_files, self._ignored)))
        if answer.is_complete:
            # An incomplete walk says nothing about how much lies below a directory.
            self._count_seen(len(answer.directories), sum(answer.counts))
        return self._listed.get(directory)

    def _drop(self, directories: Iterable[bytes]) -> None:
        """Release answers that were used, or that the walk skipped."""
        for path in directories:
            if (listed := self._listed.pop(path, None)) is not None:
                answer, index = listed
                self._held_files -= answer.counts[index] + DIRECTORY_FILES

    def _next_request(self, max_files: int) -> _Request:
        """The next queued directories, about as many as have max_files, all to be listed in the same way."""
        likely = self._seen_directories * max_files // max(self._seen_files, 1)
        directories = self._queued.take(max(1, min(likely, MAX_DIRECTORIES)))
        is_walk = directories[0] not in self._only_listed
        count = next((at for at, path in enumerate(directories) if (path in self._only_listed) == is_walk), None)
        if count is not None:
            self._queued.add(directories[count:])
            del directories[count:]
        self._only_listed.difference_update(directories)
        return _Request(dict.fromkeys(directories), is_walk)

    def _ask(self) -> None:
        """Give requests to idle workers, as long as there is memory for the answers."""
        while self._queued and self._workers.has_idle and self._has_room:
            # A directory that the worker does not reach delays the walk, which needs it before later requests.
            request = self._next_request(self._max_files)
            pending = self._workers.ask(request.encoded(self._max_files, self._ignored))
            if pending is None:
                self.queue(request.directories, is_whole_tree=request.is_walk)
                return
            self._pending[pending] = request

    @property
    def _has_room(self) -> bool:
        return self._held_files + len(self._pending) * self._max_files < self._max_held_files

    def _receive(self, request: _Request, data: bytes) -> _Answer:
        answer = _Answer(request, data)
        for index, (path, outcome) in enumerate(zip(answer.directories, answer.outcomes, strict=True)):
            if outcome == LISTED:
                self._listed[path] = answer, index
                self._listed_ahead.add([path])
                self._held_files += answer.counts[index] + DIRECTORY_FILES
            elif outcome == NOT_REACHED:
                self.queue([path], is_whole_tree=request.is_walk)
            elif request.is_walk:
                self._left_to_walk.add(path)
        self.queue(answer.unvisited(), is_whole_tree=True)
        return answer


def _parent(path: bytes) -> bytes:
    """The path of a directory without its name; both end in "/", or the parent is empty."""
    return path[: path.rfind(b"/", 0, -1) + 1]
