"""Files of JSON whose columns and types change all the time, into a table, while the driver is killed.

    python -m benchmarks.changing_columns --kind delta|iceberg|parquet [--files 10000] [--kills 12] [--seed 1]

Each of 40 columns begins at a random file, and one value in a hundred is of another type. The driver of `dagflow run
--local` is killed at random moments and started again. At the end each value has to be in its column or in `_rescued`,
once, and no run may have ended by itself before the last. tests/crash/test_changing_columns.py does the same, smaller.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

COLUMNS = 40
OTHER_TYPE = 0.01
ROWS = 3
"""Records in a file."""

APP = """\
name: changing-columns
attributes: {{checkpoint: journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in, blocks_threshold: {files_per_window},
      batch_bytes: 0}}}}
  reader:
    class: BlockReader
    properties: {{format: {{type: json_lines, columns: as_found}}, max_readers: 2}}
  table: {{class: TableWriter, properties: {{{table}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: table.input}}
"""
CATALOG = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "warehouse"}
TABLES = {
    "delta": "table: delta:out",
    "iceberg": f"table: iceberg:law.rows, catalog: {json.dumps(CATALOG)}",
    "parquet": "table: parquet:out",
}

Row = dict[str, Any]


def value_of(column: int, number: int, chance: random.Random) -> Any:
    """A value of a column: whole number, fraction, text or truth value by the column; at times of another type."""
    kinds: list[Any] = [number, number + 0.5, f"text {number}", number % 2 == 0]
    kind = column % len(kinds)
    if chance.random() < OTHER_TYPE:
        kind = (kind + chance.randrange(1, len(kinds))) % len(kinds)
    return kinds[kind]


def write_files(root: Path, files: int, seed: int) -> list[Row]:
    """Write the input and return its records."""
    chance = random.Random(seed)
    begins = [chance.randrange(files) for _ in range(COLUMNS)]
    (root / "in").mkdir()
    rows: list[Row] = []
    for file in range(files):
        own: list[Row] = []
        for line in range(ROWS):
            number = file * ROWS + line
            present = [column for column in range(COLUMNS) if begins[column] <= file]
            own.append({"id": number, **{f"c{each}": value_of(each, number, chance) for each in present}})
        (root / "in" / f"{file:06}.json").write_text("".join(f"{json.dumps(row)}\n" for row in own))
        rows += own
    return rows


def write_app(root: Path, kind: str, files_per_window: int) -> None:
    """Write the app."""
    (root / "app.yaml").write_text(APP.format(table=TABLES[kind], files_per_window=files_per_window))


def rows_of(root: Path, kind: str) -> pa.Table:
    """What the table has."""
    if kind == "delta":
        return pa.table(DeltaTable(str(root / "out")).to_pyarrow_table())
    if kind == "iceberg":
        with contextlib.chdir(root):
            return load_catalog("default", **CATALOG).load_table("law.rows").scan().to_arrow()
    schemas = [ds.dataset(file).schema for file in sorted((root / "out").rglob("*.parquet"))]
    return ds.dataset(root / "out", schema=pa.unify_schemas(schemas, promote_options="permissive")).to_table()


def wrong_rows(found: pa.Table, rows: list[Row]) -> Iterator[str]:
    """What is wrong with a table: records that it lacks or has twice, and values that are in no place or in two."""
    expected = {row["id"]: row for row in rows}
    for row in found.to_pylist():
        given = {name: value for name, value in row.items() if value is not None}
        rescued = json.loads(given.pop("_rescued", "{}"))
        both = {**given, **{name: value for name, value in rescued.items() if name not in ("_file", "_offset")}}
        if (wanted := expected.pop(row["id"], None)) is None:
            yield f"record {row['id']} is there twice, or of nowhere"
        elif both != wanted or given.keys() & (rescued.keys() - {"_file", "_offset"}):
            yield f"record {row['id']}: {both} for {wanted}"
    yield from (f"record {number} is missing" for number in expected)


def main() -> None:
    """Write, run with kills, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", choices=[*TABLES], default="delta")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--files-per-window", type=int, default=100)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="dagflow-columns-"))
    try:
        rows = write_files(root, given.files, given.seed)
        write_app(root, given.kind, given.files_per_window)
        chance, kills = random.Random(given.seed), 0
        command = [sys.executable, "-m", "dagflow", "run", "app.yaml", "--local", "-q"]
        began = time.monotonic()
        while True:
            process = subprocess.Popen(command, cwd=root)
            try:
                ended = process.wait(chance.uniform(1.5, 5) if kills < given.kills else None)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
        seconds = time.monotonic() - began
        found = rows_of(root, given.kind)
        wrong = list(wrong_rows(found, rows))
        values = sum(len(row) for row in rows)
        texts = [json.loads(text) for text in found["_rescued"].to_pylist() if text]
        rescued = sum(len(text.keys() - {"_file", "_offset"}) for text in texts)
        print(f"{given.kind}: exit {ended}, {kills} kills, {seconds:.0f} s, {len(found)} records, {values} values,")
        print(f"    {rescued} of them rescued, {len(wrong)} records wrong: {wrong[:3]}")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
