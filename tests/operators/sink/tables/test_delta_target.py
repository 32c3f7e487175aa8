"""Statistics in the log of a Delta table: no reader that passes over files by them misses a row."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.nightly import by_day
from tests.operators.sink.test_table_writer import NOON, columns, write


def counts(root: Path, chosen: pc.Expression, polars: pl.Expr, sql: str) -> list[int]:
    """How many rows readers find by a condition, each of them first by the log and then by its checkpoint."""
    path, found = str(root / "table"), []
    for _ in range(2):
        table = DeltaTable(path)
        rows = QueryBuilder().register("t", table).execute(f"SELECT count(*) AS n FROM t WHERE {sql}").read_all()
        found += [
            table.to_pyarrow_dataset().count_rows(filter=chosen),
            pl.scan_delta(path).filter(polars).collect().height,
            pa.table(rows)["n"][0].as_py(),
        ]
        table.create_checkpoint()
    return found


def minimums(root: Path) -> list[Any]:
    """The smallest n of each file, as the log has it."""
    files = pa.table(DeltaTable(str(root / "table")).get_add_actions(flatten=True))
    return sorted(files["min.n"].to_pylist(), key=str)


WITHOUT_BOUND = {
    "NaN": pa.array([1.0, float("nan"), 2.0]),
    "nothing but NaN": pa.array([float("nan")] * 2),
    "infinity": pa.array([float("-inf"), float("inf")]),
    "NaN of 32 bits": pa.array([1, float("nan"), 2], pa.float32()),
    "texts that are longer than Parquet's bounds": pa.array(["b" * 5000, "z" * 5000]),
    "dates that Python lacks": pa.array([3_000_001, 3_000_000], pa.int32()).cast(pa.date32()),
    "times that Python lacks": pa.array([2**60, 2**60 + 1], pa.timestamp("us")),
}


@pytest.mark.parametrize("values", by_day(3, WITHOUT_BOUND.values()), ids=by_day(3, WITHOUT_BOUND))
def test_a_file_with_a_column_without_bounds_has_none(tmp_path: Path, values: pa.Array) -> None:
    """Datasets of deltalake would take the bound that is not there for one that no value is within."""
    first = columns(n=range(1, len(values) + 1), v=values)
    write(tmp_path, first, columns(n=[7], v=pa.nulls(1, values.type)))
    assert minimums(tmp_path) == [7, None], "the other file keeps its bounds"
    dataset = DeltaTable(str(tmp_path / "table")).to_pyarrow_dataset()
    for number, value in enumerate(values, 1):
        is_nan = pa.types.is_floating(values.type) and value.as_py() != value.as_py()
        chosen = pc.field("v").is_nan() if is_nan else pc.field("v") == value
        assert number in dataset.to_table(filter=chosen)["n"].to_pylist()
    assert counts(tmp_path, pc.field("n") == 2, pl.col("n") == 2, "n = 2") == [1] * 6


def test_numbers_are_found_beside_nan(tmp_path: Path) -> None:
    """Also where engines take NaN for a number above all others."""
    write(tmp_path, columns(n=[1, 2, 3], v=[1.0, float("nan"), 2.0]), columns(n=[4], v=[1.0]))
    found = counts(tmp_path, pc.field("v") != 1.0, pl.col("v") != 1.0, "v <> 1.0")
    assert found == [2] * 6
    _, by_log, _, _, by_checkpoint, _ = counts(tmp_path, pc.field("v") > 5.0, pl.col("v") > 5.0, "v > 5.0")
    assert (by_log, by_checkpoint) == (1, 1), "NaN is above all numbers in polars"


def test_bytes_and_lists_take_no_bounds_from_others(tmp_path: Path) -> None:
    """Readers expect none of them."""
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    write(tmp_path, columns(n=[1, 2], bytes=[b"a", None], items=[[1], None], m=maps))
    assert minimums(tmp_path) == [1]
    for name in ("bytes", "items", "m"):
        missing = counts(tmp_path, pc.field(name).is_null(), pl.col(name).is_null(), f"{name} IS NULL")
        assert missing == [1] * 6, name


STRUCTS = {
    "of numbers and texts": ({"a": 1.0, "b": {"c": "x", "d": 1, "e": True}, "f": NOON, "g": Decimal("1.50")}, 1),
    "of bytes": ({"a": 1.0, "b": b"x"}, None),
    "of lists": ({"a": 1.0, "b": {"c": [1]}}, None),
}


@pytest.mark.parametrize(("value", "least"), STRUCTS.values(), ids=STRUCTS)
def test_structs_are_found_by_members_and_as_nulls(tmp_path: Path, value: dict[str, Any], least: int | None) -> None:
    """Also in a file without the column."""
    write(tmp_path, columns(n=[1, 2], s=[value, None]), columns(n=[3]))
    assert minimums(tmp_path) == [least, None if least is None else 3]
    member = counts(tmp_path, pc.field("s", "a") == 1.0, pl.col("s").struct.field("a") == 1.0, "s['a'] = 1.0")
    assert member == [1] * 6
    assert counts(tmp_path, pc.field("s").is_null(), pl.col("s").is_null(), "s IS NULL") == [2] * 6


def test_rows_without_a_column_of_the_table_are_found_as_nulls(tmp_path: Path) -> None:
    """Their file has bounds of other columns."""
    write(tmp_path, columns(n=[1], v=[1.0]), columns(n=[2]))
    assert counts(tmp_path, pc.field("v").is_null(), pl.col("v").is_null(), "v IS NULL") == [1] * 6
