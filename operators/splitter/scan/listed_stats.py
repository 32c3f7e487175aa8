"""Versions of files, as rows and in columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from operators.files.file_columns import Column


class ListedStat(NamedTuple):
    """The properties that distinguish one version of a file from another.

    Attributes:
        size_bytes: Length; -1 for a directory.
        mtime_ns: Modification time in nanoseconds since 1970; 0 where the store has none.
        etag: Tag that the store gives the content; "" where it gives none.
        file_id: Inode number, see storage.fingerprint.file_id_of(): stays when the file is appended to, changes when it
            is replaced; 0 where unknown.
    """

    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    file_id: int = 0

    @property
    def identity(self) -> int:
        """A signed 64-bit hash of the etag, or the file_id where there is no etag."""
        if not self.etag:
            return self.file_id
        return int.from_bytes(hashlib.blake2b(self.etag.encode(), digest_size=8).digest(), "little", signed=True)


DIRECTORY = ListedStat(-1)


@dataclass(slots=True)
class ListedStats(Sequence[ListedStat]):
    """Versions of many files in columns, which take less memory than objects. See ListedStat for the units.

    Attributes:
        size_bytes: Lengths in bytes.
        mtime_ns: Modification times.
        file_ids: Inode numbers.
        etags: Etags; [] where no file has one.
    """

    size_bytes: Column
    mtime_ns: Column
    file_ids: Column
    etags: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, stats: Sequence[ListedStat]) -> ListedStats:
        sizes, times, etags, ids = zip(*stats, strict=True) if stats else ((), (), (), ())
        size_bytes, mtime_ns, file_ids = (np.array(values, np.int64) for values in (sizes, times, ids))
        return cls(size_bytes, mtime_ns, file_ids, list(etags) if any(etags) else [])

    @classmethod
    def concatenated(cls, parts: Sequence[ListedStats]) -> ListedStats:
        sizes, times, ids = zip(*((part.size_bytes, part.mtime_ns, part.file_ids) for part in parts), strict=True)
        has_etags = any(part.etags for part in parts)
        etags = [etag for part in parts for etag in part.etags or [""] * len(part)] if has_etags else []
        return cls(np.concatenate(sizes), np.concatenate(times), np.concatenate(ids), etags)

    def __len__(self) -> int:
        return len(self.size_bytes)

    def __getitem__(self, index: int) -> ListedStat:  # type: ignore[override]  # slice() gives stretches
        etag = self.etags[index] if self.etags else ""
        return ListedStat(int(self.size_bytes[index]), int(self.mtime_ns[index]), etag, int(self.file_ids[index]))

    @property
    def identities(self) -> Column:
        return np.array([each.identity for each in self], np.int64) if self.etags else self.file_ids

    @property
    def has_etag(self) -> npt.NDArray[np.bool_]:
        return np.fromiter(map(bool, self.etags), bool) if self.etags else np.zeros(len(self), bool)

    @property
    def has_unmarked(self) -> bool:
        """Whether a file has no mark of its version but its size."""
        return bool(((self.size_bytes >= 0) & (self.mtime_ns == 0) & (self.file_ids == 0) & ~self.has_etag).any())

    def slice(self, start: int, end: int) -> ListedStats:
        columns = self.size_bytes[start:end], self.mtime_ns[start:end], self.file_ids[start:end]
        return ListedStats(*columns, self.etags[start:end])

    def take(self, positions: Sequence[int] | npt.NDArray[np.intp]) -> ListedStats:
        rows = np.asarray(positions, np.intp)
        etags = [self.etags[index] for index in rows.tolist()] if self.etags else []
        return ListedStats(self.size_bytes[rows], self.mtime_ns[rows], self.file_ids[rows], etags)
