"""Values for many records at once, and the reasons of those that have none."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from tests.sql.cases import computed


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        (
            "v - interval '1' day",
            pa.array([-(2**63) + 2], pa.timestamp("ns")),
            "1677-09-21T00:12:43.145224194 - 1 day, 0:00:00 is out of range",
        ),
        (
            "v - interval '1' day",
            pa.array([datetime(1, 1, 1)], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "America/New_York")),
            "0001-01-01T00:00:00Z - 1 day, 0:00:00 is out of range",
        ),
        (
            "v - interval '1' day",
            pa.array([datetime(1, 1, 1)], pa.timestamp("us")),
            "0001-01-01 00:00:00 - 1 day, 0:00:00 is out of range",
        ),
    ],
)
def test_a_reason_names_a_time_that_python_has_not(text: str, column: pa.Array, reason: str) -> None:
    """It is shown as JSON has it, and others as Python has them."""
    assert computed(text, pa.RecordBatch.from_pydict({"v": column})) == [reason]
