"""JSON lines: one JSON value a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import Bytes, ByteSource
from operators.reader.columns.json_records import JsonRecords
from operators.reader.formats.base import ByteAccounting
from operators.reader.scanning.delimited import Delimited
from operators.reader.scanning.search import CR, LF, Terminators, contains, positions_of


class JsonLines(Delimited, JsonRecords):
    """One JSON value in UTF-8 a line; lines end with LF or CR LF, and blank ones are skipped.

    A line that is not one JSON value is refused. Records are the lines as they are written; with columns they are JSON
    objects, and are emitted as columns. A member that an object lacks is null; members that are not declared are left
    out.
    """

    name: ClassVar[str] = "json_lines"
    needs_size = False
    table = (b"\n", b"\r\n")
    # Each batch takes milliseconds beside the time of its rows.
    chunk_bytes = 8 << 20

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        feeds = positions_of(data == LF)
        if not contains(data, CR):
            return Terminators(feeds, feeds + 1)
        follows_return = (data[feeds - 1] == CR) & (feeds > 0)
        return Terminators(feeds - follows_return, feeds + 1, follows_return.astype(np.uint8))

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        return max(floor, position - 1)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        """The lines that begin in a block, in batches that have few values as columns, nulls included."""
        for batch in super().read(source, block, accounting):
            yield from self.narrow(batch)
