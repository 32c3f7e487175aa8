"""Records of one length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Size
from dagflow.api.records import NO_DELIMITER, RecordBatch
from dagflow.errors import RecordError
from dagflow.storage.columns import borders_of, bytes_of
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, FileView
from operators.reader.columns.fixed_fields import FixedFields
from operators.reader.columns.typing import accepted, without_refused
from operators.reader.formats.base import BATCH_RECORDS, ByteAccounting, FormatTraits, Parsed, RecordFormat
from operators.reader.scanning.charset import Charset
from operators.reader.scanning.framing import frame_adjacent, frame_one
from operators.reader.scanning.search import BYTE


class Fixed(RecordFormat):
    """Records of one length, side by side from the first byte of the file on."""

    name: ClassVar[str] = "fixed"
    needs_size = False
    traits = FormatTraits(needs_order=True, columns=StreamColumns.raw())

    length: Annotated[Size, Field(ge=1, le=1 << 30, description="bytes in each record")]
    tail: Annotated[
        Literal["reject", "keep", "fail"], Field(description="what happens to a file's last record if it is shorter")
    ] = "reject"
    columns: Annotated[
        FixedFields | None,
        Field(
            description="columns by their first byte in the record, the byte behind it, and a type: [0, 8, int64], "
            "[8, 20], [20, 28, {type: date32, format: '%Y%m%d'}], [28, 32, 'packed(7, 2)'] or zoned"
        ),
    ] = None
    encoding: Annotated[
        str, Field(description="encoding of the text in columns, by a name that Python knows, such as cp037 for EBCDIC")
    ] = "utf-8"
    trim: Annotated[bool, Field(description="whether columns of text are without the spaces at both ends")] = True

    def check_properties(self) -> None:
        self._charset = Charset.named(self.encoding)
        if self.columns is None:
            if self._charset.name != "utf-8":
                raise ValueError("encoding is that of columns; for records as text write columns: {line: [0, LENGTH]}")
            return
        if not self.columns:
            raise ValueError("columns: at least one column must be read")
        for name, field in self.columns.items():
            if field.end > self.length:
                raise ValueError(f"columns: '{name}' ends at byte {field.end}, and records have {self.length}")
            if field.coding == "zoned" and self._charset.unit != BYTE:
                raise ValueError(f"columns: '{name}' is zoned, and characters of {self.encoding} have several bytes")
        schema = pa.schema([(name, field.kind.arrow) for name, field in self.columns.items()])
        self.traits = self.traits.with_columns(schema)

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

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """The fields of records; a record with a field that is not of its type is refused."""
        if self.columns is None or not len(batch):
            return Parsed(batch)
        framed = batch.framed()
        borders = borders_of(framed)
        # All are of one length: a shorter one is in a batch of its own.
        length = int(borders[1] - borders[0])
        if length < (needed := max(field.end for field in self.columns.values())):
            reason = f"the record has {length} bytes, and its columns {needed}"
            return Parsed(without_refused(batch, {0: reason}, accounting))
        rows = bytes_of(framed).reshape(len(batch), length)
        arrays: dict[str, pa.Array] = {}
        reasons: dict[int, str] = {}
        for name, field in self.columns.items():
            arrays[name], refused = field.values(rows, self._charset, trims=self.trim)
            place = f"column '{name}' ({field.kind.name}, bytes {field.start} to {field.end})"
            for row, why in refused.items():
                reasons.setdefault(row, f"{place}: {why}")
        return accepted(batch, pa.RecordBatch.from_pydict(arrays), reasons, accounting)

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
