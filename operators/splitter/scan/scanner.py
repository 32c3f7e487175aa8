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
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.errors import CredentialsError, MissingError, StorageError, TransientStorageError
from dagflow.metrics import names as metrics
from dagflow.storage.backends.archive import ArchiveFiles, directory_in_task
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import redacted
from operators.files.metadata import FileVersion
from operators.splitter.scan.listed_files import InTasks, ListedFiles
from operators.splitter.scan.listing import DIRECTORY, ENTRIES_AT_ONCE, Entries, ListedStats, Notices
from operators.splitter.scan.local_listing import (
    NOT_VISITED,
    WALKED,
    ListingAnswer,
    ListingRequest,
    LocalLister,
    answer,
    parent_of,
)
from operators.splitter.scan.scan_roots import RemoteLister, Root, below, find_roots, listed_in
from operators.splitter.scan.selection import ARCHIVE_END, OutputLocations, OwnNames, Selection, reads_all_in
from operators.splitter.scan.walk import READ_ALREADY, Walk

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
        in_tasks: Lists local directories ahead of the walk in tasks; None to do it in threads.
        archive_tasks: Lists archives in tasks that are decompressed for it; None to do it here.
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
        in_tasks: InTasks | None = None,
        archive_tasks: InTasks | None = None,
        written: Sequence[str] = (),
    ) -> None:
        self._archive_tasks = archive_tasks
        self._written = written
        self._in_tasks = in_tasks
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
        return sorted(roots, key=lambda root: root.first_name)

    def read_whole(self, directories: Iterable[bytes]) -> set[bytes]:
        """The directories in which, and below which, every file with an ordinary name is read."""
        selection = self._selection
        if not selection.recursive or selection.ignore_pattern is not None or selection.file_pattern is not None:
            return set()
        roots = self.roots()
        return {path for path in directories if any(reads_all_in(root, selection, os.fsdecode(path)) for root in roots)}

    def scan(self) -> Iterator[ListedFiles]:
        """List everything once, in steps of ascending index names.

        Raises:
            MissingError: A location does not exist, or a glob matches nothing.
            StorageError: A directory cannot be listed, or a file cannot be examined.
        """
        with contextlib.closing(Prefetching(self._in_tasks)) as prefetching:
            roots = self.roots()
            own_names, written = OwnNames(roots, self._selection), OutputLocations.of(self._written)
            walk = functools.partial(self._walk, own_names=own_names, written=written, prefetching=prefetching)
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
            while pending and (not heads or pending[-1].first_name <= heads[0][0]):
                walk = walk_below(pending.pop())
                opened += 1
                if (files := next(walk, None)) is not None:
                    heapq.heappush(heads, (files.index_names[0], opened, files, walk))
            if not heads:
                continue
            first, order, files, walk = heads[0]
            others = [head[0] for head in heads[1:3]] + [root.first_name for root in pending[-1:]]
            # At least one name comes before the next one of another walk.
            count = max(1, bisect.bisect_left(files.index_names, min(others))) if others else len(files)
            start = int(first == last)
            if (at := self._first_archive(files, start, count)) is not None:
                # The members come where the archive stands, which ends the part before it.
                count, last = at + 1, files.index_names[at]
                if members := self._members(files, at):
                    opened += 1
                    heapq.heappush(heads, (members.index_names[0], opened, members, iter(())))
            if fresh := files.slice(start, count if at is None else at):
                last = fresh.index_names[-1] if at is None else last
                yield fresh
            following = files.slice(count, len(files)) if count < len(files) else next(walk, None)
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.index_names[0], order, following, walk))

    def _first_archive(self, files: ListedFiles, start: int, end: int) -> int | None:
        """The first of some files whose members are read in its place."""
        if self._selection.archives == "whole" or ARCHIVE_END.search(b"\0".join([*files.keys[start:end], b""])) is None:
            return None
        return next((at for at in range(start, end) if self._selection.opens(os.fsdecode(files.keys[at]))), None)

    def _members(self, files: ListedFiles, at: int) -> ListedFiles | None:
        """The selected members of an archive; the archive itself as one without a name if it cannot be read."""
        url, version = files.url(at), files.stats[at]
        archive = FileStat.of(url, version)
        store = self._storage.backend(f"{url}!").files
        assert isinstance(store, ArchiveFiles)
        try:
            is_decompressed = not url.lower().endswith((".zip", ".tar"))
            if is_decompressed and self._archive_tasks is not None and not store.knows(archive):
                [found] = self._archive_tasks(directory_in_task, [(self._storage, archive)])
                if isinstance(found, StorageError):
                    raise found
                store.learn(archive, found)
            listed = list(store.members(archive))
        except (TransientStorageError, CredentialsError):
            raise
        except MissingError:
            return None
        except StorageError as error:
            # The reader opens it, fails as the listing did, and does what on_error says.
            self._notices.say(f"an archive cannot be read: {error.message}", files.keys[at])
            listed = [replace(archive, url=f"{url}!", etag=archive.etag or str(archive.mtime_ns), file_id=0)]
        paths = [member.url[len(url) + 1 :] for member in listed]
        members = [
            member
            for member, path in zip(listed, paths, strict=True)
            if not path or self._selection.selects_member(path)
        ]
        self._counters[metrics.IGNORED] += len(listed) - len(members)
        if not members:
            return None
        versions = [FileVersion(member.size_bytes, member.mtime_ns, member.etag) for member in members]
        keys = [os.fsencode(member.url) for member in members]
        return ListedFiles(replace(files.root, lister=RemoteLister(self._storage)), keys, ListedStats.of(versions))

    def _walk(
        self, root: Root, own_names: OwnNames, written: OutputLocations, prefetching: Prefetching
    ) -> Iterator[ListedFiles]:
        if root.is_local:
            ignored = self._selection.ignore_pattern
            root = replace(root, lister=PrefetchingLister(prefetching, ignored=ignored, notices=self._notices))
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
        walk = Walk(root, self._selection, self._counters, own_names, self._notices, written)
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


MAX_DIRECTORIES = 512
"""Largest number of directories of one request."""

MAX_FILES = 8192
"""Number of files that one request should find; a directory with more is left to the walk."""

FIRST_FILES, MAX_FILES_HERE = 64, 1024
"""Files that the walk's thread lists at a time if no other did: few at first, as the first window waits for them."""

THREADS = 4
"""Threads of the driver that list ahead: where directories are slow to list, they wait at the same time."""

CONCURRENT_TASKS = 16
"""Number of requests that run as tasks at a time: listing in tasks pays where each directory is slow to list."""

PREFETCHED_REQUESTS = 5
"""Number of answers that are held ahead of the walk, some 50 bytes a file; more where more requests may be pending."""

DIRECTORY_FILES = 16
"""Memory of a directory without entries, in terms of files."""


class Prefetching:
    """The threads of one scan that list directories ahead, or wait for tasks that do.

    Args:
        in_tasks: Applies a function to items in tasks; None to list in the threads themselves.
        count: Number of requests that may be pending; None for the usual one.
    """

    def __init__(self, in_tasks: InTasks | None = None, count: int | None = None) -> None:
        self._in_tasks = in_tasks
        self.max_pending = count or (THREADS if in_tasks is None else CONCURRENT_TASKS)
        self.threads = ThreadPoolExecutor(self.max_pending, thread_name_prefix="listing")

    def ask(self, request: ListingRequest) -> Future[ListingAnswer]:
        return self.threads.submit(self._answer, request)

    def _answer(self, request: ListingRequest) -> ListingAnswer:
        if self._in_tasks is None:
            return answer(request)
        listed: ListingAnswer
        [listed] = self._in_tasks(answer, [request])
        return listed

    def close(self) -> None:
        """Cancel requests that have not begun; the others end by themselves, and their answers are dropped."""
        self.threads.shutdown(wait=False, cancel_futures=True)


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
    """Lists the entries of LocalLister, many directories at a time, ahead of the walk.

    Guarantee: the same entries in the same order.
    """

    def __init__(
        self,
        prefetching: Prefetching,
        max_files: int = MAX_FILES,
        ignored: str | None = None,
        notices: Notices | None = None,
    ) -> None:
        super().__init__(notices=notices)
        self._prefetching = prefetching
        self._max_files = max_files
        self._max_held_files = max(PREFETCHED_REQUESTS, prefetching.max_pending + 2) * max_files
        self._max_files_here = FIRST_FILES
        self._ignored = ignored
        self._queued = QueuedDirectories()
        # The queued directories that are listed alone; the others, which are most, are walked.
        self._only_listed: set[bytes] = set()
        self._pending: dict[Future[ListingAnswer], ListingRequest] = {}
        self._asked: set[bytes] = set()
        # The answers ahead of the walk: by directory, in order of path, and their size.
        self._listed: dict[bytes, tuple[ListingAnswer, int]] = {}
        self._listed_ahead = QueuedDirectories()
        self._held_files = 0
        self._left_to_walk: set[bytes] = set()
        # Recent number of files per directory; at first directories are expected to be large.
        self._seen_directories, self._seen_files = 1, max_files // 8

    def queue(self, directories: Iterable[bytes], *, is_whole_tree: bool = False) -> None:
        paths = list(directories)
        self._queued.add(paths)
        if not is_whole_tree:
            self._only_listed.update(paths)

    def entries(self, directory: bytes) -> Iterator[Entries]:
        listed = self._prefetched(directory)
        if listed is not None:
            (parent, *names), columns = listed[0].entries(listed[1], listed[1] + 1)
            sizes, *others = columns[:, 1:]
            self._drop([directory])
            yield Entries([name[len(parent) :] for name in names], ListedStats(np.maximum(sizes, WALKED), *others))
            return
        count = 0
        for entries in super().entries(directory):
            count += len(entries)
            yield entries
        self._count_seen(1, min(count, self._max_files))

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], ListedStats]:
        if len(names) <= ENTRIES_AT_ONCE:
            return super().stats(directory, names)
        parts = [names[start : start + ENTRIES_AT_ONCE] for start in range(0, len(names), ENTRIES_AT_ONCE)]
        examined = list(self._prefetching.threads.map(functools.partial(super().stats, directory), parts))
        present = [name for some, _ in examined for name in some]
        return present, ListedStats.concatenated([stats for _, stats in examined])

    def walked(self, directory: bytes, names: list[bytes]) -> Iterator[Entries]:
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
            answered, first = listed
            count = answered.count_listed(first, directory, names[at : at + MAX_DIRECTORIES])
            entries = answered.entries(first, first + count)
            at += count
            self._drop(answered.directories[first : first + count])
            yield from self._completed(directory, *entries)

    def _completed(self, directory: bytes, names: list[bytes], columns: npt.NDArray[np.int64]) -> Iterator[Entries]:
        """The entries of an answer, with the entries of unvisited directories in their place."""
        stats, sizes = ListedStats(*columns), columns[0].tolist()

        def group_of(numbered: tuple[int, int]) -> tuple[int, object]:
            index, at = numbered
            return at - index, parent_of(names[at]) if sizes[at] == NOT_VISITED else at

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
            parent = parent_of(names[first])
            for entries in self.walked(directory + parent, [name[len(parent) :] for name in names[first:end]]):
                yield replace(entries, names=[parent + name for name in entries.names])
        if done < len(names):
            yield Entries(names[done:], stats.slice(done, len(names)), is_walked=True)

    def _count_seen(self, directories: int, files: int) -> None:
        # The next directories are probably like the last ones.
        self._seen_directories = self._seen_directories // 2 + directories
        self._seen_files = self._seen_files // 2 + files

    def _prefetched(self, directory: bytes) -> tuple[ListingAnswer, int] | None:
        """The answer that has a directory, and its position there; None if it is left to this thread."""
        self._only_listed.difference_update(self._queued.take_through(directory))
        # Without its slash it sorts after the skipped directories and before itself.
        self._drop(self._listed_ahead.take_through(directory[:-1]))
        self._ask()
        is_pending = True
        while self._pending and is_pending:
            is_pending = directory in self._asked
            for future in wait(self._pending, None if is_pending else 0, FIRST_COMPLETED).done:
                request = self._pending.pop(future)
                self._asked.difference_update(request.directories)
                answered = self._receive(request, future.result())
                self._count_seen(answered.outcomes.count(True), answered.ends[-1][0])
            # Threads that are done get new requests while the walk waits for others.
            self._ask()
        return self._listed.get(directory)

    def _list_here(self, directory: bytes) -> tuple[ListingAnswer, int] | None:
        """Walk a directory, and the next queued ones, in this thread."""
        max_files, self._max_files_here = self._max_files_here, min(2 * self._max_files_here, MAX_FILES_HERE)
        self._queued.add([directory])
        request = self._next_request(max_files)
        answered = self._receive(request, answer(request))
        if answered.is_complete:
            # An incomplete walk says nothing about how much lies below a directory.
            self._count_seen(len(answered.directories), answered.ends[-1][0])
        return self._listed.get(directory)

    def _drop(self, directories: Iterable[bytes]) -> None:
        """Release answers that were used, or that the walk skipped."""
        for path in directories:
            if (listed := self._listed.pop(path, None)) is not None:
                answered, index = listed
                self._held_files -= answered.count(index) + DIRECTORY_FILES

    def _next_request(self, max_files: int) -> ListingRequest:
        """The next queued directories, about as many as have max_files, all to be listed in the same way."""
        likely = self._seen_directories * max_files // max(self._seen_files, 1)
        directories = self._queued.take(max(1, min(likely, MAX_DIRECTORIES)))
        is_walk = directories[0] not in self._only_listed
        count = next((at for at, path in enumerate(directories) if (path in self._only_listed) == is_walk), None)
        if count is not None:
            self._queued.add(directories[count:])
            del directories[count:]
        self._only_listed.difference_update(directories)
        return ListingRequest(directories, max_files, is_walk, self._ignored)

    def _ask(self) -> None:
        """Give requests to idle threads, as long as there is memory for the answers."""
        while self._queued and len(self._pending) < self._prefetching.max_pending:
            if self._held_files + len(self._pending) * self._max_files >= self._max_held_files:
                return
            request = self._next_request(self._max_files)
            self._pending[self._prefetching.ask(request)] = request
            self._asked.update(request.directories)

    def _receive(self, request: ListingRequest, answered: ListingAnswer) -> ListingAnswer:
        for index, (path, is_listed) in enumerate(zip(answered.directories, answered.outcomes, strict=False)):
            if is_listed:
                self._listed[path] = answered, index
                self._listed_ahead.add([path])
                self._held_files += answered.count(index) + DIRECTORY_FILES
            elif request.is_walk:
                self._left_to_walk.add(path)
        self.queue(answered.directories[len(answered.outcomes) :], is_whole_tree=request.is_walk)
        self.queue(answered.unvisited(), is_whole_tree=True)
        return answered
