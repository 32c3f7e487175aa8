"""Files at whose ends a record waits: those that are deleted before it is read are listed as left out."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.storage.roots import Roots
from operators.splitter.changes.changed_files import lost_end
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexEntries
from operators.splitter.index.version_slots import SHORTER
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import Root

MOST_FILES = 10_000
"""Number of files that are watched: 300 bytes each."""


class WaitingFiles:
    """The files at whose ends a record waits, as one scan after the other lists them.

    Args:
        index: Knows them when a run begins.
        roots: The app's named roots.
    """

    def __init__(self, index: FileIndex, roots: Roots) -> None:
        self._index = index
        self._roots = roots
        self._waiting: dict[bytes, IndexEntry] | None = None

    def see(self, files: ListedFiles, entries: IndexEntries, waits: npt.NDArray[np.bool_]) -> None:
        """Watch the listed files at whose ends a record waits."""
        if self._waiting is None:
            self._waiting = self._index.waiting(MOST_FILES)
        for position in np.flatnonzero(waits).tolist():
            entry = entries[position]
            if entry is not None and len(self._waiting) < MOST_FILES:
                self._waiting[files.index_names[position]] = entry

    def deleted(self, moved: Container[bytes]) -> Iterator[ListedFiles]:
        """The ends of files that no longer exist, at the end of a scan.

        Args:
            moved: Names of files that the scan has found under other names.
        """
        if self._waiting is None:
            self._waiting = self._index.waiting(MOST_FILES)
        for name, entry in list(self._waiting.items()):
            path = os.fsencode(self._roots.expand(os.fsdecode(name)))
            if os.path.lexists(path):
                continue
            del self._waiting[name]
            known = self._index.find([name]).get(name)
            if known is not None and known.version == entry.version and known.waiting_bytes and name not in moved:
                root = Root(os.fsdecode(path), "file", path, LocalLister(), index_prefix=(path, name))
                yield replace(lost_end(root, path, entry), notes=[(name + SHORTER, entry)])
