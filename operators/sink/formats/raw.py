"""Raw records, as they were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import msgspec
import numpy as np
import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.columns.column_values import json_values
from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.text_format import TextFormat


class RawSink(TextFormat):
    """The bytes of raw records, each with the delimiter that it was read with; names of files have no extension.

    A subclass that also writes records with columns overrides check_columns.
    """

    name: ClassVar[str] = "raw"

    def check_columns(self, arriving: StreamColumns) -> None:
        if not arriving.is_raw:
            self._refuse(arriving.schema)

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        if not batch.is_raw:
            self._refuse(batch.to_arrow().schema)
        return batch.framed()

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        """The whole batch as one array: raw records need no encoding."""
        yield self.encode(batch)

    def _refuse(self, schema: pa.Schema) -> NoReturn:
        names = ", ".join(schema.names)
        raise ValueError(f"format: {self.name} writes raw records, not columns ({names}); say format: json_lines")


class AutoSink(RawSink):
    """Raw records as raw, records with columns as json_lines."""

    name: ClassVar[str] = "auto"

    def check_properties(self) -> None:
        self._json_lines = JsonLinesSink(compression=self.compression)

    def check_columns(self, arriving: StreamColumns) -> None:
        """Take any."""

    def for_batch(self, batch: RecordBatch) -> SinkFormat:
        return self if batch.is_raw else self._json_lines


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
