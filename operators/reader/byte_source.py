"""The bytes of one version of one file, as formats and decompressors read them."""

from __future__ import annotations

from typing import Protocol

from dagflow.storage.files import ReadableFile

UNKNOWN_SIZE = 1 << 62
"""Stands for the size of the content of a compressed file as long as its end was not read."""

_STEP_BYTES = 1 << 20


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


def read_fully(source: ByteSource, offset: int, buffer: memoryview) -> int:
    """Fill a buffer with the bytes from an offset on.

    Returns:
        How many bytes were read: fewer than buffer takes only at the end of a source whose size is known only now.

    Raises:
        StorageError: The source failed.
        EOFError: The source ended before its size.
    """
    filled = 0
    while filled < len(buffer):
        count = source.read_into(offset + filled, buffer[filled:])
        if count <= 0 and offset + filled == source.size_bytes:
            break
        if count <= 0:
            raise EOFError(f"the file ends after {offset + filled} of its {source.size_bytes} bytes")
        filled += count
    return filled


def size_read_from(source: ByteSource, position: int) -> int:
    """The size of a source; if it is not known, the source is read to its end, from a position on.

    Raises:
        StorageError: The source failed.
    """
    buffer = memoryview(bytearray(_STEP_BYTES if source.size_bytes == UNKNOWN_SIZE else 0))
    while source.size_bytes == UNKNOWN_SIZE:
        position += read_fully(source, position, buffer)
    return source.size_bytes


class MeasuredFile(ReadableFile):
    """A file that counts the bytes that are read from it.

    Args:
        file: The file.

    Attributes:
        bytes_read: Bytes read so far; bytes that are read twice count twice.
    """

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self.bytes_read = 0

    @property
    def size_bytes(self) -> int:
        """See ReadableFile."""
        return self._file.size_bytes

    @property
    def is_pinned(self) -> bool:
        """See ReadableFile."""
        return self._file.is_pinned

    def has_grown(self) -> bool:
        """See ReadableFile."""
        return self._file.has_grown()

    def is_unchanged(self) -> bool | None:
        """See ReadableFile."""
        return self._file.is_unchanged()

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
        count = self._file.read_into(offset, buffer)
        self.bytes_read += count
        return count

    def close(self) -> None:
        """See ReadableFile."""
        self._file.close()


class SourcePrefix:
    """The first bytes of a source, as if the file ended there.

    Args:
        source: The source.
        size_bytes: How many of its bytes are part of the prefix.
        is_readable: Whether the bytes behind it can be read as well: not those of an incomplete compressed file.

    Attributes:
        whole: The file that the bytes are read from, as far as it can be read.
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
    """A source that more bytes may be appended to: its end is not the end of the file's last record.

    Args:
        source: The bytes that the file has now.

    Attributes:
        whole: The file that the bytes are read from.
    """

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
    """One file's bytes in a buffer that holds many files.

    Args:
        view: The buffer, as bytes.
        start: Where the file begins in it.
        size_bytes: Length of the file.
    """

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
