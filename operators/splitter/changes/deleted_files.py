"""Files that were taken and are gone: their records leave the output if the app says so."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.roots import Roots
from operators.files.metadata import Fate, FileVersion, SupersededVersion
from operators.splitter.changes.detection_rules import lost_end
from operators.splitter.index.entries import SHORTER, IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexEntries, hashes_of
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import Root, missing_root

logger = logging.getLogger(__name__)


class DeletedFiles:
    """The files that were taken, and that a scan finds no more; 8 bytes of memory for each that it finds.

    Args:
        is_selected: Whether a location takes the name of a file: other rotated logs keep their records.
    """

    def __init__(
        self,
        index: FileIndex,
        pending: PendingFingerprints,
        storage: StorageContext,
        is_selected: Callable[[str], bool],
    ) -> None:
        self._index = index
        self._pending = pending
        self._storage = storage
        self._is_selected = is_selected
        self._listed: list[npt.NDArray[np.int64]] = []

    def begin_scan(self) -> None:
        self._listed.clear()

    def listed(self, step: Sequence[ListedFiles]) -> None:
        """Note what a scan has found; a directory is no file."""
        self._listed += [hashes_of(files.index_names) for files in step if not files.is_directory(0)]

    def found(self, moved: Container[bytes]) -> Iterator[ListedFiles]:
        """The versions whose files are gone, to be retracted, at the end of a scan.

        None where a scan has found nothing at all: its locations may be on a disk that is not mounted.
        """
        listed = np.concatenate([np.empty(0, np.int64), *self._listed])
        names = self._index.view().paths_but(listed)
        in_flight = self._pending.in_flight().among(names)
        for name, entry in sorted(self._index.find(names).items()):
            if entry.fate is Fate.MOVED or entry.fate.is_gone or entry.size_bytes <= 0:
                continue
            path = os.fsencode(self._storage.roots.expand(os.fsdecode(name)))
            if name in moved or name in in_flight or self._is_there(os.fsdecode(path)):
                continue
            if entry.is_rotated and not self._is_selected(os.fsdecode(path)):
                continue
            if not len(listed):
                logger.warning(
                    "no file is found any more, and nothing is retracted, because a disk that is not mounted looks "
                    "like that: if the files were deleted, put an empty file beside where they were, and run again"
                )
                return
            logger.info("file was deleted after it was taken, and is retracted url=%s", redacted(os.fsdecode(path)))
            yield _retracted(path, name, entry, self._storage)

    def _is_there(self, url: str) -> bool:
        try:
            self._storage.stat(url)
        except MissingError:
            return False
        return True


def _retracted(path: bytes, name: bytes, entry: IndexEntry, storage: StorageContext) -> ListedFiles:
    """A version whose file is gone, and whose records leave the output."""
    url = os.fsdecode(path)
    root = replace(missing_root(url, storage), kind="file", base=path, index_prefix=(path, name))
    version = FileVersion(entry.size_bytes, entry.mtime_ns, "", entry.identity)
    return ListedFiles.single(root, path, version).continued(is_gone=True, supersedes=SupersededVersion(*entry.version))


MOST_FILES = 10_000
"""Number of files that are watched: 300 bytes each."""


class WaitingFiles:
    """The files at whose ends a record waits, as one scan after the other lists them."""

    def __init__(self, index: FileIndex, roots: Roots) -> None:
        self._index = index
        self._roots = roots

    @cached_property
    def _waiting(self) -> dict[bytes, IndexEntry]:
        return self._index.waiting(MOST_FILES)

    def see(self, files: ListedFiles, entries: IndexEntries, waits: npt.NDArray[np.bool_]) -> None:
        for position in np.flatnonzero(waits).tolist():
            entry = entries[position]
            if entry is not None and len(self._waiting) < MOST_FILES:
                self._waiting[files.index_names[position]] = entry

    def gone(self) -> Iterator[tuple[bytes, bytes, IndexEntry]]:
        """The paths, names in the index and versions of files that no longer exist."""
        for name, entry in self._waiting.items():
            path = os.fsencode(self._roots.expand(os.fsdecode(name)))
            if not os.path.lexists(path):
                yield path, name, entry

    def deleted(self, moved: Container[bytes]) -> Iterator[ListedFiles]:
        """The ends of files that no longer exist, at the end of a scan."""
        for path, name, entry in list(self.gone()):
            del self._waiting[name]
            known = self._index.find([name]).get(name)
            if known is not None and known.version == entry.version and known.waiting_bytes and name not in moved:
                root = Root(os.fsdecode(path), "file", path, LocalLister(), index_prefix=(path, name))
                yield replace(lost_end(root, path, entry), notes=[(name + SHORTER, entry)])
