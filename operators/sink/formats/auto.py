"""The format that fits the records."""

from __future__ import annotations

from typing import ClassVar

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.json_lines import JsonLinesSink
from operators.sink.formats.raw import RawSink


class AutoSink(RawSink):
    """Raw records as raw, records with columns as json_lines."""

    name: ClassVar[str] = "auto"

    def check_properties(self) -> None:
        """Make the format of records with columns."""
        self._json_lines = JsonLinesSink(compression=self.compression)

    def check_columns(self, arriving: StreamColumns) -> None:
        """Take any."""

    def for_batch(self, batch: RecordBatch) -> SinkFormat:
        """The format itself for raw records, json_lines for others."""
        return self if batch.is_raw else self._json_lines
