"""Values as JSON and Python have them, also those that Python has not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from dagflow.api.json_values import readable_rows, readable_value

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
        (FIRST.cast(pa.timestamp("us", "America/New_York")), "0000-12-31T19:03:58-04:56"),
        (pa.scalar(-(10**6), pa.int32()).cast(pa.date32()), "-0768-02-04"),
        (pa.scalar([1], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00.000000001"]),
        (pa.scalar({"at": 1}, pa.struct({"at": pa.timestamp("ns")})), {"at": "1970-01-01T00:00:00.000000001"}),
    ],
)
def test_a_value_that_python_has_not_is_text(value: Any, wanted: Any) -> None:
    """Wherever it stands; others are as Python has them."""
    assert readable_value(value) == wanted


@pytest.mark.parametrize("kind", [pa.RecordBatch, pa.Table])
def test_rows_have_the_last_of_columns_with_one_name(kind: Any) -> None:
    """As the mappings that operators take; of no rows there are none."""
    rows = kind.from_arrays([pa.array([1, 2]), pa.array(["a", None])], names=["n", "n"])
    assert readable_rows(rows) == [{"n": "a"}, {"n": None}]
    assert readable_rows(rows.slice(2)) == []
