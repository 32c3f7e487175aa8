"""Lines in which an escape makes a delimiter part of the record."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of, bytes_of
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.formats.lines import Lines
from operators.reader.scanning.charset import Charset
from operators.reader.scanning.search import (
    BackwardSearch,
    CodeUnits,
    Positions,
    Terminators,
    escaped_positions,
)


class EscapedLines(Lines):
    r"""Lines in which a delimiter behind an odd number of escapes does not end the record.

    In CR LF, an escape takes only the CR, so the LF ends the line; write `\` before each of the two, or
    give the delimiter "\r\n", which is escaped as one.
    """

    name: ClassVar[str] = "escaped_lines"

    escape: Annotated[
        str, Field(min_length=1, max_length=1, description="character that makes the next one literal")
    ] = "\\"
    unescape: Annotated[bool, Field(description="whether the escape characters are removed from the records")] = False

    def check_properties(self) -> None:
        super().check_properties()
        if self.escape in (self.delimiter or "\r\n"):
            raise ValueError(f"escape {self.escape!r} is part of the delimiter")
        if not self.escape.isascii():
            raise ValueError(f"escape {self.escape!r} is not an ASCII character")

    def _use(self, charset: Charset | None) -> None:
        super()._use(charset)
        encoded = charset.encode(self.escape) if charset else self.escape.encode()
        self._escape = int(self._unit.view(np.frombuffer(encoded, np.uint8))[0])

    def _find(self, units: CodeUnits, is_at_end: bool, escaped: Positions | None = None) -> Terminators:
        own = escaped_positions(units, self._escape)
        return super()._find(units, is_at_end, own if len(own) else escaped)

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        backward = BackwardSearch(source, floor, self._unit, min(64, self.chunk_bytes))
        # Whether an escape is literal is known from the start of its run.
        return backward.run_start(super().anchor(source, position, floor), self._escape)

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        raw = super().parse(batch, accounting).raw
        return Parsed(without_escapes(raw, self.escape.encode()[0]) if self.unescape else raw)


def without_escapes(batch: RecordBatch, escape: int) -> RecordBatch:
    """The same records without their escapes, but for an escape at a record's end."""
    framed = batch.framed()
    borders = borders_of(framed)
    data = bytes_of(framed)
    ends = borders[1:] - borders[0] - batch.delimiters.lengths()
    gone = escaped_positions(data, escape) - 1
    gone = gone[~np.isin(gone, ends - 1, assume_unique=True)] if len(gone) else gone
    if not len(gone):
        return batch
    relative = borders - borders[0]
    moved = (relative - np.searchsorted(gone, relative)).astype(np.int32)
    stays = np.ones(len(data), bool)
    stays[gone] = False
    kept = pa.py_buffer(data[stays])
    array = pa.BinaryArray.from_buffers(pa.binary(), len(batch), [None, pa.py_buffer(moved), kept])
    return RecordBatch(framed=array, delimiters=batch.delimiters, origin=batch.origin)
