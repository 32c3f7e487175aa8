"""Refused records do not come back into a table that keeps the newest row of each key; what the error advises does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.runs.remedy_app import refusal
from tests.runs.table_kinds import rows_of

APP = """
name: late
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in"}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {columns}}}}}}}
  table: {{class: TableWriter, properties: {{{table}, upsert_by: k}}, partition: parallel}}
  refused: {{class: RecordWriter, properties: {{path: "{root}/refused"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: table.input}}
  bad: {{from: reader.errors, to: refused.input}}
"""
STRICT, MENDED = "{k: string, seq: int64, amt: int64}", "{k: string, seq: int64}"
DELTA = 'table: "delta:{root}/{name}"'
ICEBERG = (
    'table: "iceberg:shop.x", catalog: {{type: sql, uri: "sqlite:///{root}/catalog.db", '
    'warehouse: "file://{root}/warehouse"}}'
)


def work(root: Path, columns: str, table: str = DELTA, name: str = "table", **options: Any) -> None:
    """Run the app with the columns of its reader and its table."""
    text = APP.format(root=root, columns=columns, table=table.format(root=root, name=name))
    (root / "app.yaml").write_text(text)
    run(load_app(root / "app.yaml"), RunOptions(**options), runtime=InlineRuntime)


def sequence(root: Path, kind: str = "delta") -> dict[str, int]:
    """The number of each key's row."""
    return {row["k"]: row["seq"] for row in rows_of(root, kind).to_pylist()}


def put(root: Path, name: str, rows: str) -> None:
    """Write a file of the input."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / name).write_text(f"k,seq,amt\n{rows}")


def refuse_and_overtake(root: Path, table: str = DELTA) -> None:
    """Refuse two records, and let a newer one of the first one's key come."""
    put(root, "1.csv", "a,1,bad\nb,1,1\nc,1,bad\n")
    work(root, STRICT, table)
    put(root, "2.csv", "a,2,2\n")
    work(root, STRICT, table)


@pytest.mark.parametrize(("kind", "table"), [("delta", DELTA), ("iceberg", ICEBERG)])
def test_refused_records_do_not_replace_newer_ones(tmp_path: Path, kind: str, table: str) -> None:
    """They stay refused, and the table stays as it is."""
    refuse_and_overtake(tmp_path, table)
    message = refusal(
        lambda: work(tmp_path, MENDED, table, rejects=RejectChoice()),
        "operator 'table' writes to table .*: with upsert_by, a record that comes back would take the place of newer",
    )
    assert "put those that no newer record has replaced, corrected, into a new file of the input; or" in message
    assert sequence(tmp_path, kind) == {"a": 2, "b": 1}
    left = grouped(open_rejects(str(tmp_path / "journal"), StorageContext.default()), RejectChoice())
    assert sum(group.records for group in left) == 2


def test_a_corrected_record_comes_with_a_new_file(tmp_path: Path) -> None:
    """It is the newest of its key then."""
    refuse_and_overtake(tmp_path)
    put(tmp_path, "3.csv", "c,1,3\n")
    work(tmp_path, STRICT)
    assert sequence(tmp_path) == {"a": 2, "b": 1, "c": 1}


def test_a_mended_app_fills_another_table_in_the_order_of_the_input(tmp_path: Path) -> None:
    """Every record is accepted where it stands; the table of before stays."""
    refuse_and_overtake(tmp_path)
    (tmp_path / "other").mkdir()
    work(tmp_path, MENDED, name="other/table", fresh=True)
    assert sequence(tmp_path / "other") == {"a": 2, "b": 1, "c": 1}
    assert sequence(tmp_path) == {"a": 2, "b": 1}
