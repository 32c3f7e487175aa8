"""Raw records, as they were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.sink.formats.text_format import TextFormat


def refuse_columns(schema: pa.Schema) -> NoReturn:
    """Refuse records that have columns.

    Raises:
        ValueError: Always.
    """
    names = ", ".join(schema.names)
    raise ValueError(f"format: raw writes raw records, not columns ({names}); say format: json_lines")


class RawSink(TextFormat):
    """The bytes of raw records, each with the delimiter that it was read with; names of files have no extension."""

    name: ClassVar[str] = "raw"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        """The records with their delimiters, as they lie in memory."""
        if not batch.is_raw:
            refuse_columns(batch.to_arrow().schema)
        return batch.framed()

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        """All at once: there is nothing to be made of them."""
        yield self.encode(batch)
