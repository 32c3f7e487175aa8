"""Rows of published files, as tests of an app compare them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.testing.apps import rows_of


def test_a_time_with_nanoseconds_is_a_row_of_parquet_as_well() -> None:
    """Python has no such time; it is text."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1], "at": pa.array([1], pa.timestamp("ns"))}), sink)
    rows = rows_of({"out/at=x/a.parquet": sink.getvalue().to_pybytes()}, "out")
    assert rows == [{"n": 1, "at": "x"}]
    rows = rows_of({"out/a.parquet": sink.getvalue().to_pybytes()}, "out")
    assert rows == [{"n": 1, "at": "1970-01-01T00:00:00.000000001"}]
