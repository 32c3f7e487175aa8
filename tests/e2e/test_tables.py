"""Apps of the project that add to tables, on Spark and through the command line."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table as IcebergTable

from tests.cli.processes import dagflow_command

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

COLUMNS = ["order", "placed", "price", "paid", "note"]


def orders(place: Path) -> Counter[tuple[str, ...]]:
    """The rows of the export, by another library."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in sorted((place / "data" / "orders").iterdir()):
        with path.open(newline="", encoding="utf-8") as file:
            found.update(tuple(row[name] for name in COLUMNS) for row in csv.DictReader(file))
    return found


def delta_rows(place: Path) -> pa.Table:
    """The rows of the Delta table."""
    return pa.table(DeltaTable(str(place / "out" / "orders_delta")).to_pyarrow_table())


def iceberg_table(place: Path) -> IcebergTable:
    """The Iceberg table, as another program opens it."""
    uri, warehouse = f"sqlite:///{place / 'out' / 'catalog.db'}", f"file://{place / 'out' / 'warehouse'}"
    return load_catalog("default", type="sql", uri=uri, warehouse=warehouse).load_table("shop.orders")


def iceberg_rows(place: Path) -> pa.Table:
    """The rows of the Iceberg table."""
    return iceberg_table(place).scan().to_arrow()


def rows(table: pa.Table) -> Counter[tuple[str, ...]]:
    """The rows of a table, as they stand in the export."""
    return Counter(
        tuple(str(row[n]).lower() if n == "paid" else str(row[n]) for n in COLUMNS) for row in table.to_pylist()
    )


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "read"), [("delta", delta_rows), ("iceberg", iceberg_rows)])
def test_files_of_the_next_day_are_added_to_the_table(place: Path, kind: str, read: Callable[[Path], pa.Table]) -> None:
    """All rows are there once, with their types; the second run reads new files only."""
    app = f"apps/orders_to_{kind}.yaml"
    valid = dagflow_command(["validate", app], cwd=place)
    assert valid.returncode == 0, valid.stderr
    assert not (place / "out").exists()
    first = dagflow_command(["run", app, "--json", *(["--local"] if kind == "delta" else [])], cwd=place)
    assert first.returncode == 0, first.stderr
    assert rows(read(place)) == orders(place)
    (place / "data" / "orders" / "next.csv").write_text(
        "order,placed,price,paid,note\n9001,2026-12-24,1.50,true,late\n"
    )
    second = dagflow_command(["run", app, "--json", "--local"], cwd=place)
    assert (second.returncode, json.loads(second.stdout)["blocks"]) == (0, 1), second.stderr
    assert rows(read(place)) == orders(place)
    if kind == "delta":
        assert DeltaTable(str(place / "out" / "orders_delta")).version() == 1
    else:
        assert len(iceberg_table(place).history()) == 2
    refused = dagflow_command(["validate", app, "--set", "table.partition_by=placed"], cwd=place)
    assert refused.returncode == 2
    lines = (place / app).read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if f"table: {kind}:" in text)
    assert f"{app}:{line}:5: operator 'table': table {kind}:" in refused.stderr
    there = "paid" if kind == "delta" else "paid, month(placed)"
    assert f"is partitioned by {there}, and partition_by says placed" in refused.stderr


SPARK_READER = """
import json
import subprocess
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import count, sum

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .getOrCreate()
)
events = spark.read.option("mergeSchema", "true").parquet("out/events")
totals = events.groupBy("day").agg(count("*"), sum("amount"), sum("event")).orderBy("day").collect()
print(json.dumps([dict(events.dtypes), [[str(value) for value in row] for row in totals]]))
"""


@pytest.mark.nightly
def test_events_become_a_dataset_that_spark_reads(place: Path) -> None:
    """With decimals and instants, a directory for each day, and the sums of the input; once, also when run again."""
    app = "apps/events_to_parquet.yaml"
    for blocks, options in ((9, []), (0, ["--local"])):
        done = dagflow_command(["run", app, "--json", *options], cwd=place)
        assert (done.returncode, json.loads(done.stdout)["blocks"]) == (0, blocks), done.stderr
    # In a process of its own: this one has the Spark of dagflow's tests.
    found = subprocess.run([sys.executable, "-c", SPARK_READER], cwd=place, capture_output=True, text=True, check=True)
    kinds, totals = json.loads(found.stdout.splitlines()[-1])
    assert kinds == {
        "event": "bigint", "seen": "timestamp", "kind": "string", "customer": "string", "amount": "decimal(9,2)",
        "day": "date",
    }  # fmt: skip
    wanted: dict[str, list[Any]] = {}
    for path in (place / "data" / "events").iterdir():
        for event in map(json.loads, path.read_text("utf-8").splitlines()):
            day = wanted.setdefault(event["day"], [0, Decimal(0), 0])
            day[0] += 1
            day[1] += Decimal(event.get("amount", 0))
            day[2] += event["event"]
    assert totals == [[day, *map(str, values)] for day, values in sorted(wanted.items())]
