"""Values by which tables are partitioned: missing ones, and those that no directory can be named after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.nightly import by_day
from tests.operators.sink.test_table_writer import columns
from tests.runs.remedy_app import refusal
from tests.runs.table_kinds import KINDS, rows_of
from tests.runs.test_table_remedies import numbers, write

GIVEN, NOTHING, LACKING = columns(k=["a"], n=[1]), columns(k=pa.nulls(1), n=[2]), columns(n=[3])
"""Rows with a value in a column, with none, and without the column: one more than the table would know by then."""


def named(root: Path, kind: str) -> str:
    """A table of a kind in a directory."""
    return "iceberg:shop.x" if kind == "iceberg" else f"{kind}:{root / 'table'}"


@pytest.mark.parametrize(
    "properties", by_day(1, [{}, {"commit": {"every_millis": 0}}]), ids=by_day(1, ["groups", "windows"])
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_without_values_is_null(tmp_path: Path, kind: str, properties: dict[str, Any]) -> None:
    """Also where the window began before the first one was decided, and where only names show the column."""
    table = named(tmp_path, kind)
    properties = {"partition_by": ["k"], **({} if kind == "parquet" else properties)}
    write(tmp_path, table, GIVEN, NOTHING, LACKING, **properties)
    write(tmp_path, table, GIVEN, NOTHING, LACKING, columns(k=pa.nulls(1), n=[4]), columns(n=[5]), **properties)
    expected = {1: "a", 2: None, 3: None, 4: None, 5: None}
    if kind == "parquet":
        found = ds.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    else:
        found = rows_of(tmp_path, kind)
    assert len(found) == 5 and dict(zip(found["n"].to_pylist(), found["k"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_not_made_without_the_type_of_a_column(tmp_path: Path, kind: str) -> None:
    """When the column has a type, or another one is named, the window that was refused comes, and once."""
    table = named(tmp_path, kind)
    refusal(
        lambda: write(tmp_path, table, NOTHING, GIVEN, partition_by=["k"]),
        "no type is known yet of the column 'k' of partition_by, because no record has a value in it; they have n; "
        "give the column a type upstream, or let partition_by name another one",
    )
    write(tmp_path, table, columns(k=pa.nulls(1, pa.string()), n=[2]), GIVEN, partition_by=["k"])
    assert numbers(table, root=tmp_path) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_no_record_has_is_named_otherwise(tmp_path: Path, kind: str) -> None:
    """Nothing was made of the window that was refused."""
    table = named(tmp_path, kind)
    refusal(lambda: write(tmp_path, table, GIVEN, partition_by=["kk"]), "let partition_by name another one")
    write(tmp_path, table, GIVEN, partition_by=["k"])
    assert numbers(table, root=tmp_path) == [1]
