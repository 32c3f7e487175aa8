"""Output formats on Spark: one app publishes the same rows in each, and each holds the same values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import backports.zstd
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.cli.processes import dagflow_command
from tests.e2e.test_apps import contents

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

SCHEMA = pa.schema(
    [
        ("order", pa.int64()),
        ("placed", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("paid", pa.bool_()),
        ("note", pa.string()),
    ]
)


def rows_of_csv(content: bytes) -> pa.Table:
    """The rows of a file with semicolons and CR LF, which begins with its header."""
    names, *_ = csv.reader(io.StringIO(content.decode(), newline=""), delimiter=";")
    assert names == SCHEMA.names
    return arrow_csv.read_csv(
        io.BytesIO(content),
        parse_options=arrow_csv.ParseOptions(delimiter=";", newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=SCHEMA),
    )


def rows_of_lines(content: bytes) -> pa.Table:
    """The rows of compressed lines of JSON, in which decimals and dates are text."""
    rows = [json.loads(line) for line in backports.zstd.decompress(content).splitlines()]
    text = [pa.string() if name in ("price", "placed") else SCHEMA.field(name).type for name in SCHEMA.names]
    return pa.Table.from_pylist(rows, pa.schema(list(zip(SCHEMA.names, text, strict=True)))).cast(SCHEMA)


def rows_of(folder: Path, suffix: str, read: Callable[[bytes], pa.Table]) -> pa.Table:
    """The rows of all files of a directory, whose names all have the suffix, by order number."""
    files = contents(folder)
    assert files and all(name.endswith(suffix) for name in files)
    return pa.concat_tables(map(read, files.values())).sort_by("order")


@pytest.mark.nightly
def test_all_formats_hold_the_same_values(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by other libraries than those that wrote them; without Spark each file has the same name and bytes."""
    first = dagflow_command(["run", "apps/orders_to_parquet.yaml", "--json"], cwd=place)
    assert first.returncode == 0, first.stderr
    table = rows_of(place / "out" / "orders_table", ".parquet", lambda content: pq.read_table(io.BytesIO(content)))
    source = arrow_csv.read_csv(
        place / "data" / "orders" / "export.csv",
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        convert_options=arrow_csv.ConvertOptions(column_types=SCHEMA),
    )
    assert table.schema.equals(SCHEMA)
    assert table.equals(source.sort_by("order"))
    assert rows_of(place / "out" / "orders_sheet", ".csv", rows_of_csv).equals(table)
    assert rows_of(place / "out" / "orders_lines", ".jsonl.zst", rows_of_lines).equals(table)
    before = contents(place / "out" / "orders_table")
    monkeypatch.chdir(place)
    assert run(load_app("apps/orders_to_parquet.yaml"), RunOptions(fresh=True), runtime=InlineRuntime).windows > 0
    assert contents(place / "out" / "orders_table") == before
