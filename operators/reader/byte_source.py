"""The bytes of one version of one file, as formats and decompressors read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import override

from dagflow.frozen import frozen
from dagflow.storage.file_kinds import TEXT_HEAD_BYTES, wide_encoding
from dagflow.storage.files import ReadableFile
from operators.files.metadata import Column
from operators.files.small_file_batch import SmallFileBatch, SmallFileBlocks

UNKNOWN_SIZE = 1 << 62
"""Stands for the size of the content of a compressed file as long as its end was not read."""

_STEP_BYTES = 1 << 20

_KEPT_BYTES = 512
"""Bytes by which compressions, kinds of files, encodings and marks are recognised, and some more."""


class ByteSource(Protocol):
    """The bytes of one version of one file."""

    @property
    def size_bytes(self) -> int:
        """Length of the file in that version."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill buffer with the bytes from offset on.

        Returns:
            How many bytes were read: fewer than buffer takes only at the end of the file.

        Raises:
            StorageError: The store failed, or the file is no longer that version.
        """


class SourceEndError(EOFError):
    """A file has fewer bytes than its planned version."""


def read_fully(source: ByteSource, offset: int, buffer: memoryview) -> int:
    """Fill a buffer with the bytes from an offset on.

    Returns:
        How many bytes were read: fewer than buffer takes only at the end of a source whose size is known only now.
    """
    filled = 0
    while filled < len(buffer):
        count = source.read_into(offset + filled, buffer[filled:])
        if count <= 0 and offset + filled == source.size_bytes:
            break
        if count <= 0:
            raise SourceEndError(f"the file ends after {offset + filled} of its {source.size_bytes} bytes")
        filled += count
    return filled


def size_read_from(source: ByteSource, position: int) -> int:
    """The size of a source; if it is not known, the source is read to its end, from a position on."""
    buffer = memoryview(bytearray(_STEP_BYTES if source.size_bytes == UNKNOWN_SIZE else 0))
    while source.size_bytes == UNKNOWN_SIZE:
        position += read_fully(source, position, buffer)
    return source.size_bytes


class MeasuredFile(ReadableFile):
    """A file that counts the bytes that are read from it, and keeps its first ones, by which files are recognised."""

    size_bytes = 0
    is_pinned = False

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.size_bytes = file.size_bytes
        self.is_pinned = file.is_pinned
        self.bytes_read = 0
        self._head = b""

    @override
    def has_grown(self) -> bool:
        return self._file.has_grown()

    @override
    def is_unchanged(self) -> bool | None:
        return self._file.is_unchanged()

    @override
    def read_into(self, offset: int, buffer: memoryview) -> int:
        head_bytes = min(_KEPT_BYTES, self.size_bytes)
        if offset + len(buffer) > head_bytes:
            count = self._file.read_into(offset, buffer)
        else:
            if len(self._head) < head_bytes:
                head = bytearray(head_bytes)
                self._head = bytes(head[: self._file.read_into(0, memoryview(head))])
            piece = self._head[offset : offset + len(buffer)]
            count = len(piece)
            buffer[:count] = piece
        self.bytes_read += count
        return count

    @override
    def close(self) -> None:
        self._file.close()


class SourcePrefix:
    """The first bytes of a source, as if the file ended there.

    Where it is_readable, formats may also read the bytes behind it; not those of an incomplete compressed file.
    """

    def __init__(self, source: ByteSource, size_bytes: int, *, is_readable: bool = True) -> None:
        self._source = source
        self.whole: ByteSource = whole_of(source) if is_readable else self
        self._size_bytes = min(size_bytes, source.size_bytes)

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        return self._size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        return self._source.read_into(offset, buffer[: max(0, self._size_bytes - offset)])


class GrowingSource:
    """A source that more bytes may be appended to: its end is not the end of the file's last record."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.whole = whole_of(source)

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        return self._source.size_bytes

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        return self._source.read_into(offset, buffer)


def whole_of(source: ByteSource) -> ByteSource:
    """The source that a view of it was made from; the source itself where it is none."""
    return source.whole if isinstance(source, (SourcePrefix, GrowingSource)) else source


class BufferSlice:
    """One file's bytes in a buffer that holds many files."""

    def __init__(self, view: memoryview, start: int, size_bytes: int) -> None:
        self._view = view[start : start + size_bytes]

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        return len(self._view)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        piece = self._view[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


Bytes = npt.NDArray[np.uint8]

PADDING = 16
"""Bytes of any kind behind those of a view: machine code looks at words that extend beyond their end."""


class FileView:
    """The bytes of a file from one position to another.

    Every move gives a new buffer, because record batches still use the old one.
    """

    __slots__ = ("buffer", "data", "end", "source", "start")

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.start = 0
        self.end = 0
        self.buffer: pa.Buffer = pa.allocate_buffer(0)
        self.data: Bytes = np.empty(0, np.uint8)

    @property
    def is_at_end(self) -> bool:
        """Whether the view reaches the end of the file."""
        return self.end >= self.source.size_bytes

    @property
    def is_final(self) -> bool:
        """Whether no more bytes can follow those in the view."""
        return self.is_at_end and not isinstance(self.source, GrowingSource)

    def move(self, start: int, end: int) -> Bytes:
        """Hold the bytes from start to end, or to the end of the file if that comes first.

        Bytes that are held already are copied, not read again.
        """
        end = max(start, min(end, self.source.size_bytes))
        buffer = pa.allocate_buffer(end - start + PADDING)
        target = memoryview(buffer).cast("B")
        filled = 0
        if self.start <= start < self.end:
            filled = min(self.end, end) - start
            target[:filled] = memoryview(self.buffer).cast("B")[start - self.start :][:filled]
        filled += read_fully(self.source, start + filled, target[filled : end - start])
        self.start, self.end, self.buffer = start, start + filled, buffer
        self.data = np.frombuffer(buffer, np.uint8, filled)
        return self.data


def read_exactly(source: ByteSource, start: int, end: int) -> Bytes:
    """The bytes from start to end, or to the end of the file if that comes first."""
    return FileView(source).move(start, end)


def encoding_of(source: ByteSource) -> tuple[str, str]:
    """The encoding of wide units that a file is in, and what shows it; two empty texts if it is in none."""
    return wide_encoding(read_exactly(whole_of(source), 0, TEXT_HEAD_BYTES).tobytes())


@frozen
class BufferedFiles:
    """Files in a buffer, one after the other.

    Attributes:
        borders: One more than there are files: where each begins, and where the last one ends.
        batch: The small-file batch of the files.
        indices: Their indices in the batch.
        grown: Indices of files that were appended to since they were planned.
    """

    buffer: pa.Buffer
    borders: npt.NDArray[np.int64]
    batch: SmallFileBatch
    indices: Column
    grown: frozenset[int] = frozenset()

    @property
    def sizes(self) -> Column:
        """The files' own lengths, without delimiters that were added to files."""
        return self.batch.sizes[self.indices]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of all files, without copying them."""
        return np.frombuffer(self.buffer, np.uint8, int(self.borders[-1]))

    def blocks(self, chosen: npt.NDArray[np.bool_] | None = None) -> SmallFileBlocks:
        """The block of each file, or of some of them, for the origin of a batch of their records."""
        return SmallFileBlocks(self.batch, self.indices if chosen is None else self.indices[chosen])

    def only(self, chosen: npt.NDArray[np.bool_]) -> BufferedFiles:
        """Some of the files. They are adjacent if the others are empty in the buffer."""
        return replace(
            self, borders=np.append(self.borders[:-1][chosen], self.borders[-1]), indices=self.indices[chosen]
        )
