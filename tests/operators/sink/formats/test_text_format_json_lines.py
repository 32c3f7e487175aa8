"""Lines of JSON as output."""

from __future__ import annotations

import base64
import datetime
import json
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dagflow.api.records import RecordBatch
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.text_format import JsonLinesSink, json_lines
from operators.testing import SinkContract
from tests.operators.sink.formats.sink_records import batches_of, decompressed, many_rows

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("t", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int64())),
        ("s", pa.struct([("x", pa.string()), ("y", pa.bool_())])),
    ]
)


class TestJsonLinesSink(SinkContract):
    """What JSON has values for comes back as it was, compressed or not."""

    formats: ClassVar = [
        "json_lines",
        "auto",
        *({"type": "json_lines", "compression": name} for name in ("gzip", "zstd")),
    ]

    def batches(self) -> SearchStrategy[RecordBatch]:
        return batches_of(SCHEMA)

    def many_records(self) -> RecordBatch:
        return many_rows(SCHEMA, 40_000)

    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        return [json.loads(line) for line in decompressed(content, format).split(b"\n")[:-1]]


LONG = "12345678901234567890.123456789"
DAY = datetime.date(2024, 2, 29)
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 123456)

CASES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), -(1 << 63), -(1 << 63)),
    (pa.uint64(), (1 << 64) - 1, (1 << 64) - 1),
    (pa.float64(), 0.1, 0.1),
    (pa.float64(), float("nan"), None),
    (pa.float64(), float("-inf"), None),
    (pa.bool_(), False, False),
    (pa.string(), 'line\nbreak, "quotes", ü\x00', 'line\nbreak, "quotes", ü\x00'),
    (pa.binary(), b"text", "text"),
    (pa.binary(), b"\xff\x00", {"base64": base64.b64encode(b"\xff\x00").decode()}),
    (pa.decimal128(38, 9), Decimal(LONG), LONG),
    (pa.date32(), DAY, "2024-02-29"),
    (pa.time64("us"), MOMENT.time(), "23:59:59.123456"),
    (pa.timestamp("us"), MOMENT, "2024-02-29T23:59:59.123456"),
    (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=datetime.UTC), "2024-02-29T23:59:59.123456Z"),
    (pa.timestamp("ns"), 1_234_567_891, "1970-01-01T00:00:01.234567891"),
    (pa.timestamp("ns", "UTC"), 1_234_567_891, "1970-01-01T00:00:01.234567891Z"),
    (pa.timestamp("ns", "Europe/Berlin"), 1_234_567_891, "1970-01-01T01:00:01.234567891+01:00"),
    (pa.timestamp("s", "Europe/Berlin"), 1, "1970-01-01T01:00:01+01:00"),
    (pa.time64("ns"), 3_600_000_000_001, "01:00:00.000000001"),
    (pa.duration("ns"), 86_400_000_000_001, "P1DT0.000000001S"),
    (pa.duration("ns"), -1_500_000_000, "-P0DT1.500000000S"),
    (pa.duration("us"), 1_500_000, "PT1.5S"),
    (pa.timestamp("s"), 253_402_300_800, "10000-01-01T00:00:00"),
    (pa.timestamp("ms"), 253_402_300_800_001, "10000-01-01T00:00:00.001000"),
    (pa.timestamp("us"), 253_402_300_800_000_000, "10000-01-01T00:00:00"),
    (pa.timestamp("us", "UTC"), 253_402_300_800_000_001, "10000-01-01T00:00:00.000001Z"),
    (pa.timestamp("s", "Europe/Berlin"), 253_402_300_800, "10000-01-01T01:00:00+01:00"),
    (pa.date32(), 2_932_897, "10000-01-01"),
    (pa.list_(pa.timestamp("ns")), [1, None], ["1970-01-01T00:00:00.000000001", None]),
    (pa.large_list(pa.time64("ns")), [1, None], ["00:00:00.000000001", None]),
    (pa.list_(pa.duration("ns"), 2), [1, None], ["P0DT0.000000001S", None]),
    (pa.struct([("at", pa.timestamp("ns"))]), {"at": 1}, {"at": "1970-01-01T00:00:00.000000001"}),
    (pa.map_(pa.string(), pa.timestamp("ns")), [("k", 1)], [["k", "1970-01-01T00:00:00.000000001"]]),
    (pa.list_(pa.date32()), [2_932_897, 0], ["10000-01-01", "1970-01-01"]),
    (pa.list_(pa.date32()), [DAY, None], ["2024-02-29", None]),
    (
        pa.struct([("at", pa.date32()), ("raw", pa.binary())]),
        {"at": DAY, "raw": b"x"},
        {"at": "2024-02-29", "raw": "x"},
    ),
    (pa.map_(pa.binary(), pa.list_(pa.int8())), [(b"k", [1]), (b"k", None)], [["k", [1]], ["k", None]]),
    (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), CASES, ids=lambda each: str(each)[:30])
def test_each_type_becomes_what_it_should(kind: pa.DataType, value: Any, expected: Any) -> None:
    """A value and a missing one: numbers as numbers, decimals with all digits, dates in ISO 8601."""
    rows = pa.RecordBatch.from_arrays([pa.array([value, None], kind)], ["x"])
    assert [json.loads(line) for line in json_lines(rows).splitlines()] == [{"x": expected}, {"x": None}]


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [case for case in CASES if pa.types.is_temporal(case[0])], ids=str
)
def test_a_dictionary_is_as_its_values(kind: pa.DataType, value: Any, expected: Any) -> None:
    """By itself, and within lists."""
    encoded = pa.array([value, None, value], kind).dictionary_encode()
    nested = pa.ListArray.from_arrays([0, 1, 2, 3], encoded)
    lines = json_lines(pa.RecordBatch.from_arrays([encoded, nested], ["x", "y"])).splitlines()
    assert [json.loads(line) for line in lines] == [{"x": each, "y": [each]} for each in (expected, None, expected)]


@given(
    st.lists(
        st.fixed_dictionaries({"a": st.none() | st.text(), "b": st.none() | st.integers(-(1 << 63), (1 << 63) - 1)})
    )
)
def test_any_rows_come_back_from_their_lines(rows: list[dict[str, object]]) -> None:
    """One line a row, whatever the text holds, in order of rows and columns."""
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("a", pa.string()), ("b", pa.int64())]))
    made = json_lines(batch)
    assert made.count(b"\n") == len(rows)
    assert [json.loads(line) for line in made.split(b"\n")[:-1]] == rows


def test_wide_rows_are_encoded_few_at_a_time() -> None:
    """A batch of a few bytes a row would otherwise take a gigabyte of memory while its lines are made."""
    batch = RecordBatch(pa.record_batch({f"column {number}": [True, False] * 10_000 for number in range(100)}))
    pieces = list(JsonLinesSink().rows_of(batch))
    assert max(piece.nbytes for piece in pieces) < 32 << 20
    assert sum(map(len, pieces)) == len(batch)


def test_rows_without_columns_are_empty_objects() -> None:
    """Rows without columns still count."""
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert json_lines(rows) == b"{}\n{}\n"
