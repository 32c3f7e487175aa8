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
from operators.reader.byte_source import ByteSource, FileView
from operators.reader.formats.base import BATCH_RECORDS, ByteAccounting, FormatTraits, RecordFormat
from operators.reader.scanning.framing import frame_adjacent, frame_one


class Fixed(RecordFormat):
    """Records of one length, side by side from the first byte of the file on."""

    name: ClassVar[str] = "fixed"
    needs_size = False
    traits = FormatTraits(needs_order=True)

    length: Annotated[Size, Field(ge=1, le=1 << 30, description="bytes in each record")]
    tail: Annotated[
        Literal["reject", "keep", "fail"],
        Field(description="what happens to a file's last record if it is shorter"),
    ] = "reject"

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        position = _round_up(block.start, self.length)
        stop = _round_up(block.end, self.length)
        step = min(max(self.chunk_bytes // self.length, 1), BATCH_RECORDS) * self.length
        borders = np.arange(0, step + self.length, self.length, dtype=np.int32)
        view = FileView(source)
        while position < min(stop, source.size_bytes):
            data = view.move(position, min(position + step, stop))
            if count := len(data) // self.length:
                yield frame_adjacent(view.buffer, borders[: count + 1], NO_DELIMITER, block, position)
            elif len(data):
                yield from self._read_tail(data.tobytes(), block, accounting, position)
            position += max(count, 1) * self.length

    def complete_end(self, source: ByteSource) -> int:
        return source.size_bytes // self.length * self.length

    def _read_tail(
        self, raw: bytes, block: BlockMetadata, accounting: ByteAccounting, position: int
    ) -> Iterator[RecordBatch]:
        if self.tail == "keep":
            yield frame_one(raw, b"", block, position)
            return
        reason = f"the file ends after {len(raw)} of the {self.length} bytes of a record"
        if self.tail == "fail":
            raise RecordError(reason, url=block.url, offset=position, length=len(raw))
        accounting.reject(position, len(raw), reason, raw)


def _round_up(position: int, length: int) -> int:
    return -(-position // length) * length
