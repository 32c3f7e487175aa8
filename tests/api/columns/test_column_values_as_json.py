"""Values as JSON and Python have them, also those that Python has not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.api.columns.column_values import json_values, readable_rows, readable_value

FIRST = pa.scalar(datetime(1, 1, 1), pa.timestamp("us")).cast(pa.int64())
"""The first moment of the year 1 in UTC, which is in the year before where clocks are behind."""


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (pa.scalar(datetime(2026, 3, 29, tzinfo=UTC)), datetime(2026, 3, 29, tzinfo=UTC)),
        (pa.scalar(None, pa.timestamp("ns")), None),
        (pa.scalar(1, pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
        (pa.scalar(1, pa.time64("ns")), "00:00:00.000000001"),
        (pa.scalar(1, pa.duration("ns")), "P0DT0.000000001S"),
        (FIRST.cast(pa.timestamp("us", "America/New_York")), "0001-01-01T00:00:00Z"),
        (pa.scalar(-(10**6), pa.int32()).cast(pa.date32()), "-0768-02-04"),
        (pa.scalar([1], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00.000000001"]),
        (pa.scalar({"at": 1}, pa.struct({"at": pa.timestamp("ns")})), {"at": "1970-01-01T00:00:00.000000001"}),
    ],
)
def test_a_value_that_python_has_not_is_text(value: Any, wanted: Any) -> None:
    """Wherever it stands; others are as Python has them."""
    assert readable_value(value) == wanted


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view(), pa.dictionary(pa.int8(), pa.binary())]
)
def test_bytes_are_text_in_any_layout_of_a_column(kind: pa.DataType) -> None:
    """As polars gives them to Arrow, in lists of each kind, and in structs."""
    values, wanted = [b"a", b"\xff", None], ["a", {"base64": "/w=="}, None]
    column = pa.array(values, pa.binary()).cast(kind)
    assert json_values(column) == wanted
    for lists in (pa.ListArray, pa.LargeListArray):
        assert json_values(lists.from_arrays([0, 3], column)) == [wanted]
    for views in (pa.ListViewArray, pa.LargeListViewArray):
        assert json_values(views.from_arrays([0], [3], column)) == [wanted]
    assert json_values(pa.RunEndEncodedArray.from_arrays([1, 2, 3], column)) == wanted
    assert json_values(pa.StructArray.from_arrays([column], ["n"])) == [{"n": each} for each in wanted]


@pytest.mark.parametrize("kind", [pa.RecordBatch, pa.Table])
def test_rows_have_the_last_of_columns_with_one_name(kind: Any) -> None:
    """As the mappings that operators take; of no rows there are none."""
    rows = kind.from_arrays([pa.array([1, 2]), pa.array(["a", None])], names=["n", "n"])
    assert readable_rows(rows) == [{"n": "a"}, {"n": None}]
    assert readable_rows(rows.slice(2)) == []


@given(
    st.lists(st.none() | st.integers(-4_000_000_000, 4_000_000_000), min_size=1, max_size=4),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from(["Europe/Amsterdam", "Europe/Paris", "America/New_York", "Africa/Monrovia", "+01:00", "UTC"]),
    st.sampled_from(["column", "list", "struct"]),
)
@example([-1_249_084_800, 0], "us", "Europe/Amsterdam", "column")
@example([-1_249_084_800, 0], "ns", "Europe/Amsterdam", "list")
def test_the_text_of_a_moment_is_of_that_moment(seconds: list[int | None], unit: str, zone: str, within: str) -> None:
    """Also where clocks differed from UTC by minutes and seconds, for which ISO 8601 has no form."""
    column = pa.array(seconds, pa.timestamp("s")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    if within == "list":
        column = pa.ListArray.from_arrays([0, len(seconds)], column)
    elif within == "struct":
        column = pa.StructArray.from_arrays([column], ["at"])
    found = msgspec.json.decode(msgspec.json.encode(json_values(column)))
    if within != "column":
        found = found[0] if within == "list" else [row["at"] for row in found]
    assert [None if text is None else datetime.fromisoformat(text).timestamp() for text in found] == seconds
    if within == "column":
        assert found == [msgspec.to_builtins(json_values(column.slice(at, 1)))[0] for at in range(len(column))]
