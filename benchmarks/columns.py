"""Computes columns of CSV with dagflow and with others, in turn on the same machine.

    python -m benchmarks.columns                  1 GB, three rounds
    python -m benchmarks.columns --size 100MB --rounds 1

Makes orders with a timestamp, two texts, a number and a price. Each contender reads all files, keeps three fifths of
the rows by a condition, computes three columns by expressions, and writes Parquet to local disk. Two rounds warm
everything up and check that as many rows with the same total come out. Prints medians with their range, and the load
of the machine. Needs the extra `benchmark`.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import SPARKS_JAVA, WARM_UP_ROUNDS, Promise
from dagflow.api.properties import parse_size

FILES = 4
POOL_ROWS = 200_000

APP = """
name: columns
attributes: {{checkpoint: {work}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {work}/input, block_size: 64MiB}}}}
  reader:
    class: BlockReader
    properties: {{format: {{type: csv, columns: {{sold_at: timestamp, qty: int32, price: double}}}}}}
  select:
    class: Select
    properties:
      where: qty > 0 and shop <> 'shop 3'
      columns:
        total: price * qty
        day: cast(sold_at as date)
        label: upper(product)
    partition: parallel
  writer: {{class: RecordWriter, properties: {{path: {work}/output, format: parquet}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: select.input}}
  kept: {{from: select.output, to: writer.input}}
"""

PROMISES = [Promise("dagflow", 3.0, "Spark SQL"), Promise("dagflow", 0.8, "polars")]


def make_input(folder: Path, size_bytes: int) -> None:
    """Write files of orders with a header."""
    dice = random.Random(1)
    rows = [
        f"2026-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d} {dice.randint(0, 23):02d}:15:00"
        f",shop {dice.randint(0, 9)},product {dice.randint(0, 9999)} of many"
        f",{dice.choice([0, 1, 2]) * dice.randint(1, 99)},{dice.randint(1, 99999) / 100}\n".encode()
        for _ in range(POOL_ROWS)
    ]
    folder.mkdir()
    for number in range(FILES):
        with (folder / f"{number}.csv").open("wb") as file:
            size = file.write(b"sold_at,shop,product,qty,price\n")
            while size < size_bytes / FILES:
                size += file.write(b"".join(rows[: int((size_bytes / FILES - size) / 45) + 1]))


class Contest:
    """The contenders on one Spark session with one working directory."""

    def __init__(self, work: Path, cores: int) -> None:
        from pyspark.sql import SparkSession

        from dagflow.runtime.spark_context import start_context

        self.work = work
        self.output = work / "output"
        self.context = start_context("columns", f"local[{cores}]", SPARKS_JAVA, work / "spark.log")
        self.spark = SparkSession(self.context)
        self.contenders: dict[str, Callable[[], object]] = {
            "Spark SQL": self.spark_sql,
            "polars": self.polars,
            "DuckDB": self.duck,
            "dagflow": self.dagflow,
        }

    def dagflow(self) -> None:
        """Run the app from an empty checkpoint, with journal, checks and publishing."""
        from dagflow.engine.run import run
        from dagflow.plan.load import load_app
        from dagflow.runtime.spark import SparkRuntime

        shutil.rmtree(self.work / "journal", ignore_errors=True)
        path = self.work / "columns.yaml"
        path.write_text(APP.format(work=self.work))
        run(load_app(str(path)), runtime=lambda program: SparkRuntime(program, self.context))

    def spark_sql(self) -> None:
        """Read with a schema, select in the JVM, and write with the compression that dagflow has."""
        schema = "sold_at timestamp_ntz, shop string, product string, qty int, price double"
        rows = self.spark.read.csv(str(self.work / "input"), schema=schema, header=True)
        rows = rows.where("qty > 0 and shop <> 'shop 3'")
        rows = rows.selectExpr("*", "price * qty total", "cast(sold_at as date) day", "upper(product) label")
        rows.write.option("compression", "zstd").parquet(str(self.output))

    def polars(self) -> None:
        """Select with polars' streaming engine."""
        import polars as pl

        self.output.mkdir()
        schema: dict[str, Any] = {
            "sold_at": pl.Datetime("us"),
            "shop": pl.String,
            "product": pl.String,
            "qty": pl.Int32,
        }
        rows = pl.scan_csv(self.work / "input" / "*.csv", schema={**schema, "price": pl.Float64})
        rows = rows.filter((pl.col("qty") > 0) & (pl.col("shop") != "shop 3"))
        rows = rows.with_columns(
            total=pl.col("price") * pl.col("qty"),
            day=pl.col("sold_at").cast(pl.Date),
            label=pl.col("product").str.to_uppercase(),
        )
        rows.sink_parquet(self.output / "rows.parquet", compression="zstd")

    def duck(self) -> None:
        """Select with DuckDB."""
        import duckdb

        columns = "{'sold_at': 'TIMESTAMP', 'shop': 'VARCHAR', 'product': 'VARCHAR', 'qty': 'INT', 'price': 'DOUBLE'}"
        duckdb.execute(
            f"COPY (SELECT *, price * qty AS total, cast(sold_at AS date) AS day, upper(product) AS label "
            f"FROM read_csv('{self.work}/input/*.csv', columns={columns}, header=true, auto_detect=false) "
            f"WHERE qty > 0 AND shop <> 'shop 3') TO '{self.output}' "
            "(FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT true)"
        )

    def measure(self, name: str) -> float:
        """Return the seconds of one contender, after the disk's queue is empty."""
        shutil.rmtree(self.output, ignore_errors=True)
        os.sync()
        started = time.perf_counter()
        self.contenders[name]()
        return time.perf_counter() - started

    def outcome(self) -> tuple[int, int]:
        """Return the number of rows and their total, of what a contender has written."""
        import duckdb

        found = duckdb.execute(f"SELECT count(*), sum(total) FROM '{self.output}/*.parquet'").fetchone()
        assert found is not None
        return int(found[0]), round(found[1])

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Return the seconds of each contender in each round.

        Raises:
            ValueError: A contender wrote something else than the first one.
        """
        outcomes = {}
        for name in list(self.contenders) * WARM_UP_ROUNDS:
            self.measure(name)
            outcomes[name] = self.outcome()
            if len(set(outcomes.values())) > 1:
                raise ValueError(f"the contenders disagree: {outcomes}")
        return measuring.in_turn(self.contenders, self.measure, rounds)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="1GB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        make_input(work / "input", parse_size(options.size))
        contest = Contest(work, options.cores)
        before = os.getloadavg()[0]
        seconds = contest.run(options.rounds)
        contest.context.stop()
    median = measuring.medians(seconds)
    rows = [
        [name, f"{median[name]:.2f} s", f"{measuring.range_of(values)} s", f"{median[name] / median['dagflow']:.2f}"]
        for name, values in seconds.items()
    ]
    print(measuring.table(["contender", "median", "range", "time relative to dagflow"], rows))
    print(f"load of the machine before and after: {before:.1f}, {os.getloadavg()[0]:.1f}")
    return 0 if measuring.check_promises(PROMISES, median) else 1


if __name__ == "__main__":
    raise SystemExit(main())
