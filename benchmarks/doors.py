"""Compares formats of rows and archives with the libraries for them: `python -m benchmarks.formats --part doors`.

Each pair does the same work in turn, on one core, from the page cache; the figures are megabytes of the stored file per
second of CPU time, as medians.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.measuring import SPARKS_JAVA
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.spark_context import start_context

ReadBlocks = Callable[[str, Any, Callable[[Any], object]], None]
"""Reads a file in a format, and passes on its batches."""

Pair = tuple[str, float, Path, Callable[[], int], Callable[[], int]]
"""Name, promised ratio of the speeds, the file, and the two contenders, dagflow first."""

ROWS_A_MEGABYTE = 10_000
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "
_APP = """
name: door
attributes: {{checkpoint: {work}/journal}}
steps:
  - files: {file}
  - read: parquet
  - where: number < 300000
  - table: delta:{work}/table
    commit: {{{commit}}}
"""


def pairs(work: Path, size_bytes: int, read_blocks: ReadBlocks) -> Iterator[Pair]:
    """Make the files one after the other, and yield what is compared."""

    def read(path: Path | str, format: Any) -> int:
        counted: list[int] = []
        read_blocks(str(path), format, lambda batch: counted.append(len(batch)))
        return sum(counted)

    dice = random.Random(1)
    count = size_bytes // 1_000_000 * ROWS_A_MEGABYTE
    texts = ["".join(dice.choices(LETTERS, k=dice.randint(20, 80))) for _ in range(10_000)]
    rows = [
        {
            "id": index,
            "number": dice.randint(0, 10**6),
            "name": dice.choice("abcd"),
            "text": f"{dice.choice(texts)}{index}",
        }
        for index in range(count)
    ]
    columns = {"id": "int64", "number": "int64", "name": "string", "text": "string"}

    parquet = work / "in.parquet"
    # Three times as many rows: a run takes 0.05 s of CPU by itself.
    pq.write_table(pa.concat_tables([pa.Table.from_pylist(rows)] * 3), parquet)
    to_table, at_once = (partial(to_delta, work, parquet, commit) for commit in ("", "every_millis: 0"))
    copies, by_spark = partial(copied, work, parquet), partial(copied_by_spark, work, parquet)
    yield "parquet, filtered, to Delta; DuckDB copies", 1.0, parquet, to_table, copies
    yield "parquet, filtered, to Delta, each window by itself; DuckDB copies", 1.0, parquet, at_once, copies
    yield "parquet, filtered, to Delta; Spark copies", 2.0, parquet, to_table, by_spark

    yield from avro_pairs(work, rows, read)

    array, lines = work / "in.json", work / "in.jsonl"
    array.write_text("[" + ",".join(map(json.dumps, rows)) + "]")
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    as_array, as_lines = ({"type": kind, "columns": columns} for kind in ("json", "json_lines"))
    yield "JSON array; JSON lines", 1 / 1.2, array, partial(read, array, as_array), partial(read, lines, as_lines)

    zipped, csv = work / "in.zip", work / "unpacked" / "in.csv"
    text = "id,number,name,text\n" + "".join(f"{','.join(map(str, row.values()))}\n" for row in rows)
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(csv.name, text)

    def unzipped() -> int:
        with zipfile.ZipFile(zipped) as opened:
            opened.extractall(csv.parent)
        return read(csv, "csv")

    yield "zip of CSV; unzip, and read", 0.9, zipped, partial(read, f"{zipped}!{csv.name}", "csv"), unzipped


def to_delta(work: Path, parquet: Path, commit: str) -> int:
    """Run an app that filters a file into a new table, with the memory of tasks; return the number of its records."""
    for name in ("journal", "table"):
        shutil.rmtree(work / name, ignore_errors=True)
    (work / "app.yaml").write_text(_APP.format(work=work, file=parquet, commit=commit))
    run(load_app(work / "app.yaml"), RunOptions(workers=1))
    return sum(pq.read_metadata(path).num_rows for path in (work / "table").glob("*.parquet"))


def copied(work: Path, parquet: Path) -> int:
    """Let DuckDB filter a file into a new one, compressed and in row groups as dagflow's."""
    connection = duckdb.connect(config={"threads": 1})
    source = f"(SELECT * FROM '{parquet}' WHERE number < 300000)"
    options = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 1000000"
    connection.execute(f"COPY {source} TO '{work}/out.parquet' ({options})")
    return int(pq.read_metadata(work / "out.parquet").num_rows)


def copied_by_spark(work: Path, parquet: Path) -> int:
    """Let Spark do the same on one thread."""
    if SparkContext._active_spark_context is None:
        start_context("doors", "local[1]", SPARKS_JAVA, work / "spark.log")
    source = SparkSession.builder.getOrCreate().read.parquet(str(parquet)).where("number < 300000")
    source.write.mode("overwrite").option("compression", "zstd").parquet(str(work / "out.spark"))
    return sum(pq.read_metadata(path).num_rows for path in (work / "out.spark").glob("*.parquet"))


def avro_pairs(work: Path, rows: list[dict[str, Any]], read: Callable[[Path, Any], int]) -> Iterator[Pair]:
    """The pairs of Avro: records without others in them, the same by another schema, and nested ones."""
    avro = work / "in.avro"
    kinds = {"id": "long", "number": "long", "name": "string", "text": "string"}
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    with avro.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, rows, codec="deflate")
    yield "avro; fastavro", 1.0, avro, partial(read, avro, "avro"), partial(with_fastavro, avro)

    wanted = {
        "type": "record",
        "name": "r",
        "fields": [*fields[1:3], {"name": "price", "type": "double", "default": 0}],
    }
    resolved = partial(read, avro, {"type": "avro", "reader_schema": wanted})
    yield "avro, with another schema; fastavro", 1.0, avro, resolved, partial(with_fastavro, avro, wanted)

    nested, inner = work / "nested.avro", {"type": "record", "name": "r", "fields": fields}
    parts = {"type": "array", "items": {"type": "record", "name": "part", "fields": fields[1:3]}}
    tags = {"type": "map", "values": ["null", "long"]}
    members = {"row": ["null", inner], "parts": parts, "tags": tags, "value": ["null", "long", "string"]}
    outer = {"type": "record", "name": "o", "fields": [{"name": name, "type": kind} for name, kind in members.items()]}
    with nested.open("wb") as file:
        fastavro.writer(file, outer, map(nested_row, rows), codec="deflate")
    yield "avro, nested; fastavro", 1.0, nested, partial(read, nested, "avro"), partial(with_fastavro, nested)


def nested_row(row: dict[str, Any]) -> dict[str, Any]:
    """The same values, and some again, on several levels."""
    parts = [{"number": row["number"], "name": row["name"]}] * (row["id"] % 4)
    value = row["number"] if row["id"] % 2 else row["name"]
    return {"row": row if row["id"] % 9 else None, "parts": parts, "tags": {row["name"]: row["id"]}, "value": value}


def with_fastavro(path: Path, schema: Any = None) -> int:
    """Read all records by fastavro."""
    with path.open("rb") as file:
        return sum(1 for _ in fastavro.reader(file, schema))


def compare(work: Path, size_bytes: int, rounds: int, read_blocks: ReadBlocks, seconds: Callable[[], float]) -> bool:
    """Print the table; return whether all promises hold."""
    is_kept = True
    print("| dagflow; the other | promised | dagflow | other | ratio |\n|---|---|---|---|---|", flush=True)
    for name, promise, path, *contenders in pairs(work, size_bytes, read_blocks):
        spent: list[list[float]] = [[], []]
        counted = set()
        for round_number in range(rounds + 1):
            for index, contender in enumerate(contenders):
                before = seconds()
                counted.add(contender())
                if round_number:
                    spent[index].append(seconds() - before)
        if len(counted) > 1:
            raise ValueError(f"{name}: the contenders disagree: {counted}")
        medians = [statistics.median(each) for each in spent]
        ratio = medians[1] / medians[0]
        is_kept = is_kept and ratio >= promise
        mark = "" if ratio >= promise else " **missed**"
        speeds = " | ".join(f"{path.stat().st_size / 1e6 / each:,.0f}" for each in medians)
        print(f"| {name} | ≥ {promise:.2f}{mark} | {speeds} | {ratio:.2f} |", flush=True)
    return is_kept
