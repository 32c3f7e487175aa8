"""Names that a table cannot hold: their values are rescued, and other records arrive, whatever the kind of table."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.found_values import joined, plain
from operators.rescued_values import rescued_values
from tests.nightly import nightly
from tests.strangers.fuzzing import seeds

APP = """
name: names
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: as_found}}}}}}
  table: {{class: TableWriter, properties: {{{table}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: table.input}}
"""
Record = dict[str, Any]
KINDS = ("delta", "iceberg", "parquet")


def catalog_in(root: Path) -> dict[str, str]:
    """The options of a catalog in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"{root}/warehouse"}


def work(root: Path, kind: str, files: Sequence[Sequence[Record]]) -> list[Record]:
    """Publish the records of each file in a run of its own; return the rows of the table, by id."""
    table = f'table: "{kind}:{root}/table"'
    if kind == "iceberg":
        table = f'table: "iceberg:shop.names", catalog: {json.dumps(catalog_in(root))}'
    (root / "app.yaml").write_text(APP.format(root=root, table=table))
    (root / "in").mkdir(exist_ok=True)
    for number, records in enumerate(files):
        (root / "in" / f"{number}.json").write_text("".join(f"{json.dumps(record)}\n" for record in records))
        run(load_app(root / "app.yaml"), runtime=InlineRuntime)
    return sorted(rows_of(root, kind), key=lambda row: int(values_of(row)["id"]))


def rows_of(root: Path, kind: str, reader: str = "arrow") -> list[Record]:
    """The rows of the table, as a reader shows them: the library of its kind, polars or DuckDB."""
    if reader == "duckdb" or kind == "parquet":
        files = sorted(str(path) for path in root.rglob("*.parquet"))
        return [row for file in files for row in _rows_of_file(file, reader)]
    if kind == "delta":
        table = polars.read_delta(str(root / "table")).to_arrow() if reader == "polars" else _delta(root)
        return list(table.to_pylist())
    with SqlCatalog("default", **catalog_in(root)) as catalog:
        handle = catalog.load_table("shop.names")
        found = polars.scan_iceberg(handle).collect().to_arrow() if reader == "polars" else handle.scan().to_arrow()
    return list(found.to_pylist())


def _delta(root: Path) -> pa.Table:
    return DeltaTable(str(root / "table")).to_pyarrow_table()


def _rows_of_file(path: str, reader: str) -> list[Record]:
    if reader == "duckdb":
        with duckdb.connect() as connection:
            return list(connection.read_parquet(path).to_arrow_table().to_pylist())
    rows = polars.read_parquet(path).to_arrow() if reader == "polars" else pq.read_table(path)
    return list(rows.to_pylist())


def values_of(row: Record) -> Record:
    """All values of a record, rescued ones and rescued parts of values included.

    pyiceberg shows null as [] in a column of lists of structs, so that is none to join with a rescued value.
    """
    values: Record = without_nulls(plain(row))
    rescued = rescued_values(values.pop("_rescued", "{}"))
    names = [*values, *rescued]
    found: Record = without_nulls({name: joined(values.get(name), rescued.get(name)) for name in names})
    return found


def without_nulls(value: Any) -> Any:
    """A value without null members: readers show a missing struct or list in different ways."""
    if isinstance(value, dict):
        return {name: inner for name, each in value.items() if (inner := without_nulls(each)) not in (None, {}, [])}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", nightly(KINDS, "iceberg"))
def test_a_record_with_a_name_that_no_table_holds_keeps_its_values(tmp_path: Path, kind: str) -> None:
    """In a new table and in one that is there, as a column and in others; no value is lost, and no later run fails."""
    names = ["v\0x", "id\0x", "", "a\tb", "\x7f", "x" * 256, "ID"]
    inner = [*names[:-1], "A"]
    files: list[list[Record]] = [
        [{"id": 90}, *({"id": at, name: at} for at, name in enumerate(names))],
        [{"id": 190}, *({"id": 100 + at, name: at} for at, name in enumerate(names))],
        [{"id": 290, "s": {"a": 1}}, *({"id": 200 + at, "s": {"a": 1, name: 2}} for at, name in enumerate(inner))],
        [{"id": 300 + at, "l": [{"a": 1}, {"a": 1, name: 2}]} for at, name in enumerate(inner)],
    ]
    given = [record for file in files for record in file]
    assert [values_of(row) for row in work(tmp_path, kind, files)] == sorted(given, key=lambda record: record["id"])
    if kind == "delta":
        assert DeltaTable(str(tmp_path / "table")).schema().to_arrow().names == ["id", "_rescued", "s", "l"]


REFUSING = """\
  rejects: {{class: RecordWriter, properties: {{path: "{root}/rejects"}}, partition: parallel}}
streams:
  bad: {{from: table.errors, to: rejects.input}}
"""


@pytest.mark.parametrize(
    ("kind", "more"),
    [("delta", "upsert_by"), ("delta", "partition_by"), ("iceberg", "upsert_by"), ("parquet", "partition_by")],
)
def test_records_that_give_a_new_table_no_key_are_rejects(tmp_path: Path, kind: str, more: str) -> None:
    """No table is made of them, none of their columns is in it later, and a later record gives the key its type."""
    table = f'table: "{kind}:{tmp_path}/table", {more}: id'
    if kind == "iceberg":
        table = f'table: "iceberg:shop.names", catalog: {json.dumps(catalog_in(tmp_path))}, {more}: id'
    app = APP.format(root=tmp_path, table=table)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"ID": 1}\n{"v\\u0000x": 2, "lost": 1}\n')
    (tmp_path / "app.yaml").write_text(app)
    with pytest.raises(DagflowError, match=r"in/a offset 0: .*no type is known yet of the column 'id'"):
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    (tmp_path / "app.yaml").write_text(app.replace("streams:\n", REFUSING.format(root=tmp_path)))
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).rejected == 2
    assert not [*tmp_path.rglob("*.parquet"), *tmp_path.rglob("_delta_log"), *tmp_path.rglob("*.metadata.json")]
    (tmp_path / "in" / "b").write_text('{"n": 3}\n{"id": 4, "n": 4}\n')
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).rejected == 0
    rows = rows_of(tmp_path, kind)
    assert sorted((row["n"], {*row} - {"id"}) for row in rows) == [(3, {"n"}), (4, {"n"})]


def test_columns_of_the_app_come_before_those_that_are_spelled_alike(tmp_path: Path) -> None:
    """A record's `_RESCUED` or `ID` does not take the place of the column of the app, although it comes first."""
    app = APP.format(root=tmp_path, table=f'table: "delta:{tmp_path}/table", upsert_by: id')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"_RESCUED": 1, "ID": 2, "id": 1, "v": 1}\n{"id": 2, "v": "x"}\n')
    (tmp_path / "app.yaml").write_text(app)
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    rows = sorted(rows_of(tmp_path, "delta"), key=lambda row: int(row["id"]))
    assert [values_of(row) for row in rows] == [{"_RESCUED": 1, "ID": 2, "id": 1, "v": 1}, {"id": 2, "v": "x"}]


@pytest.mark.parametrize("format", ["parquet", "csv", "json_lines"])
def test_files_have_no_names_that_their_readers_confuse(tmp_path: Path, format: str) -> None:
    """Values under such names are rescued, with their place; JSON has a form for every name."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"id": 1, "v\\u0000x": 2, "s": {"a": 3}, "ID": 4}\n')
    app = APP.format(root=tmp_path, table=f"path: {tmp_path}/out, format: {format}").replace("TableW", "RecordW")
    (tmp_path / "app.yaml").write_text(app)
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    (path,) = (tmp_path / "out").glob("[!.]*")
    if format == "parquet":
        (row,) = pq.read_table(path).to_pylist()
    elif format == "csv":
        (row,) = csv.DictReader(path.read_text().splitlines())
    else:
        row = json.loads(path.read_text())
    whole: dict[str, Record] = {"parquet": {"id": 1, "s": {"a": 3}}, "csv": {"id": "1", "s": '{"a":3}', "ID": "4"}}
    rescued: dict[str, Record] = {"parquet": {"v\0x": 2, "ID": 4}, "csv": {"v\0x": 2}}
    given = {"id": 1, "v\0x": 2, "s": {"a": 3}, "ID": 4}
    assert values_of(row) == {**whole.get(format, given), **rescued.get(format, {})}
    assert format == "json_lines" or json.loads(row["_rescued"])["_offset"] == 0


PIECES = [
    *("a", "A", "b", "ID", "id", "é", "É", "K", "\u212a", "ß", "ẞ", "İ", "日", "😀", "_", "1"),
    *("\0", "\t", "\n", "\x1f", "\x7f", "\x85", "\u2028", "\ufeff", " ", ".", "/", "%20", "=", ",", ";", "`"),
    *('"', "'", "\\\\", "{", "(", "#", "$", "é", "x" * 90, "é" * 100),
]


def some_record(random: Random, number: int) -> Record:
    """A record with odd names on all levels."""

    def name() -> str:
        return "".join(random.choices(PIECES, k=random.choice([0, 1, 1, 1, 2, 3])))

    def value(depth: int) -> Any:
        kind = random.choice(["number", "number", "text", "struct", "list"]) if depth else "number"
        if kind == "struct":
            return {name(): value(depth - 1) for _ in range(random.randint(1, 3))}
        if kind == "list":
            return [value(depth - 1) for _ in range(random.randint(1, 2))]
        return random.randint(1, 99) if kind == "number" else random.choice(["x", "y"])

    members = {name(): value(2) for _ in range(random.randint(0, 4))}
    return {**{key: each for key, each in members.items() if key not in ("id", "_rescued")}, "id": number}


@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_every_reader_shows_every_value_under_its_name_or_as_rescued(tmp_path: Path) -> None:
    """Names of random pieces in columns, structs and lists of structs, in all kinds of tables, over three runs."""
    for seed in seeds(4):
        random, root = Random(seed), tmp_path / str(seed)
        root.mkdir()
        kind, numbers = random.choice(KINDS), iter(range(100))
        files = [[some_record(random, next(numbers)) for _ in range(random.randint(1, 4))] for _ in range(3)]
        given = [record for file in files for record in file]
        work(root, kind, files)
        for reader in ("arrow", "polars", "duckdb"):
            found = sorted(map(values_of, rows_of(root, kind, reader)), key=lambda row: int(row["id"]))
            assert found == given, f"{seed=} {kind=} {reader=}"
        shutil.rmtree(root)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_file_whose_name_is_no_text_say_their_file(tmp_path: Path, kind: str) -> None:
    """Names of files may have any bytes, and columns of text only UTF-8: other bytes are escapes."""
    catalog = f", catalog: {json.dumps(catalog_in(tmp_path))}" if kind == "iceberg" else ""
    location = "shop.names" if kind == "iceberg" else f"{tmp_path}/table"
    table = f'table: "{kind}:{location}"{catalog}, on_new_column: rescue, metadata_columns: [file]'
    (tmp_path / "app.yaml").write_text(APP.format(root=tmp_path, table=table))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"\xff.json")).write_text('{"id": 1}\n{"id": {"a": 2}}\n{"id": 3}\n')
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    rows = rows_of(tmp_path, kind)
    assert {row["_dagflow_file"] for row in rows} == {f"{tmp_path}/in/\\xff.json"}
    assert [json.loads(row["_rescued"])["_file"] for row in rows if row["_rescued"]] == [f"{tmp_path}/in/\\xff.json"]
