"""Records of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from dagflow.api.properties import Size
from dagflow.api.records import NO_DELIMITER, RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.scanning.file_view import FileView, read_exactly
from operators.reader.scanning.framing import frame_adjacent, frame_one


class Fixed(RecordFormat):
    """Records of one length, side by side from the first byte of the file on."""

    name: ClassVar[str] = "fixed"

    length: Annotated[Size, Field(ge=1, le=1 << 30, description="bytes in each record")]
    tail: Annotated[
        Literal["reject", "keep", "fail"],
        Field(description="what happens to a file's last record if it is shorter"),
    ] = "reject"

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The records that begin in a block."""
        limit = min(block.end, source.size_bytes)
        position = _round_up(block.start, self.length)
        stop = min(_round_up(limit, self.length), source.size_bytes // self.length * self.length)
        step = max(self.chunk_bytes // self.length, 1) * self.length
        borders = np.arange(0, step + self.length, self.length, dtype=np.int32)
        view = FileView(source)
        while position < stop:
            data = view.move(position, min(position + step, stop))
            count = len(data) // self.length
            yield frame_adjacent(view.buffer, borders[: count + 1], NO_DELIMITER, block, position)
            position += count * self.length
        if position < limit:
            yield from self._read_tail(source, block, accounting, position)

    def complete_end(self, source: ByteSource) -> int:
        """The last multiple of length."""
        return source.size_bytes // self.length * self.length

    def _read_tail(
        self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, position: int
    ) -> Iterator[RecordBatch]:
        raw = read_exactly(source, position, source.size_bytes)
        if self.tail == "keep":
            yield frame_one(raw.tobytes(), b"", block, position)
            return
        reason = f"the file ends after {len(raw)} of the {self.length} bytes of a record"
        if self.tail == "fail":
            raise RecordError(reason, url=block.url, offset=position, length=len(raw))
        accounting.reject(position, len(raw), reason, raw.tobytes())


def _round_up(position: int, length: int) -> int:
    return -(-position // length) * length
