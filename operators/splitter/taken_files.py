"""Records the files that a splitter takes, in the index and among the pending fingerprints."""

from __future__ import annotations

import numpy as np

from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.fingerprinter import EMPTY
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import ListedFiles


class TakenFiles:
    """Records files as they are taken.

    Args:
        index: The index.
        pending: Files whose fingerprints readers will report.
        needs_fingerprints: Whether the index needs the fingerprints of files.
    """

    def __init__(self, index: FileIndex, pending: PendingFingerprints, *, needs_fingerprints: bool) -> None:
        self._index = index
        self._pending = pending
        self._needs_fingerprints = needs_fingerprints

    def record(self, files: ListedFiles, now_millis: int) -> None:
        """Record at least one file or directory; readers report all but noted, empty and remote files."""
        is_reported = self._needs_fingerprints and files.root.is_local
        if len(files) == 1:
            self._record_one(files, now_millis, is_reported=is_reported)
            return
        stats = files.stats
        prints = np.array(files.fingerprints or np.full(len(files), UNKNOWN), np.int64)
        if is_reported:
            prints[stats.size_bytes == 0] = EMPTY
        columns = stats.size_bytes, stats.mtime_ns, stats.identities
        entries = self._index.record_all(files.index_names, *columns, now_millis, prints)
        if is_reported and not files.is_noted:
            self._pending.add(entries)
        elif is_reported:
            self._pending.supersede(entries)

    def _record_one(self, files: ListedFiles, now_millis: int, *, is_reported: bool) -> None:
        stat = files.stats[0]
        is_empty = is_reported and not stat.size_bytes
        fingerprint = EMPTY if is_empty else files.fingerprint(0)
        entry = IndexEntry(stat.size_bytes, stat.mtime_ns, stat.identity, now_millis, fingerprint)
        name = files.index_names[0]
        self._index.record(name, entry)
        if is_reported and stat.size_bytes > 0 and not files.is_noted:
            self._pending.add_one(name, entry)
        elif is_reported:
            self._pending.supersede_one(name, entry)
