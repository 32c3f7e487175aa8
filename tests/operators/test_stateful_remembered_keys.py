"""What operators remember that share the keys between several partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.testing import run_app

APP = """\
name: numbers
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in, blocks_threshold: 1, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{id: int64}}}}}}}}
  first: {{{operator}, partition: {{by: id, count: 8}}}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: first.input}}
  kept: {{from: first.{port}, to: writer.input}}
"""


@pytest.mark.parametrize(
    ("operator", "port"),
    [
        ("class: Deduplicator, properties: {key: id, max_keys: 80}", "output"),
        ("class: Check, properties: {expect: unique(id), max_keys: 80}", "errors"),
    ],
)
def test_no_key_is_forgotten_where_all_are_no_more_than_max_keys(tmp_path: Path, operator: str, port: str) -> None:
    """However unevenly hashes spread them over the partitions: of two records one passes, and one is refused."""
    (tmp_path / "app.yaml").write_text(APP.format(operator=operator, port=port))
    rows = "id\n" + "".join(f"{number}\n" for number in range(80))
    outputs = run_app(tmp_path / "app.yaml", {"in/1.csv": rows, "in/2.csv": rows})
    assert len(outputs.rows("out")) == 80
