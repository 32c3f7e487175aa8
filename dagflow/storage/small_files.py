"""Many small files that are read whole into one buffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dagflow.errors import StorageError
from dagflow.storage.file_stat import FileStat
from dagflow.storage.fingerprint import UNKNOWN

Content = bytes | memoryview | StorageError
"""The bytes of a file, or why they could not be read."""


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Planned versions of files to read; equally long columns.

    Attributes:
        base: The common beginning of all URLs, up to and including a slash: only the scheme where the files are in
            several buckets or on several hosts.
        names: The rest of each URL.
        sizes: Planned lengths in bytes.
        mtimes: Planned modification times in nanoseconds since 1970.
        etags: Planned etags, or () where there are none.
        fingerprints: Planned head/tail fingerprints; see FileStat. () where there are none.
        file_ids: Planned inode numbers, or () where there are none.
    """

    base: str
    names: Sequence[str]
    sizes: Sequence[int]
    mtimes: Sequence[int]
    etags: Sequence[str] = ()
    fingerprints: Sequence[int] = ()
    file_ids: Sequence[int] = ()

    def expected(self, index: int) -> FileStat:
        """The planned version of one file."""
        return FileStat(
            url=self.base + self.names[index],
            size_bytes=self.sizes[index],
            mtime_ns=self.mtimes[index],
            etag=self.etags[index] if self.etags else "",
            fingerprint=self.fingerprints[index] if self.fingerprints else UNKNOWN,
            file_id=self.file_ids[index] if self.file_ids else 0,
        )

    @property
    def buffer_bytes(self) -> int:
        """The size that a buffer for Files.load must have, in bytes."""
        # For each file one byte more for an added ending, and one that reveals growth.
        return sum(self.sizes) + 2 * len(self.names)


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """Files that were read into a buffer, one behind the other.

    Attributes:
        borders: One more than there are files: the start of each, and the end of the last one.
        failures: Why a file was not read, by its index; none of its bytes are in the buffer.
        grown: Indices of files that were appended to since they were planned.
    """

    borders: list[int]
    failures: dict[int, StorageError]
    grown: frozenset[int] = frozenset()


def fill_buffer(contents: Iterable[Content], buffer: memoryview, endings: bytes) -> LoadedFiles:
    """Copy the contents of files into a buffer; see Files.load."""
    borders, failures, position = [0], {}, 0
    for index, content in enumerate(contents):
        if isinstance(content, StorageError):
            failures[index] = content
        else:
            buffer[position : position + len(content)] = content
            position += len(content)
            if endings and content and content[-1] not in endings:
                buffer[position] = endings[0]
                position += 1
        borders.append(position)
    return LoadedFiles(borders, failures)
