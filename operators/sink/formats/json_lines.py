"""Records as lines of JSON."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from dagflow.api.columns.json_values import json_values
from dagflow.api.records import RecordBatch
from operators.sink.formats.text_format import TextFormat


class JsonLinesSink(TextFormat):
    """A JSON object for each record, in UTF-8, ended by a newline; a raw record is the member `record`.

    Decimals are text, which keeps their digits; times are in ISO 8601; bytes are text, or an object with the
    one member base64 where they are no UTF-8; infinities and NaN are null.
    """

    name: ClassVar[str] = "json_lines"
    suffix: ClassVar[str] = ".jsonl"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        lines = json_lines(batch.to_arrow())
        # Within a line newlines are escaped.
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")).astype(np.int32) + 1
        borders = pa.py_buffer(np.concatenate([np.zeros(1, np.int32), ends]))
        return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, borders, pa.py_buffer(lines)])


def json_lines(rows: pa.RecordBatch) -> bytes:
    """One JSON object per row, ended by a newline; members in the order of the columns, values as json_values says."""
    names = rows.schema.names
    columns = [json_values(column) for column in rows.columns]
    if not columns:
        empty: bytes = b"{}\n" * int(rows.num_rows)
        return empty
    encode = msgspec.json.Encoder().encode_lines
    made: bytes = encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
    return made
