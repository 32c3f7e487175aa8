"""Records with nothing but values of partition columns, or with nothing at all, are rows like others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day

APP = """
name: bare
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", block_size: {block}, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: as_found}}}}}}
  writer: {{class: TableWriter, properties: {{table: "{kind}:{root}/out", partition_by: k{more}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""


def written(root: Path, block: int, *files: list[dict[str, Any]], kind: str = "delta", more: str = "") -> pa.Table:
    """The table of an app that reads files one after the other."""
    (root / "in").mkdir(parents=True)
    (root / "app.yaml").write_text(APP.format(root=root, block=block, kind=kind, more=more))
    for number, records in enumerate(files):
        (root / "in" / str(number)).write_text("".join(f"{json.dumps(record)}\n" for record in records))
        run(load_app(root / "app.yaml"), RunOptions(), runtime=InlineRuntime)
    return DeltaTable(str(root / "out")).to_pyarrow_table()


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Rows in any order."""
    return sorted(table.to_pylist(), key=str)


@pytest.mark.parametrize("more", by_day(1, ["", ", commit: {every_millis: 0}", ", upsert_by: k"]))
def test_a_table_with_bare_records_is_the_same_for_every_cut(tmp_path: Path, more: str) -> None:
    """Also where the blocks that come first have no other record; it gets no column for them."""
    records: list[dict[str, Any]] = [{"k": "a"}, {"k": "b", "v": None}, {"k": "c", "v": 1.5}, {"k": "d"}]
    records += [] if "upsert" in more else [{}]
    tables = [written(tmp_path / str(block), block, records, more=more) for block in (1, 30, 1000)]
    expected = sorted(({"v": record.get("v"), "k": record.get("k")} for record in records), key=str)
    assert [rows_of(table) for table in tables] == [expected] * 3
    assert [table.schema for table in tables] == [tables[0].schema] * 3


@pytest.mark.parametrize("more", ["", ", commit: {every_millis: 0}", ", upsert_by: k"])
def test_a_table_of_bare_records_grows_with_others(tmp_path: Path, more: str) -> None:
    """As a file needs a column, it has that of rescued values, until a record has one."""
    table = written(tmp_path, 1000, [{"k": "a"}], [{"k": "b", "v": 1}], [{"k": "c"}], more=more)
    assert rows_of(table.select(["k", "v"])) == [{"k": "a", "v": None}, {"k": "b", "v": 1}, {"k": "c", "v": None}]
    assert table.column("_rescued").null_count == 3
