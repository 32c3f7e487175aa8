"""Events that readers report to the splitter that emitted the files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from dagflow.storage.fingerprint import UNKNOWN
from operators.files.file_columns import Column


class Fate(IntEnum):
    """What became of a version of a file that was taken."""

    READ = 0
    """It was read, or will be."""
    LEFT_OUT = 1
    """It could not be read."""
    MOVED = 2
    """Its content is known under another name, so that its own counts as unknown."""
    GONE = 3
    """It was gone before all of it was read."""
    REWRITTEN = 4
    """It was gone because its file has other bytes."""

    @property
    def is_gone(self) -> bool:
        """Whether the version was gone, for whatever reason."""
        return self >= Fate.GONE


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
        fingerprints: Fingerprint of the first and last bytes of each.
        waiting: Bytes at the end of each that were left, because they are a record without delimiter.
        fate: What became of all of them.
        read_bytes: If they were left out, how many of their first bytes were read.
    """

    base: str
    names: bytes
    sizes: Column
    mtimes: Column
    fingerprints: Column
    waiting: Column
    fate: Fate = Fate.READ
    read_bytes: int = 0

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
        rows = sizes, mtimes, fingerprints, waiting or [0] * len(sizes)
        size, mtime, fingerprint, left = (np.array(column, np.int64) for column in rows)
        # The driver holds the events of several windows: a column of a million numbers takes less memory than objects.
        return cls(base, os.fsencode("\0".join(names)), size, mtime, fingerprint, left)

    @classmethod
    def left_out(cls, url: str, size_bytes: int, mtime_ns: int, fate: Fate, read_bytes: int) -> FileFingerprints:
        """The event for a version that was left out from an offset on."""
        return replace(cls.of("", [url], [size_bytes], [mtime_ns], [UNKNOWN]), fate=fate, read_bytes=read_bytes)
