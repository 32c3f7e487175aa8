"""An output format of one's own: lines of key=value pairs, as many log collectors read them."""

from __future__ import annotations

import json
from typing import ClassVar

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.sink.formats.text_format import TextFormat


class LogfmtSink(TextFormat):
    """A line for each record: key=value pairs with spaces between them, without missing values."""

    name: ClassVar[str] = "logfmt"
    suffix: ClassVar[str] = ".log"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        """Return the line of each record; a raw record has the one column `record`, of bytes."""
        lines = [
            " ".join(f"{key}={quoted(value)}" for key, value in record.items() if value is not None)
            for record in batch.to_arrow().to_pylist()
        ]
        return pa.array([f"{line}\n".encode() for line in lines], pa.binary())


def quoted(value: object) -> str:
    """Return numbers and booleans as they are, and everything else as text in quotes."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return json.dumps(value, default=str)
