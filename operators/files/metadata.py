"""The metadata of files and blocks that a splitter emits."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dagflow.api.saved_values import RowTuple
from dagflow.frozen import frozen
from dagflow.storage.fingerprint import UNKNOWN

Column = npt.NDArray[np.int64]
"""One number for each of many files."""


@frozen
class FileInfo:
    """A file to be split, as an upstream operator names it.

    Attributes:
        url: Where it is: a path, or an fsspec URL.
        relative_path: Its path below the root that it was found under; "" where there is none.
    """

    url: str
    relative_path: str = ""


class FileVersion(NamedTuple):
    """The version of a file when it was planned.

    Attributes:
        size_bytes: Its length; -1 for a directory that a splitter lists.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        file_id: Inode number, by which a renamed file is found: stays when the file is appended to, changes when it is
            replaced; 0 where unknown.
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


class _FileRow(NamedTuple):
    """A file, as the journal keeps it: the fields of FileMetadata."""

    url: str
    relative_path: str
    version: FileVersion
    block_size: int
    first_block_id: int
    block_count: int
    is_directory: bool
    discovered_ms: int


@frozen
class FileMetadata(RowTuple):
    """A file that was found, before any of its blocks.

    Attributes:
        url: Where it is.
        relative_path: Its path below the root that it was found under.
        version: The version that the blocks are cut from.
        block_size: Cut interval in bytes.
        first_block_id: Id of its first block; the others follow without a gap.
        block_count: How many blocks it has; 0 for an empty file.
        is_directory: Whether it is a directory, which has no blocks.
        discovered_ms: When a scan listed the version, in milliseconds since 1970; 0 where that is not known.
    """

    url: str
    relative_path: str
    version: FileVersion
    block_size: int
    first_block_id: int
    block_count: int
    is_directory: bool = False
    discovered_ms: int = 0

    row_type = _FileRow

    @classmethod
    def to_rows(cls, tuples: Iterable[FileMetadata]) -> Iterator[_FileRow]:
        return (_FileRow(*attrgetter(*_FileRow._fields)(file)) for file in tuples)

    @classmethod
    def from_rows(cls, rows: Iterable[_FileRow]) -> Iterator[FileMetadata]:
        return (cls(*row) for row in rows)


class DecompressedRange(NamedTuple):
    """The part of the content of a cut compressed file that is in a block, as a pre-scan found it.

    Positions are those of the compressed file. Offsets count decompressed bytes.
    """

    start: int
    end: int
    entry: int
    exit: int
    near_place: int
    near_start: int


class SupersededVersion(NamedTuple):
    """A version of a file as the index has it; see FileVersion.identity."""

    size_bytes: int
    mtime_ns: int
    identity: int


@frozen
class Continuation:
    """What is known of a file beyond one read of one version: it may grow, was read in part, has moved, or is cut.

    Attributes:
        is_open: Whether the file may grow, so that a last record without delimiter waits for its end. In a reader's
            report of a block that it has read: whether a record does wait behind the block.
        fingerprint: Fingerprint of the version's first and last bytes, which recognises them although the file has
            grown since; 0 where none was taken.
        resumes: Whether the block begins where an earlier version of the file ended, so that it also has the record
            that was in progress there. With content_start, the same of the content.
        tail_start: For a tail: how many bytes of the file were read before, as an earlier version; 0 where all are new.
        content_start: For a compressed file of one block that was read before under another name: how many bytes of its
            content were read then.
        read_fingerprint: Fingerprint of the bytes before tail_start, or of the content before content_start, when they
            were read; 0 where none is known. A file that begins differently now was rewritten.
        moved_from: The URL under which a splitter took the file before, or the file's own URL where a copy took its
            place; "" for none.
        is_gone: Whether an earlier window has found that the version is gone, so that this is left out.
        decompressed: The part of the content of a compressed file that is in the block; None where the file is not cut.
        supersedes: The version that was taken before, and that this one replaces; None for none. Its records leave if
            the app says so.
    """

    is_open: bool = False
    fingerprint: int = 0
    resumes: bool = False
    tail_start: int = 0
    content_start: int = 0
    read_fingerprint: int = 0
    moved_from: str = ""
    is_gone: bool = False
    decompressed: DecompressedRange | None = None
    supersedes: SupersededVersion | None = None


NO_CONTINUATION = Continuation()


class _BlockRow(NamedTuple):
    """Consecutive blocks of a file, as the journal keeps them: the fields of the first one, beside these.

    Attributes:
        length: Bytes of each block but the last.
        block_count: How many blocks there are.
        end: Where the last one ends.
        is_last: Whether that ends the file.
        continuation: Without the facts that are as in NO_CONTINUATION; None where all are.
    """

    url: str
    version: FileVersion
    block_id: int
    start: int
    length: int
    block_count: int
    end: int
    is_last: bool
    previous_block_id: int
    entry_state: int
    # Rarely set: left out at the end of a row.
    discovered_ms: int = 0
    continuation: Continuation | None = None


@frozen
class BlockMetadata(RowTuple):
    """A half-open byte range of one version of one file.

    Attributes:
        block_id: Unique in a checkpoint, ascending in order of emission.
        url: The file.
        version: The version of the file.
        start: Offset of its first byte.
        end: Offset one past its last byte.
        is_last: Whether the block ends the file.
        previous_block_id: Id of the file's block before this one, or -1.
        entry_state: The state that a pre-scan found where the block begins, in the terms of its format; 0 without a
            pre-scan, and at the beginning of a file; -1 where the bytes before could not be read.
        discovered_ms: When a scan listed the version, in milliseconds since 1970; 0 where that is not known.
        continuation: What is known of a file that may grow, was read in part, has moved, or is a cut archive.
    """

    block_id: int
    url: str
    version: FileVersion
    start: int
    end: int
    is_last: bool
    previous_block_id: int = -1
    entry_state: int = 0
    discovered_ms: int = 0
    continuation: Continuation = NO_CONTINUATION

    row_type = _BlockRow

    @property
    def size_bytes(self) -> int:
        return self.end - self.start

    @property
    def begins_at_cut(self) -> bool:
        """Whether the block continues one of another version, so that the record across its start was read already."""
        known = self.continuation
        return not known.resumes and (self.start == known.tail_start > 0 or known.content_start > 0)

    @property
    def closes(self) -> bool:
        """Whether the file is over: the block has no bytes, and the record that was left before it is read."""
        return self.continuation.resumes and self.start == self.end

    def continued(self, **facts: Any) -> BlockMetadata:
        """The block with other facts in its continuation."""
        return replace(self, continuation=replace(self.continuation, **facts))

    @classmethod
    def to_rows(cls, tuples: Iterable[BlockMetadata]) -> Iterator[list[Any]]:
        """Fold consecutive blocks of a file into one row, so that the plan of a big file is short."""
        firsts, lasts = list[BlockMetadata](), list[BlockMetadata]()
        for block in tuples:
            if lasts and _continues(lasts[-1], block, firsts[-1].size_bytes):
                lasts[-1] = block
            else:
                firsts.append(block)
                lasts.append(block)
        return map(_row, firsts, lasts)

    @classmethod
    def from_rows(cls, rows: Iterable[_BlockRow]) -> Iterator[BlockMetadata]:
        for row in rows:
            for index in range(row.block_count):
                is_final = index == row.block_count - 1
                yield cls(
                    block_id=row.block_id + index,
                    url=row.url,
                    version=row.version,
                    start=row.start + index * row.length,
                    end=row.end if is_final else row.start + (index + 1) * row.length,
                    is_last=is_final and row.is_last,
                    previous_block_id=row.block_id + index - 1 if index else row.previous_block_id,
                    entry_state=row.entry_state,
                    discovered_ms=row.discovered_ms,
                    continuation=row.continuation or NO_CONTINUATION,
                )


def _row(first: BlockMetadata, last: BlockMetadata) -> list[Any]:
    """The _BlockRow, in plain values, of the blocks from one to another of the same file."""
    row: list[Any] = [first.url, [*first.version], first.block_id, first.start, first.size_bytes]
    row += [last.block_id - first.block_id + 1, last.end, last.is_last]
    row += [first.previous_block_id, first.entry_state, first.discovered_ms]
    if first.continuation == NO_CONTINUATION:
        return [*row, None]
    facts = msgspec.to_builtins(first.continuation)
    return [*row, {name: fact for name, fact in facts.items() if fact}]


def _continues(last: BlockMetadata, block: BlockMetadata, length: int) -> bool:
    """Whether block is the next one after last, in a row whose blocks have the given length."""
    if last.is_last or last.size_bytes != length or block.previous_block_id != last.block_id:
        return False
    following = replace(last, block_id=last.block_id + 1, previous_block_id=last.block_id, start=last.end)
    return block == replace(following, end=block.end, is_last=block.is_last)


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


@frozen
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
