"""Partitions of odd names and values: each reader finds each row with its own value, in every kind of table."""

from __future__ import annotations

import random
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
from dagflow.storage.location import column_of, partition_name
from operators.sink.tables.partition_fields import PartitionField, partitionable
from tests.nightly import by_day, nightly
from tests.operators.sink.test_table_writer import app
from tests.runs.table_kinds import catalog
from tests.strangers.fuzzing import seeds

LETTERS = [chr(code) for code in range(128)] + [*"日é́😀\u2028\u00a0\u200b\u0085\u202e\uffff"]
VALUES = [
    *LETTERS,
    *(" a", "a ", ".", "..", ".a", "_a", "a.", "a+b", "%41", "%zz", "100%", "日本 é", "e\u0301", "x" * 253),
    *("a/../b", "k=v", "file:///x", "2026-05-17", "0001", "1e5", "true", "NULL", "null", "None", "\\N", "''"),
]
NAMES = ["k", "a b", "日本", "é", "e\u0301", "😀", "a+b", "a,b", " k ", "K;", "a&b", "$x", "@", "~", "a.b"]
ESCAPED_NAMES = ["a:b", "x%41", "a=b", "c/d", "q?", "it's", 'q"', "b\\s", "[x]", "{y}", "h#", "s*", "c^"]


def iceberg(root: Path) -> IcebergTable:
    """The table of the catalog."""
    return load_catalog("default", **catalog(root)).load_table("shop.x")


def by_duckdb(files: list[str], *, hive: bool = True) -> pa.Table:
    """The rows of files, by DuckDB, with all values of directories as text."""
    options = f"union_by_name = true, hive_partitioning = {hive}" + ", hive_types_autocast = false" * hive
    with duckdb.connect() as connection:
        return connection.sql(f"SELECT * FROM read_parquet($1, {options})", params=[files]).to_arrow_table()


def files_of(root: Path) -> list[str]:
    """The files of an Iceberg table."""
    return [task.file.file_path.removeprefix("file://") for task in iceberg(root).scan().plan_files()]


READERS: dict[str, Callable[[Path, str], pa.Table]] = {
    "delta delta-rs": lambda root, name: pa.table(DeltaTable(str(root / "table")).to_pyarrow_table()),
    "delta delta-rs scan": lambda root, name: pa.table(DeltaTable(str(root / "table")).scan()),
    "delta polars": lambda root, name: pl.scan_delta(str(root / "table")).collect().to_arrow(),
    "delta duckdb": lambda root, name: by_duckdb(DeltaTable(str(root / "table")).file_uris()),
    "iceberg pyiceberg": lambda root, name: iceberg(root).scan().to_arrow(),
    "iceberg polars": lambda root, name: pl.scan_iceberg(iceberg(root), reader_override="native").collect().to_arrow(),
    "iceberg duckdb": lambda root, name: by_duckdb(files_of(root), hive=False),
    "parquet pyarrow": lambda root, name: ds.dataset(
        root / "table", partitioning=ds.partitioning(pa.schema([(name, pa.string())]), flavor="hive")
    ).to_table(),
    "parquet polars": lambda root, name: (
        pl.scan_parquet(root / "table", hive_partitioning=True, hive_schema={name: pl.String}).collect().to_arrow()
    ),
    "parquet duckdb": lambda root, name: by_duckdb([str(root / "table" / "**" / "*.parquet")]),
}
_TAKE_NAMES_AS_THEY_ARE = ("polars", "duckdb")
"""Readers that know no escapes in the name of a column, also not those of Spark."""


def written(root: Path, kind: str, name: str, values: list[str | None], **properties: Any) -> None:
    """Write a table that is partitioned by a column."""
    place: dict[str, Any] = {"table": f"{kind}:{root / 'table'}"}
    if kind == "iceberg":
        place = {"table": "iceberg:shop.x", "catalog": catalog(root)}
    rows = pa.RecordBatch.from_pydict({"n": range(len(values)), name: pa.array(values, pa.string())})
    run(app(root, [rows], **{**place, "partition_by": [name], **properties}), runtime=InlineRuntime)


def require_same(root: Path, reader: str, name: str, values: list[str | None]) -> None:
    """Refuse other rows than those that were written."""
    found = READERS[reader](root, name)
    by_number = dict(zip(found["n"].to_pylist(), found[name].to_pylist(), strict=True))
    assert len(found) == len(values) and by_number == dict(enumerate(values)), f"{reader}, column {name!r}"


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let polars ask pyiceberg for the files."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_each_reader_finds_each_value(tmp_path: Path, kind: str) -> None:
    """Of all ASCII, blanks and dots at the ends, letters of other scripts, and texts that look like something else."""
    values = [*VALUES, None, *([""] if kind == "iceberg" else [])]
    written(tmp_path, kind, "k", values)
    for reader in (each for each in READERS if each.startswith(kind)):
        require_same(tmp_path, reader, "k", values)


@pytest.mark.parametrize("kind", nightly(["delta", "iceberg", "parquet"], "iceberg"))
@pytest.mark.parametrize("name", by_day(1, ["a b", "日本", pytest.param("c/d", id="slash")]))
def test_each_reader_finds_a_column_of_an_odd_name(tmp_path: Path, kind: str, name: str) -> None:
    """Where it knows Spark's escapes of names, if there are any."""
    values: list[str | None] = ["a b", "日本", "%41", None]
    written(tmp_path, kind, name, values)
    for reader in (each for each in READERS if each.startswith(kind)):
        if kind == "iceberg" or name not in ESCAPED_NAMES or not reader.endswith(_TAKE_NAMES_AS_THEY_ARE):
            require_same(tmp_path, reader, name, values)


@pytest.mark.parametrize(
    ("name", "value", "directory"),
    [
        ("a b", "日本 é", "a b=日本 é"),
        ("日本", "a+b&c", "日本=a+b&c"),
        ("k", "\x01\t\x7f\"#%'*/:=?\\[]^{", "k=%01%09%7F%22%23%25%27%2A%2F%3A%3D%3F%5C%5B%5D%5E%7B"),
        ("k", " !$&()+,-.;<>@_`|}~", "k= !$&()+,-.;<>@_`|}~"),
        ("k", None, "k=__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_directories_are_called_as_spark_calls_them(name: str, value: str | None, directory: str) -> None:
    """The names are those that Spark 4.3 has written of these values; and they are read back."""
    assert partition_name(name, value) == directory
    assert column_of(directory) == (name, value)


def test_escapes_of_other_programs_are_read() -> None:
    """Of bytes of UTF-8, as delta-rs, DuckDB and Arrow write them; what is none stays."""
    assert column_of("a%20b=%E6%97%A5%e6%9c%ac") == ("a b", "日本")
    assert column_of("k=100%") == ("k", "100%") and column_of("k=%E9") == ("k", "%E9")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("t\tb", "has the control character"), ("", "is empty"), ("日" * 80, "too long for the name of a directory")],
)
def test_a_column_that_no_directory_can_be_named_after_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    """Before anything runs, in each kind of table."""
    for kind in ("delta", "iceberg", "parquet"):
        with pytest.raises(ValueError, match=rf"partition_by: .*{reason}"):
            written(tmp_path, kind, name, ["a"])


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_finds_each_value_and_name(spark_context: Any, tmp_path: Path) -> None:
    """In the directories of a dataset."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context).newSession()
    session.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    cases = {"k": [*VALUES, None], **{name: ["a b", "日本", "%41", None] for name in (*NAMES, *ESCAPED_NAMES)}}
    for number, (name, values) in enumerate(cases.items()):
        root = tmp_path / str(number)
        written(root, "parquet", name, values)
        found = session.read.parquet(str(root / "table")).toArrow()
        assert dict(zip(found["n"].to_pylist(), found[name].to_pylist(), strict=True)) == dict(enumerate(values)), name


def test_random_names_and_values_are_found(tmp_path: Path) -> None:
    """By each reader, in each kind of table, or they are known to be values that no partition holds."""
    for seed in seeds(3):
        choice = random.Random(seed)
        kind, root = choice.choice(["delta", "iceberg", "parquet"]), tmp_path / str(seed)
        name = choice.choice([*NAMES, *ESCAPED_NAMES])
        if kind == "parquet":
            name = name.lstrip("_.")

        def text(choice: random.Random = choice) -> str:
            parts = choice.choices(VALUES + LETTERS, k=choice.randint(1, 4))
            return "".join(parts)[: choice.choice([3, 40, 300])]

        texts = [text() for _ in range(choice.randint(1, 20))]
        rows = pa.RecordBatch.from_pydict({name: texts})
        _, reasons = partitionable(rows, [PartitionField(name)], [name], in_files=kind == "iceberg")
        unheld = reasons.get(name, {})
        values: list[str | None] = [None if row in unheld else value for row, value in enumerate(texts)]
        written(root, kind, name, [*texts])
        for reader in (each for each in READERS if each.startswith(kind)):
            if kind == "iceberg" or name not in ESCAPED_NAMES or not reader.endswith(_TAKE_NAMES_AS_THEY_ARE):
                require_same(root, reader, name, values)
