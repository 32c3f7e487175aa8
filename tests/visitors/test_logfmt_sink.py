"""The output format of a visitor keeps the laws of all output formats."""

from __future__ import annotations

import json
import random
import re
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.testing import SinkContract

SCHEMA = pa.schema([("n", pa.int64()), ("a b=", pa.string()), ("ok", pa.bool_())])


class TestLogfmt(SinkContract):
    """Writes lines of key=value pairs, which a regular expression reads back."""

    formats: ClassVar = ["tests.visitors.logfmt_sink.LogfmtSink"]

    def batches(self) -> SearchStrategy[RecordBatch]:
        """Draw batches of a few rows."""
        row = st.fixed_dictionaries({"n": st.integers(-9, 9), "a b=": st.text(max_size=4), "ok": st.booleans()})
        return st.lists(row, max_size=6).map(lambda rows: RecordBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)))

    def many_records(self) -> RecordBatch:
        """Return a batch of about a megabyte."""
        dice = random.Random(1)
        rows = [{"n": dice.randrange(1 << 40), "a b=": "some words", "ok": True} for _ in range(50_000)]
        return RecordBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))

    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        """Parse the lines of a file."""
        text = r'"(?:[^"\\]|\\.)*"'
        pairs = [re.findall(rf"({text}|\w+)=({text}|\S+)", line) for line in content.decode().split("\n")[:-1]]
        return [{json.loads(k) if k[0] == '"' else k: json.loads(v) for k, v in row} for row in pairs]
