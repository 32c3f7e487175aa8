"""What a splitter says of files and blocks."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """A file that was found, before any of its blocks.

    Attributes:
        url: Where it is.
        relative_path: Its path below the root that it was found under.
        version: The version that the blocks are cut from.
        block_size: Cut interval in bytes.
        first_block_id: Id of its first block; the others follow without a gap.
        block_count: How many blocks it has; 0 for an empty file.
        is_directory: Whether it is a directory, which has no blocks.
    """

    url: str
    relative_path: str
    version: FileVersion
    block_size: int
    first_block_id: int
    block_count: int
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class BlockMetadata:
    """A half-open byte range of one version of one file.

    Attributes:
        block_id: Unique in a checkpoint, ascending in order of emission.
        url: The file.
        version: The version of the file.
        start: First byte.
        end: One past the last byte.
        is_last: Whether the block ends the file.
        previous_block_id: Id of the file's block before this one, or -1.
    """

    block_id: int
    url: str
    version: FileVersion
    start: int
    end: int
    is_last: bool
    previous_block_id: int = -1

    @property
    def size_bytes(self) -> int:
        """Length of the range."""
        return self.end - self.start
