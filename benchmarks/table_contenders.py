"""What dagflow is compared with in the benchmark of tables: Spark SQL, polars, DuckDB, dlt, and peers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import peers

if TYPE_CHECKING:
    from pyspark import SparkContext

_SPARK = {
    "csv": "id bigint, placed timestamp_ntz, shop string, customer string, note string, product string, qty int, "
    "price decimal(9, 2), paid boolean, day date",
    "json": "id bigint, at timestamp_ntz, user string, kind string, amount double, ok boolean, referrer string",
    "select": "sold_at timestamp_ntz, shop string, product string, qty int, price double",
    "groups": "user bigint, country string, qty int, price double",
}

_QUERIES = {
    "select": "SELECT *, price * qty AS total, cast(sold_at AS date) AS day, upper(product) AS label FROM source "
    "WHERE qty > 0 AND shop <> 'shop 3'",
    "groups": 'SELECT "user", count(*) AS n, sum(qty) AS total, max(price) AS most FROM source GROUP BY "user"',
}
_NULLABLE = ("referrer",)


def contenders(task: str, work: Path, context: SparkContext) -> dict[str, Callable[[], object]]:
    """The contenders of a task, which read `work/input` and write below `work/output`."""
    found: dict[str, Callable[[], object]] = {"Spark SQL": lambda: spark_sql(task, work, context)}
    if task != "json":
        found["polars"] = lambda: polars(task, work)
    found["DuckDB"] = lambda: duck(task, work)
    if task == "json" and find_spec("dlt"):
        found["dlt"] = lambda: dlt(work)
    return found | {name: partial(peer, name, task, work) for name in peers.installed()}


def _columns(task: str) -> dict[str, str]:
    """The type of each column of a task's input."""
    columns = (each.split(" ", 1) for each in _SPARK[task].replace("(9, 2)", "(9; 2)").split(", "))
    return {name: kind.replace(";", ",") for name, kind in columns}


def peer(name: str, task: str, work: Path) -> None:
    """Read and write with one of the peers."""
    is_csv = task != "json"
    source = peers.PeerSource(f"{work}/input/*.{'csv' if is_csv else 'jsonl'}", _columns(task), is_csv, _NULLABLE)
    output = work / "output"
    output.mkdir()
    source.write_by(name, _QUERIES.get(task, "SELECT * FROM source"), str(output))


def spark_sql(task: str, work: Path, context: SparkContext) -> None:
    """Read with a schema, compute in the JVM, and write with the compression that dagflow has."""
    from pyspark.sql import SparkSession

    read = SparkSession(context).read.schema(_SPARK[task])
    files = str(work / "input")
    is_csv = task != "json"
    rows = read.csv(files, header=True, multiLine=task == "csv", escape='"') if is_csv else read.json(files)
    if task in _QUERIES:
        rows.createOrReplaceTempView("source")
        rows = rows.sparkSession.sql(_QUERIES[task].replace('"', "`"))
    rows.write.option("compression", "zstd").parquet(str(work / "output"))


def polars(task: str, work: Path) -> None:
    """Scan and sink with polars' streaming engine."""
    import polars as pl

    files, output = work / "input" / "*.csv", work / "output"
    output.mkdir()
    kinds: dict[str, Any] = {
        "bigint": pl.Int64,
        "int": pl.Int32,
        "string": pl.String,
        "double": pl.Float64,
        "boolean": pl.Boolean,
        "date": pl.Date,
        "timestamp_ntz": pl.Datetime("us"),
        "decimal(9, 2)": pl.Decimal(9, 2),
    }
    rows = pl.scan_csv(files, schema={name: kinds[kind] for name, kind in _columns(task).items()})
    if task == "select":
        rows = rows.filter((pl.col("qty") > 0) & (pl.col("shop") != "shop 3")).with_columns(
            total=pl.col("price") * pl.col("qty"),
            day=pl.col("sold_at").cast(pl.Date),
            label=pl.col("product").str.to_uppercase(),
        )
    elif task == "groups":
        rows = rows.group_by("user").agg(
            n=pl.len(), total=pl.col("qty").cast(pl.Int64).sum(), most=pl.col("price").max()
        )
    rows.sink_parquet(output / "rows.parquet", compression="zstd")


def duck(task: str, work: Path) -> None:
    """Compute with DuckDB, and write files from all its threads."""
    import duckdb

    kinds = {"timestamp_ntz": "timestamp", "string": "varchar"}
    types = ", ".join(f"'{name}': '{kinds.get(kind, kind)}'" for name, kind in _columns(task).items())
    if task == "json":
        rows = f"read_json('{work}/input/*.jsonl', columns={{{types}}}, format='newline_delimited')"
    else:
        rows = f"read_csv('{work}/input/*.csv', columns={{{types}}}, header=true, auto_detect=false, quote='\"')"
    query = _QUERIES.get(task, "FROM source").replace("FROM source", f"FROM {rows} AS source")
    duckdb.execute(f"COPY ({query}) TO '{work}/output' (FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT true)")


def dlt(work: Path) -> None:
    """Load JSON lines into a Delta table, with Arrow as the way that dlt says is its fastest."""
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    os.environ["RUNTIME__LOG_LEVEL"] = "ERROR"
    import dlt as load
    import pyarrow as pa
    import pyarrow.json as pj

    names = {"bigint": pa.int64(), "string": pa.string(), "double": pa.float64(), "boolean": pa.bool_()}
    columns = _columns("json").items()
    schema = pa.schema([(name, names.get(kind, pa.timestamp("us"))) for name, kind in columns])

    def rows() -> Iterator[Any]:
        for file in sorted((work / "input").iterdir()):
            options = pj.ParseOptions(explicit_schema=schema)
            yield pj.read_json(file, pj.ReadOptions(block_size=16 << 20), options)

    pipeline = load.pipeline(
        "events",
        pipelines_dir=str(work / "output" / "pipelines"),
        destination=load.destinations.filesystem(str(work / "output" / "lake")),
        dataset_name="events",
    )
    pipeline.run(load.resource(rows, name="events"), table_format="delta", write_disposition="replace")
