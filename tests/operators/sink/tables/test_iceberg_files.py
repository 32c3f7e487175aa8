"""Data files in an Iceberg table: no reader that passes over files by bounds or partitions misses a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.operators.sink.tables.test_table_files_upserted_rows import KINDS, NAME, catalog_of
from tests.operators.sink.test_table_writer import columns


@pytest.mark.parametrize("keys", [(), "n"], ids=["appended", "upserted"])
def test_numbers_of_every_kind_are_found_by_bounds(tmp_path: Path, keys: str) -> None:
    """All columns have bounds but those with NaN or infinity."""
    nan, last = float("nan"), float("inf")
    first = columns(
        n=[1, 2, 3],
        d=[-1.5, 0.0, 2.5],
        f=pa.array([0.1, 1.0, -0.25], pa.float32()),
        b=[True, None, True],
        x=[1.0, nan, 2.0],
        i=[1.0, -last, last],
    )
    KINDS["iceberg"].write(tmp_path, first, columns(n=[4], d=[nan], b=[False]), upsert_by=keys)
    table = catalog_of(tmp_path).load_table(NAME)
    files = table.inspect.files()["readable_metrics"].to_pylist()
    [bounds] = [file for file in files if file["n"]["lower_bound"] == 1]
    assert (bounds["d"]["lower_bound"], bounds["d"]["upper_bound"]) == (-1.5, 2.5)
    assert [bounds[name]["upper_bound"] for name in "xi"] == [None, None]
    for chosen, numbers in (
        ("d >= 2.5", [3]),
        ("d = 0.0", [2]),
        ("f <= -0.25", [3]),
        ("b = false", [4]),
        ("b = true", [1, 3]),
        ("d is nan", [4]),
        ("x is nan", [2]),
        ("i > 5", [3]),
        ("x = 2.0", [3]),
    ):
        assert sorted(table.scan(row_filter=chosen).to_arrow()["n"].to_pylist()) == numbers, chosen


@pytest.mark.parametrize("keys", [(), "k"], ids=["appended", "upserted"])
def test_tables_are_partitioned_by_times_of_day(tmp_path: Path, keys: str) -> None:
    """Each is found by its time, in microseconds, and a missing one by that."""
    first = columns(k=pa.array([0, 86_399_999_999, 36_000_000_000, None], pa.time64("us")), n=[1, 2, 3, 4])
    second = columns(k=pa.array([36_000_000_000], pa.time64("us")), n=[5])
    KINDS["iceberg"].write(tmp_path, first, second, partition_by="k", upsert_by=keys)
    table = catalog_of(tmp_path).load_table(NAME)
    for chosen, numbers in (
        ("k = '00:00:00'", [1]),
        ("k > '22:00:00'", [2]),
        ("k = '23:59:59.999999'", [2]),
        ("k = '10:00:00'", [5] if keys else [3, 5]),
        ("k is null", [4]),
    ):
        assert sorted(table.scan(row_filter=chosen).to_arrow()["n"].to_pylist()) == numbers, chosen
