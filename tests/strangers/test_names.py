"""Names that a table cannot hold: their values are rescued, and other records arrive, whatever the kind of table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.inline import InlineRuntime
from operators.found_values import joined, plain
from operators.rescued_values import rescued_values

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
    return sorted(rows_of(root, kind), key=lambda row: int(row["id"]))


def rows_of(root: Path, kind: str) -> list[Record]:
    """The rows of the table."""
    if kind == "delta":
        rows: list[Record] = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
        return rows
    if kind == "parquet":
        files = ds.dataset(str(root / "table")).files
        return [row for file in files for row in ds.dataset(file).to_table().to_pylist()]
    with SqlCatalog("default", **catalog_in(root)) as catalog:
        found: list[Record] = catalog.load_table("shop.names").scan().to_arrow().to_pylist()
    return found


def values_of(row: Record) -> Record:
    """All values of a record, rescued ones and rescued parts of values included."""
    values: Record = plain(row)
    rescued = rescued_values(values.pop("_rescued", "{}"))
    return {name: joined(values.get(name), rescued.get(name)) for name in [*values, *rescued]}


@pytest.mark.parametrize("kind", KINDS)
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


def test_columns_of_the_app_come_before_those_that_are_spelled_alike(tmp_path: Path) -> None:
    """A record's `_RESCUED` or `ID` does not take the place of the column of the app, although it comes first."""
    app = APP.format(root=tmp_path, table=f'table: "delta:{tmp_path}/table", upsert_by: id')
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text('{"_RESCUED": 1, "ID": 2, "id": 1, "v": 1}\n{"id": 2, "v": "x"}\n')
    (tmp_path / "app.yaml").write_text(app)
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    rows = sorted(rows_of(tmp_path, "delta"), key=lambda row: int(row["id"]))
    assert [values_of(row) for row in rows] == [{"_RESCUED": 1, "ID": 2, "id": 1, "v": 1}, {"id": 2, "v": "x"}]
