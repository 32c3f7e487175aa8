"""The files that a splitter took: the index, the pending fingerprints, and the scanned locations."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from dagflow.errors import START_OVER, JournalError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.location import MARK, Roots, absolute, redacted
from operators.files.metadata import Fate
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex, IndexState
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import EMPTY, ListedFiles


@frozen
class TakenState:
    """The files that were taken up to the end of a window.

    Attributes:
        reports: How many reports of readers the index has.
    """

    index: IndexState
    locations: IndexLocations
    window_id: int
    reports: int


class TakenFiles:
    """Records files as they are taken."""

    def __init__(self, index: FileIndex, locations: Sequence[str], storage: StorageContext) -> None:
        self.index = index
        self.pending = PendingFingerprints(index, storage.roots)
        self._files = locations
        self._roots = storage.roots
        self._locations = IndexLocations.of(locations, storage.roots)

    def record(self, files: ListedFiles, now_millis: int) -> None:
        """Record files or directories, with their notes; readers report all except noted, empty and remote files."""
        for name, entry in files.notes:
            self.index.record(name, entry._replace(taken_millis=now_millis))
            self.pending.add_one(name, entry, is_read=False)
        is_reported = files.root.is_local
        if len(files) == 1:
            self._record_one(files, now_millis, is_reported=is_reported)
            return
        stats = files.stats
        prints = np.array(files.fingerprints or np.full(len(files), UNKNOWN), np.int64)
        if is_reported:
            prints[stats.size_bytes == 0] = EMPTY
        columns = stats.size_bytes, stats.mtime_ns, stats.identities
        entries = self.index.record_all(files.index_names, *columns, now_millis, prints)
        if is_reported:
            self.pending.add(entries, is_read=not files.is_noted)

    def _record_one(self, files: ListedFiles, now_millis: int, *, is_reported: bool) -> None:
        stat = files.stats[0]
        is_empty = is_reported and not stat.size_bytes
        fingerprint = EMPTY if is_empty else files.fingerprint(0)
        rest_bytes = files.waiting_bytes if files.is_noted else 0
        version = stat.size_bytes, stat.mtime_ns, stat.identity
        entry = IndexEntry(*version, now_millis, fingerprint, rest_bytes, is_rotated=files.is_rotated)
        if is_retracted := files.continuation.is_gone and files.continuation.supersedes is not None:
            # If the version is put back, all of it is read.
            entry = entry._replace(fate=Fate.GONE, rest_bytes=stat.size_bytes)
        name = files.index_names[0]
        self.index.record(name, entry)
        if is_reported and not is_retracted:
            self.pending.add_one(name, entry, is_read=stat.size_bytes > 0 and not files.is_noted)

    def has_any(self) -> bool:
        """Whether a file of the scanned locations was taken at any time."""
        return any(self.index.view().has_file_in(name.rstrip(b"/")) for name in self._locations.names)

    def snapshot(self) -> TakenState:
        reports = self.pending.reports.note_snapshot(self.pending.window_id)
        return TakenState(self.index.snapshot(), self._locations, self.pending.window_id, reports)

    def restore(self, state: TakenState, unfinished: Sequence[str]) -> None:
        require_same_names(state.locations, self._files, self._roots)
        self.index.restore(state.index)
        self.pending.resume(state.window_id, state.reports, unfinished)


_GLOB = re.compile(r"/[^/]*[*?[].*", re.DOTALL)


@frozen
class IndexLocations:
    """The locations in which a splitter looked for files.

    As bytes, because the journal replaces the locations of named roots in text, and these must stay unchanged.

    Attributes:
        roots: Locations of the named roots, by name.
        names: The locations that were scanned, by their names in the index: below a named root by the root's name and
            the rest.
    """

    roots: dict[str, bytes]
    names: list[bytes]

    @classmethod
    def of(cls, locations: Iterable[str], roots: Roots) -> IndexLocations:
        names = {os.fsencode(roots.shorten(_base(location))) for location in locations}
        return cls({name: os.fsencode(url) for name, url in roots.url_by_name.items()}, sorted(names))


def require_same_names(before: IndexLocations, locations: Iterable[str], roots: Roots) -> None:
    """Refuse roots that would change the names of known files in the index: all of them would be read again.

    If a root was moved, with all that is below it, its files keep their names.

    Raises:
        JournalError: A scanned location is now in another root, or in none, or in one that begins elsewhere.
    """
    urls = [_base(location) for location in locations]
    earlier = Roots.of({name: os.fsdecode(url) for name, url in before.roots.items()})
    known = list(map(os.fsdecode, before.names))
    names = [earlier.shorten(url) for url in urls]
    for url, was, now in zip(urls, names, map(roots.shorten, urls), strict=True):
        if was != now and any(_overlap(was, name) for name in known):
            raise JournalError(
                f"files here are remembered {_described(was)}, and would be looked for {_described(now)}: "
                "all of them would be read again",
                url=redacted(url),
                hint=f"let attributes: {{roots: …}} be as before, or {START_OVER}; a root is named before the "
                "first run, and its place changes when its files have moved",
            )


def _base(location: str) -> str:
    return _GLOB.sub("", absolute(location)) or "/"


def _overlap(first: str, second: str) -> bool:
    short, long = sorted((first.rstrip("/"), second.rstrip("/")), key=len)
    return long == short or long.startswith(f"{short}/")


def _described(name: str) -> str:
    if not name.startswith(MARK):
        return "by their paths"
    root, _, rest = name[1:].partition("/")
    return f"by root '{root}'" + (f" and /{rest}" if rest else "")
