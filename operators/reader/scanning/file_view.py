"""A range of a file in memory that slides forward as records are cut from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.reader.byte_source import ByteSource, GrowingSource, read_fully

Bytes = npt.NDArray[np.uint8]


class FileView:
    """The bytes of a file from one position to another.

    Every move gives a new buffer, because record batches still use the old one.

    Attributes:
        start: Offset in the file of the first byte held.
        end: Offset one past the last byte held.
        buffer: Begins with the bytes held.
    """

    __slots__ = ("buffer", "end", "source", "start")

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.start = 0
        self.end = 0
        self.buffer: pa.Buffer = pa.allocate_buffer(0)

    @property
    def is_at_end(self) -> bool:
        """Whether the view reaches the end of the file."""
        return self.end >= self.source.size_bytes

    @property
    def is_final(self) -> bool:
        """Whether no more bytes can follow those in the view."""
        return self.is_at_end and not isinstance(self.source, GrowingSource)

    @property
    def data(self) -> Bytes:
        """The bytes held, without copying them."""
        return np.frombuffer(self.buffer, np.uint8, self.end - self.start)

    def move(self, start: int, end: int) -> Bytes:
        """Hold the bytes from start to end, or to the end of the file if that comes first.

        Bytes that are held already are copied, not read again.

        Returns:
            The bytes held.

        Raises:
            StorageError: The source failed.
            EOFError: The source ended before its size.
        """
        end = max(start, min(end, self.source.size_bytes))
        # One byte more, because an empty buffer cannot be viewed as bytes.
        buffer = pa.allocate_buffer(end - start + 1)
        target = memoryview(buffer).cast("B")
        filled = 0
        if self.start <= start < self.end:
            filled = min(self.end, end) - start
            target[:filled] = memoryview(self.buffer).cast("B")[start - self.start :][:filled]
        filled += read_fully(self.source, start + filled, target[filled : end - start])
        self.start, self.end, self.buffer = start, start + filled, buffer
        return self.data


def read_exactly(source: ByteSource, start: int, end: int) -> Bytes:
    """The bytes from start to end, or to the end of the file if that comes first."""
    return FileView(source).move(start, end)
