"""An app without Spark that keeps the newest total of each key in an Iceberg table, read by other libraries."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import polars as pl
import pytest
from pyiceberg.catalog import load_catalog

from tests.cli.processes import dagflow_command

pytestmark = pytest.mark.e2e

APP = """
name: shops
attributes: {checkpoint: out/shops.journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {price: "decimal(9, 2)"}}}}
  sums:
    class: Aggregate
    properties: {by: shop, columns: {total: sum(price), orders: count(*)}, over: run}
    partition: parallel
  table:
    class: TableWriter
    properties:
      table: iceberg:shop.totals
      catalog: {type: sql, uri: "sqlite:///out/catalog.db", warehouse: out/warehouse}
      partition_by: ["bucket(2, shop)"]
      upsert_by: shop
    partition: parallel
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: sums.input}
  results: {from: sums.output, to: table.input}
"""


@pytest.mark.nightly
def test_totals_of_a_second_day_take_the_place_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shop has the total of the newest run that had it, for pyiceberg, polars and DuckDB."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    for day, text in enumerate(["shop,price\na,1.10\nb,2.00\nc,5.00\n", "shop,price\na,0.90\nd,7.00\n"]):
        (tmp_path / "in" / f"{day}.csv").write_text(text)
        done = dagflow_command(["run", "app.yaml", "--json", "--local"], cwd=tmp_path)
        assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "completed"), done.stderr
    uri, warehouse = f"sqlite:///{tmp_path}/out/catalog.db", f"file://{tmp_path}/out/warehouse"
    table = load_catalog("default", type="sql", uri=uri, warehouse=warehouse).load_table("shop.totals")
    wanted = [("a", "0.90", 1), ("b", "2.00", 1), ("c", "5.00", 1), ("d", "7.00", 1)]
    found = table.scan().to_arrow().to_pylist()
    assert sorted((row["shop"], str(row["total"]), row["orders"]) for row in found) == wanted
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    rows = pl.scan_iceberg(table).sort("shop").collect().rows()
    assert [(shop, str(total), orders) for shop, total, orders in rows] == wanted
    files = [task.file.file_path for task in table.scan().plan_files()]
    query = "select shop, total::text, orders from read_parquet($files) order by shop"
    assert duckdb.execute(query, {"files": files}).fetchall() == wanted
