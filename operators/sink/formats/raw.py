"""Raw records, as they were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.json_lines import JsonLinesSink
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
