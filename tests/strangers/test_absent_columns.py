"""Columns that an app names, and that only some batches of JSON have: a column that is absent is null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime

APP = """
name: absent
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: as_found}}}}}}
  select: {{class: {name}, properties: {properties}, partition: parallel}}
  table: {{class: TableWriter, properties: {{table: "delta:{root}/table"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: select.input}}
  selected: {{from: select.output, to: table.input}}
"""
RECORDS = [{"id": 1, "v": 5, "s": "a"}, {"id": 2, "s": "b"}, {"v": None, "id": 3, "s": "c"}, {"w": 1}]
"""Each is a batch of its own."""


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        ({"keep": ["id", "v"]}, [{"id": 1, "v": 5}, {"id": 2}, {"id": 3}, {}]),
        ({"drop": ["v", "s"]}, [{"id": 1}, {"id": 2}, {"id": 3}, {"w": 1}]),
        ({"rename": {"v": "n"}, "drop": "s"}, [{"id": 1, "n": 5}, {"id": 2}, {"id": 3}, {"w": 1}]),
        ({"where": "v > 1", "keep": "id"}, [{"id": 1}]),
        ({"where": "v is null", "keep": "id"}, [{"id": 2}, {"id": 3}, {}]),
        ({"columns": {"n": "v + 1"}, "keep": "id"}, [{"id": 1, "n": 6}, {"id": 2}, {"id": 3}, {}]),
        ({"columns": {"n": "coalesce(v, 0)"}, "drop": ["id", "v", "s", "w"]}, [{"n": 5}, {"n": 0}, {"n": 0}, {"n": 0}]),
        ({"columns": {"n": "upper(s)"}, "drop": ["id", "v", "s", "w"]}, [{"n": "A"}, {"n": "B"}, {"n": "C"}, {}]),
    ],
)
def test_a_column_that_a_batch_lacks_is_null(tmp_path: Path, select: dict[str, Any], rows: list[Any]) -> None:
    """For expressions and conditions, and as a column that is kept, left out or renamed."""
    assert work(tmp_path, "Select", select) == sorted(rows, key=str)


def test_an_absent_column_is_null_for_every_operator_with_expressions(tmp_path: Path) -> None:
    """Also as a key of groups."""
    expect = {"expect": ["v is null or v > 4"]}
    assert len(work(tmp_path / "check", "Check", expect)) == len(RECORDS)
    groups = work(tmp_path / "groups", "Aggregate", {"by": "v", "columns": {"n": "count(*)", "most": "max(id)"}})
    assert groups == [{"n": 3, "most": 3}, {"v": 5, "n": 1, "most": 1}]


def work(root: Path, name: str, properties: dict[str, Any]) -> list[dict[str, Any]]:
    """Publish the records through an operator; return the rows of the table without nulls, by their text."""
    (root / "in").mkdir(parents=True)
    for number, record in enumerate(RECORDS):
        (root / "in" / str(number)).write_text(json.dumps(record) + "\n")
    (root / "app.yaml").write_text(APP.format(root=root, name=name, properties=json.dumps(properties)))
    run(load_app(root / "app.yaml"), runtime=InlineRuntime)
    found = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
    values = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(values, key=str)
