"""Columns that are inferred take the values that decide no type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.reader.formats import RECORD_FORMATS

APP = """\
name: inferred
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {folder}/in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: infer}}}}}}
  writer: {{class: RecordWriter, properties: {{path: {folder}/out, format: parquet}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ('{"v":{}}', {"v": None}),
        ('{"v":[{}]}', {"v": [None]}),
        ('{"v":{"x":{},"y":1}}', {"v": {"x": None, "y": 1}}),
    ],
)
def test_an_object_without_members_ends_no_run(tmp_path: Path, line: str, row: object) -> None:
    """It decides no type, as Parquet has none for it, and is null in a column of another one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text(line)
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    (part,) = (tmp_path / "out").iterdir()
    assert pq.read_table(part).to_pylist() == [row]


@pytest.mark.parametrize(
    "options",
    [
        {"type": "csv"},
        {"type": "fixed", "length": 4},
        {"type": "paragraphs"},
        {"type": "regex", "pattern": "a"},
        {"type": "parquet"},
    ],
)
def test_a_format_that_finds_no_columns_says_so(options: dict[str, Any]) -> None:
    """And what does; it is not only another value that is expected."""
    with pytest.raises(ValueError, match="got 'infer'; this format finds no columns itself: name them"):
        RECORD_FORMATS.make({**options, "columns": "infer"})
