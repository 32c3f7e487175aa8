"""Files that are one record each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Size
from dagflow.api.records import NO_DELIMITER, Origin, RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import UNKNOWN_SIZE, BufferedFiles, ByteSource, FileView, size_read_from
from operators.reader.formats.base import ByteAccounting, FormatTraits, Parsed, RecordFormat
from operators.reader.scanning.framing import frame_adjacent

_WITH_PATH = pa.schema([("path", pa.string()), ("content", pa.binary())])


class WholeFile(RecordFormat):
    """Every file is one record, even an empty one; it belongs to the file's first block.

    With columns, a record has `path` and `content`; bytes of a path that are not UTF-8 become escapes.
    """

    name: ClassVar[str] = "whole_file"
    needs_size = False
    traits = FormatTraits(needs_order=True, columns=StreamColumns.raw())

    columns: Annotated[bool, Field(description="whether a record has the columns path and content")] = False
    max_record: Annotated[Size, Field(ge=1, le=1 << 30, description="maximum bytes of a file")] = 64 << 20
    on_long: Annotated[Literal["fail", "skip", "reject"], Field(description="what happens to a larger file")] = "fail"

    def check_properties(self) -> None:
        """Without columns, each file is a record as its bytes are in a buffer; a subclass may read differently."""
        if self.columns:
            self.traits = self.traits.with_columns(_WITH_PATH)
        elif type(self) is WholeFile:
            self.traits = replace(self.traits, multi_file=self._read_together)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        if block.start or (source.size_bytes and block.end == block.start):
            return
        view = FileView(source)
        # The size of a compressed file is known only when it was read: it is read until it is too long.
        while not self._is_long(source, view):
            view.move(0, min(source.size_bytes, max(self.chunk_bytes, 2 * view.end), self.max_record + 1))
            if view.is_at_end:
                break
        if self._is_long(source, view):
            self._refuse(source, view.end, block, accounting)
            return
        borders = np.array([0, view.end], np.int32)
        yield frame_adjacent(view.buffer, borders, NO_DELIMITER, block, 0)

    def _is_long(self, source: ByteSource, view: FileView) -> bool:
        return self.max_record < (view.end if source.size_bytes == UNKNOWN_SIZE else source.size_bytes)

    def complete_end(self, source: ByteSource) -> None:
        """A longer file is another record."""

    def _refuse(self, source: ByteSource, read_bytes: int, block: BlockMetadata, accounting: ByteAccounting) -> None:
        reason = f"the file is longer than max_record, {self.max_record} bytes"
        if self.on_long == "fail":
            hint = "raise max_record, or for long files set on_long: skip or reject"
            raise RecordError(reason, url=block.url, offset=0, length=-1, hint=hint)
        size = size_read_from(source, read_bytes)
        if self.on_long == "skip":
            accounting.skip(0, size, "long file")
        else:
            accounting.reject(0, size, reason, b"")
        accounting.mark_left_out()

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        if not self.columns:
            return Parsed(batch)
        # A path may have bytes that are not UTF-8.
        raw = [os.fsencode(block.url) for block in batch.blocks]
        paths = pa.array([path.decode("utf-8", "backslashreplace") for path in raw], pa.string())
        return Parsed(batch, pa.RecordBatch.from_arrays([paths, batch.record], schema=_WITH_PATH))

    def _read_together(self, files: BufferedFiles) -> RecordBatch | None:
        if int(files.sizes.max(initial=0)) > self.max_record:
            return None
        count = len(files.indices)
        borders = files.borders.astype(np.int32)
        framed = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(borders), files.buffer])
        blocks: Any = files.blocks()
        origin = Origin(blocks, np.zeros(count, np.int32), 0, np.arange(count, dtype=np.int32))
        return RecordBatch(framed=framed, delimiters=NO_DELIMITER, origin=origin)
