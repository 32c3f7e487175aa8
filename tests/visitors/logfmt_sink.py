"""An output format of one's own: lines of key=value pairs, as many log collectors read them."""

from __future__ import annotations

import json
from typing import ClassVar

import msgspec
import pyarrow as pa

from dagflow.api.columns.column_values import json_values
from dagflow.api.records import RecordBatch
from operators.sink.formats.text_format import TextFormat


class LogfmtSink(TextFormat):
    """A line for each record: key=value pairs with spaces between them, without missing values."""

    name: ClassVar[str] = "logfmt"
    suffix: ClassVar[str] = ".log"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        """Return the line of each record; a raw record has the one column `record`."""
        rows = batch.to_arrow()
        keys = [name if name.isidentifier() else json.dumps(name) for name in rows.schema.names]
        columns = [json_values(column) for column in rows.columns]
        lines = [
            " ".join(f"{key}={quoted(value)}" for key, value in zip(keys, row, strict=True) if value is not None)
            for row in zip(*columns, strict=True)
        ]
        return pa.array([f"{line}\n".encode() for line in lines], pa.binary())


def quoted(value: object) -> str:
    """Return numbers and booleans as they are, and everything else as text in quotes."""
    text = msgspec.json.encode(value).decode()
    return json.dumps(text) if text[0] in "[{" else text
