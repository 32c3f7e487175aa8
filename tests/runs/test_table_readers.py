"""Tables of each kind, with columns of each type, as each of their readers sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergTable

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.operators.sink.test_table_writer import TYPES, app

LENGTH = max(len(array) for array, _, _ in TYPES)
BATCH = pa.RecordBatch.from_pydict(
    {
        f"c{n}": pa.concat_arrays([array, pa.nulls(LENGTH - len(array), array.type)])
        for n, (array, _, _) in enumerate(TYPES)
    }
)
SMALL = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}


def options(root: Path) -> dict[str, str]:
    """A catalog in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": f"file://{root / 'warehouse'}"}


def iceberg(root: Path) -> IcebergTable:
    """The table of the catalog."""
    return load_catalog("default", **options(root)).load_table("shop.types")


def by_duckdb(files: list[str]) -> pa.Table:
    """The rows of files, by DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        query = "SELECT * FROM read_parquet($1, union_by_name = true, hive_partitioning = true)"
        return connection.sql(query, params=[files]).to_arrow_table()


def delta_files(root: Path) -> list[str]:
    """The files that a Delta table names."""
    return DeltaTable(str(root / "table")).file_uris()


def iceberg_files(root: Path) -> list[str]:
    """The files that an Iceberg table names."""
    return [task.file.file_path.removeprefix("file://") for task in iceberg(root).scan().plan_files()]


def polars_schema(directory: Path) -> dict[str, pl.DataType]:
    """The columns of all files."""
    files = directory.rglob("*.parquet")
    return {name: kind for file in files for name, kind in pl.read_parquet_schema(file).items()}


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "delta delta-rs": lambda root: pa.table(DeltaTable(str(root / "table")).to_pyarrow_table()),
    "delta polars": lambda root: pl.scan_delta(str(root / "table")).collect().to_arrow(),
    "delta duckdb": lambda root: by_duckdb(delta_files(root)),
    "iceberg pyiceberg": lambda root: iceberg(root).scan().to_arrow(),
    "iceberg polars": lambda root: pl.scan_iceberg(iceberg(root), reader_override="native").collect().to_arrow(),
    "iceberg duckdb": lambda root: by_duckdb(iceberg_files(root)),
    "parquet pyarrow": lambda root: ds.dataset(root / "table", partitioning="hive").to_table(),
    "parquet polars": lambda root: (
        pl.scan_parquet(root / "table", schema=polars_schema(root / "table"), missing_columns="insert")
        .collect()
        .to_arrow()
    ),
    "parquet duckdb": lambda root: by_duckdb([str(root / "table" / "**" / "*.parquet")]),
}


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without what differs between readers: how long offsets are, and what a map is made of."""
    types = pa.types
    if types.is_map(kind):
        return pa.list_(pa.struct([("key", plain(kind.key_type)), ("value", plain(kind.item_type))]))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, plain(field.type)) for field in kind])
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz and "UTC")
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    return pa.binary() if types.is_large_binary(kind) or types.is_binary_view(kind) else kind


def plain_value(value: Any) -> Any:
    """A value in which maps are lists of pairs, whichever way a reader has them."""
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    if isinstance(value, dict) and set(value) == {"key", "value"}:
        return (value["key"], value["value"])
    return value


def expected(kind: str, number: int) -> tuple[pa.DataType, list[Any]]:
    """The type and the values of a column in a kind of table."""
    given, in_delta, values = TYPES[number]
    if pa.types.is_time(given.type) and kind != "delta":
        return pa.time64("us"), given.to_pylist()
    if kind == "iceberg":
        in_delta = SMALL.get(in_delta, in_delta)
        if pa.types.is_list(in_delta):
            in_delta = pa.list_(SMALL.get(in_delta.value_type, in_delta.value_type))
    return plain(in_delta), values


@pytest.mark.parametrize("reader", by_day(4, READERS))
def test_each_reader_sees_the_rows_and_types_of_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Rows are there once, with the values of the input, and with the nearest types that the kind of table has."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    kind = reader.partition(" ")[0]
    table: dict[str, Any] = {"table": f"{kind}:{tmp_path / 'table'}"}
    if kind == "iceberg":
        table = {"table": "iceberg:shop.types", "catalog": options(tmp_path)}
    batches = [BATCH.append_column("n", pa.array(range(LENGTH))), pa.RecordBatch.from_pydict({"n": [100], "k": [1]})]
    run(app(tmp_path, batches, **table), runtime=InlineRuntime)
    found = READERS[reader](tmp_path).sort_by("n")
    if reader != "parquet pyarrow":  # Takes the columns of the first file, and the documentation does not name it.
        assert found["k"].to_pylist() == [None] * LENGTH + [1]
    found = found.slice(0, LENGTH)
    for number in range(len(TYPES)):
        wanted, values = expected(kind, number)
        column = found[f"c{number}"]
        assert plain(column.type) == wanted, TYPES[number][0].type
        rows = [plain_value(each) for each in column.cast(column.type).to_pylist()]
        assert rows == values + [None] * (LENGTH - len(values)), TYPES[number][0].type


@pytest.mark.parametrize("reader", by_day(4, READERS))
def test_sums_of_a_partitioned_table_are_those_of_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """Each row is in the files of its partition, also where the value is missing, and no row is lost or doubled."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    kind = reader.partition(" ")[0]
    table: dict[str, Any] = {"table": f"{kind}:{tmp_path / 'table'}", "partition_by": ["k"]}
    if kind == "iceberg":
        table = {
            "table": "iceberg:shop.types", "catalog": options(tmp_path), "partition_by": ["k", "bucket(3, n)"],
        }  # fmt: skip
    batches = [
        pa.RecordBatch.from_pydict({"n": range(start, start + 50), "k": [*range(1, 25), None] * 2})
        for start in (0, 50, 100)
    ]
    run(app(tmp_path, batches, **table), runtime=InlineRuntime)
    found = READERS[reader](tmp_path)
    assert sorted(found["n"].to_pylist()) == list(range(150))
    sums = {key: 0 for key in [*range(1, 25), None]}
    for n, key in zip(found["n"].to_pylist(), found["k"].to_pylist(), strict=True):
        sums[key] += n
    wanted = {key: sum(n for n in range(150) if [*range(1, 25), None][n % 50 % 25] == key) for key in sums}
    assert sums == wanted
