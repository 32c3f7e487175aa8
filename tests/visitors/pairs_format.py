"""A record format of one's own: every two bytes are a record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.scanning.framing import frame_one


class Pairs(RecordFormat):
    """Every two bytes are a record."""

    name: ClassVar[str] = "pairs"

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """Yield the records that begin in the block, each whole, wherever the block ends."""
        buffer = bytearray(2)
        first = block.start + block.start % 2
        for offset in range(first, min(block.end, source.size_bytes), 2):
            count = source.read_into(offset, memoryview(buffer))
            yield frame_one(bytes(buffer[:count]), b"", block, offset)

    def complete_end(self, source: ByteSource) -> int:
        """The end of the last whole record: half of one waits until the file has grown."""
        return source.size_bytes - source.size_bytes % 2
