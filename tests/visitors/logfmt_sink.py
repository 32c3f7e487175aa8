"""An output format of one's own: lines of key=value pairs, as many log collectors read them."""

from __future__ import annotations

import json
from typing import ClassVar

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.sink.formats.text_format import TextFormat


class LogfmtSink(TextFormat):
    """A line for each record: key=value pairs with spaces between them; text in quotes, as in JSON."""

    name: ClassVar[str] = "logfmt"
    suffix: ClassVar[str] = ".log"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        """The lines; values that are missing are left out."""
        lines = [
            " ".join(f"{key}={json.dumps(value)}" for key, value in record.items() if value is not None)
            for record in batch.to_arrow().to_pylist()
        ]
        return pa.array([f"{line}\n".encode() for line in lines], pa.binary())
