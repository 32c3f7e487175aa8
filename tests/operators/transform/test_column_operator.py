"""A record that is refused leaves at `errors`, whatever its columns hold."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dagflow.api.records import RecordBatch
from dagflow.testing.operators import run_operator
from operators.transform.select import Select

FIRST = pa.array([datetime(1, 1, 1), datetime(2026, 3, 29)], pa.timestamp("us"))
VALUES: list[tuple[pa.Array, Any]] = [
    (pa.array([1, 2], pa.timestamp("ns")), "1970-01-01T00:00:00.000000001"),
    (FIRST.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "America/New_York")), "0001-01-01T00:00:00Z"),
    (pa.array([1, 2], pa.time64("ns")), "00:00:00.000000001"),
    (pa.array([[1], [2]], pa.list_(pa.timestamp("ns"))), ["1970-01-01T00:00:00.000000001"]),
    (pa.array([datetime(2026, 3, 29, 2, 30)] * 2, pa.timestamp("us")), "2026-03-29T02:30:00"),
    (pa.array([date(2026, 3, 29)] * 2), "2026-03-29"),
    (pa.array([Decimal("1.50")] * 2), "1.50"),
    (pa.array([b"text"] * 2), "text"),
    (pa.array([b"\xff"] * 2), {"base64": "/w=="}),
    (pa.array([float("nan")] * 2), None),
]


@pytest.mark.parametrize(("column", "wanted"), VALUES, ids=[str(column.type) for column, _ in VALUES])
def test_a_reject_holds_any_value_as_json_lines_do(column: pa.Array, wanted: Any) -> None:
    """Also a time that Python has not; the other records go on."""
    records = RecordBatch(pa.RecordBatch.from_pydict({"n": [0, 1], "v": column}))
    left = run_operator(Select(columns={"z": "1 / n"}, drop="v"), records)
    (reject,) = map(json.loads, left["errors"])
    assert json.loads(base64.b64decode(reject["raw"])) == {"n": 0, "v": wanted}
    assert reject["reason"] == "column 'z': 1.0 is divided by 0"
    assert left["output"] == [{"n": 1, "z": 1.0}]
