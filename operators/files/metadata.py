"""What a splitter emits of files and blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dagflow.api.ports import RowTuple


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file to be split, as an upstream operator names it.

    Attributes:
        url: Where it is: a path, or an fsspec URL.
        relative_path: Its path below the root that it was found under; "" where there is none.
    """

    url: str
    relative_path: str = ""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """Which bytes a file held when it was planned.

    Attributes:
        size_bytes: Its length.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        file_id: Inode number, by which a renamed file is found; 0 where unknown.
    """

    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    file_id: int = 0


@dataclass(frozen=True, slots=True)
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

    @classmethod
    def to_rows(cls, tuples: Iterable[FileMetadata]) -> list[Any]:
        """A list of values for each file."""
        return [
            [
                *(file.url, file.relative_path),
                *(file.version.size_bytes, file.version.mtime_ns, file.version.etag, file.version.file_id),
                *(file.block_size, file.first_block_id, file.block_count, file.is_directory, file.discovered_ms),
            ]
            for file in tuples
        ]

    @classmethod
    def from_rows(cls, rows: Iterable[Any]) -> Iterator[FileMetadata]:
        """The files that to_rows was given."""
        for url, path, size_bytes, mtime_ns, etag, file_id, *rest in rows:
            yield cls(url, path, FileVersion(size_bytes, mtime_ns, etag, file_id), *rest)


class DecompressedRange(NamedTuple):
    """What part of the content of a compressed file that is cut a block has, as a pre-scan found it.

    Places are those of the compression: bits for bzip2, bytes for others. Offsets count decompressed bytes.

    Attributes:
        start: Offset of the first byte in the units that begin in the block.
        end: One past the last.
        entry: Place of the first such unit, or of the next one.
        exit: Place behind the last.
        near_place: Place of a unit somewhat before, for formats that look back.
        near_start: Offset of its first byte.
    """

    start: int
    end: int
    entry: int
    exit: int
    near_place: int
    near_start: int


@dataclass(frozen=True, slots=True)
class BlockMetadata(RowTuple):
    """A half-open byte range of one version of one file.

    Attributes:
        block_id: Unique in a checkpoint, ascending in order of emission.
        url: The file.
        version: The version of the file.
        start: First byte.
        end: One past the last byte.
        is_last: Whether the block ends the file.
        previous_block_id: Id of the file's block before this one, or -1.
        entry_state: What a pre-scan found of the place where the block begins, in the terms of its format;
            0 where there was none, and at the beginning of a file; -1 where what lies before could not be read.
        is_open: Whether the file may grow, so that a last record without delimiter waits for its end. In what a
            reader says of a block that it has read: whether one does wait behind it.
        resumes: Whether the block begins where an earlier version of the file ended, so that it also has the
            record that was in progress there. The same of the content behind content_start.
        fingerprint: Of the version's first and last bytes, by which they are recognised although the file has grown
            since; 0 where none was taken.
        decompressed: What part of a compressed file it is; None where the file is not cut.
        discovered_ms: When a scan listed the version, in milliseconds since 1970; 0 where that is not known.
        content_start: Of a compressed file, one block, that was read before under another name: how many bytes of its
            content were.
        tail_start: Of a tail: how much of the file was read before, as an earlier version; 0 where all of it is new.
        read_fingerprint: Of the bytes before tail_start, or of the content before content_start, as they were read; 0
            where none is known. A file that begins otherwise by now was rewritten.
        moved_from: The URL under which a splitter took the file before, or its own of a copy that was put in its
            place; "" for none.
        is_gone: Whether an earlier window has found that the version is gone, so that this is left out.
    """

    block_id: int
    url: str
    version: FileVersion
    start: int
    end: int
    is_last: bool
    previous_block_id: int = -1
    entry_state: int = 0
    is_open: bool = False
    resumes: bool = False
    fingerprint: int = 0
    decompressed: DecompressedRange | None = None
    discovered_ms: int = 0
    content_start: int = 0
    tail_start: int = 0
    read_fingerprint: int = 0
    moved_from: str = ""
    is_gone: bool = False

    @property
    def size_bytes(self) -> int:
        """Length of the range."""
        return self.end - self.start

    @property
    def begins_at_cut(self) -> bool:
        """Whether it goes on behind a block of another version: the record that lies across its start was read."""
        return not self.resumes and (self.start == self.tail_start > 0 or self.content_start > 0)

    @classmethod
    def to_rows(cls, tuples: Iterable[BlockMetadata]) -> list[Any]:
        """Fold consecutive blocks of a file into one row: a plan of a big file is short, however many blocks it has."""
        rows: list[Any] = []
        last: BlockMetadata | None = None
        for block in tuples:
            if last is not None and _continues(last, block, rows[-1][7]):
                rows[-1][8] += 1
                rows[-1][9:11] = [block.end, block.is_last]
            else:
                version = block.version
                rows.append(
                    [
                        *(block.url, version.size_bytes, version.mtime_ns, version.etag, version.file_id),
                        *(block.block_id, block.start, block.size_bytes),
                        *(1, block.end, block.is_last, block.previous_block_id),
                        *(block.entry_state, block.is_open, block.resumes, block.fingerprint, block.discovered_ms),
                        *_rarely_set(block),
                    ]
                )
            last = block
        return rows

    @classmethod
    def from_rows(cls, rows: Iterable[Any]) -> Iterator[BlockMetadata]:
        """The blocks that to_rows was given."""
        for row in rows:
            yield from _unfolded(*row)


def _unfolded(
    url: str,
    size_bytes: int,
    mtime_ns: int,
    etag: str,
    file_id: int,
    first_id: int,
    start: int,
    length: int,
    count: int,
    end: int,
    is_last: bool,
    previous: int,
    entry_state: int,
    is_open: bool,
    resumes: bool,
    fingerprint: int,
    discovered_ms: int,
    decompressed: list[int] | None = None,
    content_start: int = 0,
    tail_start: int = 0,
    read_fingerprint: int = 0,
    moved_from: str = "",
    is_gone: bool = False,
) -> Iterator[BlockMetadata]:
    version = FileVersion(size_bytes, mtime_ns, etag, file_id)
    for index in range(count):
        is_final = index == count - 1
        yield BlockMetadata(
            block_id=first_id + index,
            url=url,
            version=version,
            start=start + index * length,
            end=end if is_final else start + (index + 1) * length,
            is_last=is_final and is_last,
            previous_block_id=first_id + index - 1 if index else previous,
            entry_state=entry_state,
            is_open=is_open,
            resumes=resumes and not index,
            fingerprint=fingerprint,
            decompressed=None if decompressed is None else DecompressedRange(*decompressed),
            discovered_ms=discovered_ms,
            content_start=content_start,
            tail_start=tail_start,
            read_fingerprint=read_fingerprint,
            moved_from=moved_from,
            is_gone=is_gone,
        )


def _rarely_set(block: BlockMetadata) -> list[Any]:
    """The end of a block's row, without what is not set."""
    decompressed = None if block.decompressed is None else list(block.decompressed)
    before = block.content_start, block.tail_start, block.read_fingerprint, block.moved_from
    values = [decompressed, *before, block.is_gone]
    while values and not values[-1]:
        values.pop()
    return values


def _continues(last: BlockMetadata, block: BlockMetadata, length: int) -> bool:
    """Whether block is the one after last, in a row whose blocks have the given length."""
    return (
        block.url == last.url
        and block.version == last.version
        and block.start == last.end
        and last.size_bytes == length
        and block.block_id == last.block_id + 1
        and block.previous_block_id == last.block_id
        and not last.is_last
        and block.entry_state == last.entry_state
        and (block.is_open, block.fingerprint) == (last.is_open, last.fingerprint)
        and block.discovered_ms == last.discovered_ms
        and (block.tail_start, block.read_fingerprint) == (last.tail_start, last.read_fingerprint)
        and (block.moved_from, block.is_gone) == (last.moved_from, last.is_gone)
        and (block.decompressed, last.decompressed) == (None, None)
        and not (block.resumes or block.content_start)
    )
