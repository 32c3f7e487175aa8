"""The format that fits the records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from dagflow.api.records import RecordBatch
from operators.sink.formats.base import FileEncoder, FileStream, SinkFormat
from operators.sink.formats.json_lines import JsonLinesSink
from operators.sink.formats.raw import RawSink
from operators.sink.formats.text_format import TextCompression


class AutoSink(SinkFormat):
    """Raw records as raw, records with columns as json_lines."""

    name: ClassVar[str] = "auto"

    compression: TextCompression = "none"

    def check_options(self) -> None:
        """Make the formats to choose from."""
        self._raw = RawSink(compression=self.compression)
        self._json_lines = JsonLinesSink(compression=self.compression)

    @property
    def extension(self) -> str:
        """That of raw records; for_batch gives the format that knows better."""
        return self._raw.extension

    def for_batch(self, batch: RecordBatch) -> SinkFormat:
        """One of the two."""
        return self._raw if batch.is_raw else self._json_lines

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        """Those of the format that fits."""
        return self.for_batch(batch).rows_of(batch)

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file in the format that fits."""
        return self.for_batch(batch).start(stream, batch, max_bytes)
