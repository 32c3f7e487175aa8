"""Files that were taken and are gone: their records leave the output if the app says so, or one waits at their end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from operators.files.metadata import SupersededVersion
from operators.splitter.changes.detection_rules import closing, gone_version
from operators.splitter.index.entries import SHORTER, IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import hashes_of
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import missing_root

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000
"""Number of files with a record that waits that are looked for: 300 bytes each."""


class GoneFiles:
    """The files that were taken, and that exist no more.

    Args:
        is_selected: Whether a location takes the name of a file: other rotated logs keep their records.
        retracts: Whether their records leave the output, which takes 8 bytes of memory for each file that a scan finds;
            otherwise only those count at whose ends a record waits.
    """

    def __init__(
        self,
        index: FileIndex,
        pending: PendingFingerprints,
        storage: StorageContext,
        is_selected: Callable[[str], bool],
        *,
        retracts: bool,
    ) -> None:
        self._index = index
        self._pending = pending
        self._storage = storage
        self._is_selected = is_selected
        self._retracts = retracts
        self._listed: list[npt.NDArray[np.int64]] = []
        self._gone: list[tuple[bytes, bytes, IndexEntry]] = []

    @cached_property
    def _waiting(self) -> set[bytes]:
        return set(self._index.waiting(MOST_WAITING))

    def begin_scan(self) -> None:
        self._listed.clear()

    def listed(self, step: Sequence[ListedFiles]) -> None:
        """Note what a scan has found; a directory is no file."""
        if self._retracts:
            self._listed += [hashes_of(files.index_names) for files in step if not files.is_directory(0)]

    def see_waiting(self, names: Sequence[bytes]) -> None:
        """Note files at whose ends a record waits."""
        self._waiting.update(names[: MOST_WAITING - len(self._waiting)])

    def found(self) -> list[tuple[bytes, bytes, IndexEntry]]:
        """The paths, names in the index and versions of the files that are gone, when a scan has listed all."""
        if self._retracts:
            names = self._index.view().paths_but(np.concatenate([np.empty(0, np.int64), *self._listed]))
        else:
            names = [name for name in self._waiting if not os.path.lexists(self._url(name))]
        in_flight = self._pending.in_flight().among(names)
        self._gone = [
            (os.fsencode(self._url(name)), name, entry)
            for name, entry in sorted(self._index.find(names).items())
            if (entry.waiting_bytes or self._is_out(name, entry))
            and name not in in_flight
            and self._storage.find(self._url(name)) is None
        ]
        return self._gone

    def left(self, moved: Container[bytes]) -> Iterator[ListedFiles]:
        """The versions of the files that are gone, to be retracted, or their ends; when all others are known.

        Nothing is retracted where a scan has found no file: its locations may be on a disk that is not mounted.
        """
        for path, name, entry in self._gone:
            self._waiting.discard(name)
            if name in moved:
                continue
            url = os.fsdecode(path)
            root = replace(missing_root(url, self._storage), kind="file", base=path, index_prefix=(path, name))
            gone = gone_version(root, path, entry)
            if not self._is_out(name, entry):
                yield replace(closing(gone, entry), notes=[(name + SHORTER, entry)])
            elif any(map(len, self._listed)):
                logger.info("file was deleted after it was taken, and is retracted url=%s", redacted(url))
                yield gone.continued(supersedes=SupersededVersion(*entry.version))
            else:
                logger.warning(
                    "no file is found any more, and nothing is retracted, because a disk that is not mounted looks "
                    "like that: if the files were deleted, put an empty file beside where they were, and run again"
                )
                return

    def _is_out(self, name: bytes, entry: IndexEntry) -> bool:
        """Whether the records of a version leave the output if its file is gone."""
        is_left = not self._retracts or entry.fate.is_gone or entry.size_bytes <= 0
        return not is_left and (not entry.is_rotated or self._is_selected(self._url(name)))

    def _url(self, name: bytes) -> str:
        return self._storage.roots.expand(os.fsdecode(name))
