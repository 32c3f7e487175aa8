"""Records to try output formats with."""

from __future__ import annotations

import datetime
import gzip
import random
from decimal import Context, Decimal
from functools import cache
from typing import Any

import backports.zstd
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.testing.operators import MemoryOutputs
from operators.sink.file_sink import FileSink
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat

EXACT = Context(prec=60)
DAYS = st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
MOMENTS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["", '"', "a,b", 'say "x"', "line\nbreak", "\r\n", "\r", " padded ", "\ufeff", "null", "\\N", "NaN", "1", ";", "\t"]
)

VALUES: dict[pa.DataType, SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
    pa.uint8(): st.integers(0, 255),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.decimal128(38, 9): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda digits: Decimal(digits).scaleb(-9, EXACT)),
    pa.date32(): DAYS,
    pa.time64("us"): st.times(),
    pa.timestamp("us"): MOMENTS,
    pa.timestamp("us", "UTC"): MOMENTS.map(lambda moment: moment.replace(tzinfo=datetime.UTC)),
    pa.list_(pa.int64()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
    pa.struct([("x", pa.string()), ("y", pa.bool_())]): st.fixed_dictionaries(
        {"x": st.none() | TEXT, "y": st.booleans()}
    ),
}
"""Values of each type."""


def batches_of(schema: pa.Schema) -> SearchStrategy[RecordBatch]:
    """Batches with the columns of a schema, of any values and nulls, some without rows."""
    row = st.fixed_dictionaries({field.name: st.none() | VALUES[field.type] for field in schema})
    return st.lists(row, max_size=6).map(lambda rows: RecordBatch(pa.RecordBatch.from_pylist(rows, schema=schema)))


@cache  # they take as long to make as to write
def many_rows(schema: pa.Schema, count: int) -> RecordBatch:
    """Rows of all types that do not compress to nothing."""
    dice = random.Random(1)
    makers: dict[pa.DataType, Any] = {
        pa.int64(): lambda: dice.randrange(1 << 40),
        pa.uint8(): lambda: dice.randrange(256),
        pa.float64(): dice.random,
        pa.bool_(): lambda: dice.random() < 0.5,
        pa.string(): lambda: " ".join(dice.choices(["alpha", "beta,", 'gam"ma', "delta\n"], k=dice.randrange(6))),
        pa.binary(): lambda: dice.randbytes(4),
        pa.decimal128(38, 9): lambda: Decimal(dice.randrange(10**12)).scaleb(-9, EXACT),
        pa.date32(): lambda: datetime.date.fromordinal(dice.randrange(700_000, 750_000)),
        pa.time64("us"): lambda: datetime.time(dice.randrange(24), dice.randrange(60)),
        pa.timestamp("us"): lambda: dice.randrange(1 << 50),
        pa.timestamp("us", "UTC"): lambda: dice.randrange(1 << 50),
        pa.list_(pa.int64()): lambda: [dice.randrange(9) for _ in range(dice.randrange(3))],
        pa.struct([("x", pa.string()), ("y", pa.bool_())]): lambda: {"x": str(dice.randrange(99)), "y": True},
    }
    columns = [
        pa.array([None if dice.random() < 0.05 else makers[field.type]() for _ in range(count)], field.type)
        for field in schema
    ]
    return RecordBatch(pa.RecordBatch.from_arrays(columns, schema=schema))


def written(*batches: RecordBatch, max_open: int = 4, **format: Any) -> list[bytes]:
    """The files of one window, in order of their names; the format is given as in YAML."""
    outputs = MemoryOutputs()
    sink = FileSink(OperatorContext(outputs=outputs), "out", max_open=max_open)
    sink.begin_window(1)
    made = SINK_FORMATS.make(format)
    for batch in batches:
        sink.write(batch, made)
    sink.end_window()
    return [content for _, content in sorted(outputs.files.items())]


def decompressed(content: bytes, format: SinkFormat) -> bytes:
    """What a file holds that has the compression of its format."""
    if format.extension.endswith(".gz"):
        return gzip.decompress(content)
    return backports.zstd.decompress(content) if format.extension.endswith(".zst") else content
