"""Files that were taken and are gone: their records leave the output if the app says so."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from operators.files.metadata import Fate, FileVersion, SupersededVersion
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import hashes_of
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import missing_root

logger = logging.getLogger(__name__)


class DeletedFiles:
    """The files that were taken, and that a scan finds no more; 8 bytes of memory for each that it finds."""

    def __init__(self, index: FileIndex, pending: PendingFingerprints, storage: StorageContext) -> None:
        self._index = index
        self._pending = pending
        self._storage = storage
        self._listed: list[npt.NDArray[np.int64]] = []

    def begin_scan(self) -> None:
        self._listed.clear()

    def listed(self, names: Sequence[bytes]) -> None:
        """Note what a scan has found."""
        self._listed.append(hashes_of(names))

    def found(self, moved: Container[bytes]) -> Iterator[ListedFiles]:
        """The versions whose files are gone, to be retracted, at the end of a scan.

        None where a scan has found nothing at all: its locations may be on a disk that is not mounted.
        """
        listed = np.concatenate([np.empty(0, np.int64), *self._listed])
        names = self._index.view().paths_but(listed)
        if names and not len(listed):
            logger.warning("no file is found any more, and nothing is retracted: the locations may be unreachable")
            return
        in_flight = self._pending.in_flight().among(names)
        for name, entry in sorted(self._index.find(names).items()):
            if entry.fate is Fate.MOVED or entry.fate.is_gone or entry.size_bytes <= 0:
                continue
            path = os.fsencode(self._storage.roots.expand(os.fsdecode(name)))
            if name in moved or name in in_flight or self._is_there(os.fsdecode(path)):
                continue
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
