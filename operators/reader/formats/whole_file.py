"""Files that are one record each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.properties import Size
from dagflow.api.records import NO_DELIMITER, RecordBatch
from dagflow.errors import RecordError
from operators.files.metadata import BlockMetadata
from operators.reader.formats.base import Account, ByteSource, Parsed, RecordFormat
from operators.reader.formats.framing import frame_adjacent
from operators.reader.formats.sliding_buffer import Window


class WholeFile(RecordFormat):
    """Every file is one record, an empty one too; it belongs to the file's first block.

    With columns, a record has `path` and `content`; in a path bytes that are not UTF-8 stand as escapes.
    """

    name: ClassVar[str] = "whole_file"

    columns: Annotated[bool, Field(description="whether a record has the columns path and content")] = False
    max_record: Annotated[Size, Field(ge=1, le=1 << 30, description="bytes that a file may have")] = 64 << 20
    on_long: Annotated[Literal["fail", "skip", "reject"], Field(description="what becomes of a larger file")] = "fail"

    def read(self, source: ByteSource, block: BlockMetadata, account: Account) -> Iterator[RecordBatch]:
        """The file, if the block is its first."""
        size = source.size_bytes
        if block.start or (size and block.end == block.start):
            return
        if size > self.max_record:
            self._refuse(block, size, account)
            return
        window = Window(source)
        window.move(0, size)
        borders = np.array([0, size], np.int32)
        yield frame_adjacent(window.buffer, borders, NO_DELIMITER, block, 0)

    def _refuse(self, block: BlockMetadata, size: int, account: Account) -> None:
        reason = f"the file is longer than max_record, {self.max_record} bytes"
        if self.on_long == "skip":
            account.skip(0, size, "long file")
        elif self.on_long == "reject":
            account.reject(0, size, reason, b"")
        else:
            hint = "raise max_record, or say what shall become of long files with on_long: skip or reject"
            raise RecordError(reason, url=block.url, offset=0, length=size, hint=hint)
        account.leave_out()

    def parse(self, batch: RecordBatch, account: Account) -> Parsed:
        """The file with its path, if that is asked for."""
        if not self.columns:
            return Parsed(batch)
        # A path may hold bytes that are no text.
        raw = [os.fsencode(block.url) for block in batch.blocks]
        paths = pa.array([path.decode("utf-8", "backslashreplace") for path in raw], pa.string())
        return Parsed(batch, pa.RecordBatch.from_arrays([paths, batch.record], ["path", "content"]))
