"""Spark's data source `dagflow` beside Spark's own sources, in one session and in turn.

    python -m benchmarks.spark_source [--lines-mb 500] [--csv-mb 500] [--files 100000] [--rounds 5]

Lines: records that do not begin with a dot are counted, as with spark.read.text; "ready lines" is a data source that
does nothing but return the same batches, which is the most that one in Python can reach. Long lines have 306 bytes.
CSV: rows with notes of several lines are counted by one column, all of their columns are looked at, or go with types to
a sink that takes nothing in, as with spark.read.csv and multiLine, which reads a file in one task. Streams: files of 5
KB are read by a new query with Trigger.AvailableNow, into such a sink. The CPU time is that of all processes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import col

import dagflow.spark
from benchmarks.measuring import SPARKS_JAVA, Promise, check_promises, in_turn, medians, range_of, table

PROMISES = (
    Promise("dagflow lines", 0.8, "Spark text"),
    Promise("dagflow csv", 2.0, "Spark csv multiLine"),
    Promise("dagflow csv, all fields", 2.0, "Spark csv multiLine, all fields"),
    Promise("dagflow csv, typed", 2.0, "Spark csv multiLine, typed"),
    Promise("dagflow stream", 8.0, "Spark stream"),
)

LINES = b"".join(
    b"%s2026-03-04T%02d:00:%02dZ host-%d GET /items/%d 200\n" % (b"." if n % 10 == 0 else b"", n % 24, n % 60, n, n * 7)
    for n in range(20_000)
)
LONG_LINES = LINES.replace(b" 200\n", b" 200 " + b"the answer, and what else a server notes; " * 6 + b"\n")
NOTE = b"the customer writes that the parcel was opened, and asks for another one"
ROWS = b"".join(
    b'%d,"%b",%d.50,host-%d\n' % (n, b"\n".join([NOTE] * (1 + n % 5)), n * 3, n % 100) for n in range(20_000)
)
TYPES = "id int, note string, price double, host string"


TASKS = 4


class ReadyLines(DataSource):
    """Returns the batches of a file of lines, without a file."""

    @classmethod
    def name(cls) -> str:
        """The format to read."""
        return "ready"

    def schema(self) -> str:
        """One column."""
        return "record string"

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of as many bytes as the option says."""
        return ReadyReader(int(self.options["bytes"]))


class ReadyReader(DataSourceReader):
    """Returns one batch again and again."""

    def __init__(self, size_bytes: int) -> None:
        self._count = max(1, size_bytes // len(LINES) // TASKS)

    def partitions(self) -> list[InputPartition]:
        """As many as dagflow has."""
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Any:
        """The batches of a task."""
        batch = pa.record_batch({"record": LINES.decode().splitlines()})
        for _ in range(self._count):
            yield batch


def cpu_s() -> float:
    """The CPU time of this process and of all that it has started."""
    parents, seconds = {}, {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            facts = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
            parents[process], seconds[process] = facts[1], sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")
    mine, size = {str(os.getpid())}, 0
    while len(mine) > size:
        size = len(mine)
        mine |= {process for process, parent in parents.items() if parent in mine}
    return sum(seconds.get(process, 0) for process in mine)


def repeated(path: Path, content: bytes, size_bytes: int, head: bytes = b"") -> None:
    """Write a file of about a size."""
    with path.open("wb") as file:
        file.write(head)
        for _ in range(max(1, size_bytes // len(content))):
            file.write(content)


def streamed(spark: Any, name: str, files: str, checkpoint: str) -> int:
    """Read a directory by a new query of a source, and return how many files are there."""
    reader = spark.readStream.format(name)
    if name == "dagflow":
        reader = reader.option("checkpoint", checkpoint).schema("record string")
    query = reader.load(files).writeStream.format("noop").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    shutil.rmtree(checkpoint)
    return len(os.listdir(files))


def passed_on(frame: Any) -> int:
    """Give all rows to a sink that takes nothing in, and return how many columns they have."""
    frame.write.format("noop").mode("overwrite").save()
    return len(frame.columns)


def contenders(spark: Any, lines: str, long_lines: str, rows: str, files: str) -> dict[str, Callable[[], int]]:
    """What is measured, by name; each returns how many records it has counted."""
    ours = spark.read.format("dagflow").option("record", "lines").schema("record string")
    csv = spark.read.option("header", "true").option("multiLine", "true")
    all_fields = "sum(length(id) + length(note) + length(price) + length(host))"
    return {
        "Spark text": lambda: spark.read.text(lines).where(~col("value").startswith(".")).count(),
        "dagflow lines": lambda: ours.load(lines).where(~col("record").startswith(".")).count(),
        "ready lines": lambda: (
            spark.read.format("ready")
            .option("bytes", os.path.getsize(lines))
            .load()
            .where(~col("record").startswith("."))
            .count()
        ),
        "Spark text, long lines": lambda: spark.read.text(long_lines).where(~col("value").startswith(".")).count(),
        "dagflow long lines": lambda: ours.load(long_lines).where(~col("record").startswith(".")).count(),
        "Spark csv multiLine": lambda: csv.csv(rows).where("id <> '7'").count(),
        "dagflow csv": lambda: (
            spark.read.format("dagflow")
            .option("record", "csv")
            .schema("id string")
            .load(rows)
            .where("id <> '7'")
            .count()
        ),
        "Spark csv multiLine, all fields": lambda: csv.csv(rows).selectExpr(all_fields).first()[0],
        "dagflow csv, all fields": lambda: (
            spark.read.format("dagflow").option("record", "csv").load(rows).selectExpr(all_fields).first()[0]
        ),
        "Spark csv multiLine, typed": lambda: passed_on(spark.read.csv(rows, TYPES, header=True, multiLine=True)),
        "dagflow csv, typed": lambda: passed_on(
            spark.read.format("dagflow").option("record", "csv").schema(TYPES).load(rows)
        ),
        "Spark stream": lambda: streamed(spark, "text", files, f"{files}.spark"),
        "dagflow stream": lambda: streamed(spark, "dagflow", files, f"{files}.dagflow"),
    }


def main() -> int:
    """Measure, and print a table; 1 where a promise is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines-mb", type=int, default=500)
    parser.add_argument("--csv-mb", type=int, default=500)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", metavar="PATTERN", help="the contenders whose names match")
    options = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    for name, value in SPARKS_JAVA.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    dagflow.spark.register(spark)
    spark.dataSource.register(ReadyLines)
    with tempfile.TemporaryDirectory() as directory:
        lines, long_lines, rows = (Path(directory, name) for name in ("lines.txt", "long.txt", "rows.csv"))
        repeated(lines, LINES, options.lines_mb << 20)
        repeated(long_lines, LONG_LINES, options.lines_mb << 20)
        repeated(rows, ROWS, options.csv_mb << 20, b"id,note,price,host\n")
        small = Path(directory, "small")
        small.mkdir()
        for number in range(options.files):
            (small / f"{number:06}.log").write_bytes(LINES[:5000])
        measured = contenders(spark, str(lines), str(long_lines), str(rows), str(small))
        measured = {name: count for name, count in measured.items() if re.search(options.only, name)}
        counts = {name: count() for name, count in measured.items()}  # warms up as well
        print(counts, file=sys.stderr)

        cpu: dict[str, list[float]] = {name: [] for name in measured}

        def seconds_of(name: str) -> float:
            began_s, began_cpu_s = time.perf_counter(), cpu_s()
            assert measured[name]() == counts[name]
            cpu[name].append(cpu_s() - began_cpu_s)
            return time.perf_counter() - began_s

        seconds = in_turn(measured, seconds_of, options.rounds)
    spark.stop()
    median, cpu_median = medians(seconds), medians(cpu)
    rows_of = [(name, f"{median[name]:.2f}", range_of(seconds[name]), f"{cpu_median[name]:.2f}") for name in median]
    print(table(("", "s", "range", "CPU s"), rows_of))
    promises = [each for each in PROMISES if {each.name, each.other} <= median.keys()]
    return 0 if check_promises(promises, median) else 1


if __name__ == "__main__":
    raise SystemExit(main())
