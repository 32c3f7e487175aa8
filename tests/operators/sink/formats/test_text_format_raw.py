"""Raw records as output."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dagflow.api.records import Delimiters, RecordBatch
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat
from operators.testing import SinkContract
from tests.operators.sink.formats.sink_records import decompressed, written


class TestRaw(SinkContract):
    """Lines, compressed or not."""

    formats: ClassVar = ["raw", "auto", *({"type": "raw", "compression": name} for name in ("gzip", "zstd"))]

    def batches(self) -> SearchStrategy[RecordBatch]:
        line = st.binary(max_size=8).map(lambda line: line.replace(b"\n", b""))
        return st.lists(line, max_size=6).map(RecordBatch.from_records)

    def many_records(self) -> RecordBatch:
        dice = random.Random(1)
        return RecordBatch.from_records([dice.randbytes(50).replace(b"\n", b"") for _ in range(30_000)])

    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        return decompressed(content, format).split(b"\n")[:-1]


def test_records_keep_the_delimiters_that_they_had() -> None:
    """Each its own, and none where there was none."""
    records = RecordBatch.from_records([b"a", b"b"], Delimiters((b"\r\n",)))
    (rows,) = SINK_FORMATS.make("raw").rows_of(records)
    assert rows.to_pylist() == [b"a\r\n", b"b\r\n"]


def test_gzip_has_no_time_in_it() -> None:
    """A window that is run again an hour later writes the same bytes."""
    (content,) = written(RecordBatch.from_records([b"a"]), type="raw", compression="gzip")
    assert content[4:8] == bytes(4)


def test_columns_are_not_raw() -> None:
    """The message says what to do."""
    with pytest.raises(ValueError, match=r"not columns \(x\); say format: json_lines"):
        list(SINK_FORMATS.make("raw").rows_of(RecordBatch(pa.record_batch({"x": [1]}))))
