"""Events that readers report to the splitter that emitted the files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.files.file_columns import Column


@dataclass(frozen=True, slots=True)
class ReadPart:
    """How far a task has read a version of a file that is longer than its blocks.

    Attributes:
        url: The file.
        size_bytes: Length of the version.
        mtime_ns: Its modification time in nanoseconds since 1970.
        end: All records that begin before this offset, in the content of a compressed file, were read; a record may
            lie across it.
        fingerprint: Fingerprint of the bytes up to there; UNKNOWN for a compressed file.
    """

    url: str
    size_bytes: int
    mtime_ns: int
    end: int
    fingerprint: int

    def goes_on_behind(self, other: object) -> bool:
        """Whether something else is known of the same version, and less of it."""
        return (
            isinstance(other, ReadPart)
            and (other.url, other.size_bytes, other.mtime_ns) == (self.url, self.size_bytes, self.mtime_ns)
            and other.end <= self.end
        )


@dataclass(frozen=True, slots=True, eq=False)
class FileFingerprints:
    """Fingerprints of files that were read to their ends, or left out; in columns.

    Attributes:
        base: The common beginning of all URLs.
        names: For each file the rest of its URL, encoded as the file system has it, joined by NULs, which no path has.
        sizes: Length in bytes of the version that was read.
        mtimes: Its modification time in nanoseconds since 1970.
        fingerprints: Fingerprint of the first and last bytes of each, or the value of left_out_from() for a file that
            was left out.
        waiting: Bytes at the end of each that were left, because they are a record without delimiter.
    """

    base: str
    names: bytes
    sizes: Column
    mtimes: Column
    fingerprints: Column
    waiting: Column

    @classmethod
    def of(
        cls,
        base: str,
        names: Sequence[str],
        sizes: Sequence[int],
        mtimes: Sequence[int] | Column,
        fingerprints: Sequence[int],
        waiting: Sequence[int] | None = None,
    ) -> FileFingerprints:
        """The event for files, column by column."""
        columns = (np.array(column, np.int64) for column in (sizes, mtimes, fingerprints, waiting or [0] * len(sizes)))
        # The driver holds the events of several windows: a column of a million numbers takes less memory than objects.
        return cls(base, os.fsencode("\0".join(names)), *columns)
