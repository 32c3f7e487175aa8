"""Nulls for columns of a table that allow none: their records are rejects, and all others arrive."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.nightly import nightly
from tests.operators.sink.tables.test_table_files_upserted_rows import KINDS, UpsertedTable

APP = """
name: required
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in"}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: {columns}}}}}}}
  table: {{class: TableWriter, properties: {properties}, partition: parallel}}
  rejects: {{class: RecordWriter, properties: {{path: "{root}/rejects"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: table.input}}
"""
ERRORS = "  bad: {from: table.errors, to: rejects.input}\n"
UNREAD = "  bad: {from: reader.errors, to: rejects.input}\n"
TYPED = '{id: int64, n: int64, s: "struct<a: int64, b: int64>", l: "list<int64>"}'
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("n", pa.int64(), nullable=False),
        ("s", pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])),
        ("l", pa.list_(pa.field("item", pa.int64(), nullable=False))),
    ]
)
ALLOWED: list[dict[str, Any]] = [
    {"id": 0, "n": 1, "s": {"a": 1, "b": 2}, "l": [1, 2]},
    {"id": 1, "n": 2, "s": None, "l": []},
    {"id": 2, "n": 3, "s": {"a": 1, "b": None}, "l": None},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": None, "l": [1]}, "n"),
    ({"s": {"a": 1}}, "n"),
    ({"n": 1, "s": {"b": 1}}, "s.a"),
    ({"n": 1, "s": {"a": None}}, "s.a"),
    ({"n": 1, "l": [1, None]}, "l.item"),
    ({"n": 1, "l": [None]}, "l.item"),
]
OF_ANOTHER_TYPE: tuple[dict[str, Any], str] = ({"n": "x"}, "n")


@pytest.fixture(params=nightly(KINDS, "iceberg"))
def kind(request: pytest.FixtureRequest) -> UpsertedTable:
    """Each kind whose tables can allow no null."""
    return KINDS[request.param]


def work(
    root: Path, kind: UpsertedTable, columns: str, records: list[dict[str, Any]], stream: str, **more: Any
) -> RunSnapshot:
    """Make the table, and run an app over one file."""
    if kind.rows(root) is None:
        kind.make(root, SCHEMA.empty_table())
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / "a").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    properties = json.dumps({**kind.properties(root), **more})
    (root / "app.yaml").write_text(APP.format(root=root, columns=columns, properties=properties) + stream)
    return run(load_app(root / "app.yaml"), runtime=InlineRuntime)


@pytest.mark.parametrize(
    "more",
    [
        {},
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ({"commit": {"every_millis": 0}}, {"upsert_by": "id"})
        ),
    ],
)
@pytest.mark.parametrize("columns", ["as_found", TYPED])
def test_a_record_without_a_value_that_the_table_requires_is_a_reject(
    tmp_path: Path, kind: UpsertedTable, columns: str, more: dict[str, Any]
) -> None:
    """Also where its value does not fit, and within structs and lists; a struct that is null as a whole is none."""
    refused = [*REFUSED, *([OF_ANOTHER_TYPE] if columns == "as_found" else [])]
    bad = [{"id": 10 + number, **record} for number, (record, _) in enumerate(refused)]
    records = [*bad[:3], *ALLOWED, *bad[3:]]
    assert work(tmp_path, kind, columns, records, ERRORS, **more).rejected == len(bad)
    found = kind.rows(tmp_path)
    assert found is not None
    assert sorted(found.select(SCHEMA.names).to_pylist(), key=lambda row: int(row["id"])) == ALLOWED
    lines = [json.loads(line) for file in (tmp_path / "rejects").iterdir() for line in file.read_text().splitlines()]
    assert [json.loads(base64.b64decode(line["raw"]))["id"] for line in lines] == [record["id"] for record in bad]
    reasons = [(line["reason"].partition(":")[0], "allows no null" in line["reason"]) for line in lines]
    assert reasons == [(f"column '{path}'", True) for _, path in refused]


def test_an_app_whose_records_lack_such_a_column_is_refused(tmp_path: Path, kind: UpsertedTable) -> None:
    """Before a run, where the app declares all columns; with a Select that gives it a value all records arrive."""
    with pytest.raises(
        DagflowError, match="allows no null in column 'n', which no record has; give it a value in a Sel"
    ):
        work(tmp_path, kind, "{id: int64}", [{"id": 1}], ERRORS)
    app = (tmp_path / "app.yaml").read_text().replace("to: table.input", "to: select.input")
    app = app.replace(
        "  table: ", '  select: {class: Select, properties: {columns: {n: "7"}}, partition: parallel}\n  table: '
    )
    (tmp_path / "app.yaml").write_text(f"{app}  selected: {{from: select.output, to: table.input}}\n")
    run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    assert [row[:2] for row in kind.sorted_rows(tmp_path)] == [(1, 7)]


def test_such_a_record_ends_a_run_whose_rejects_nobody_takes(tmp_path: Path, kind: UpsertedTable) -> None:
    """At its place, before anything is committed; the remedy that the error names works."""
    records = [*ALLOWED[:1], {"id": 5}]
    with pytest.raises(
        DagflowError, match=r"(?s)column 'n': table .* allows no null\n.*add `rejects: DIRECTORY` to the app"
    ) as error:
        work(tmp_path, kind, "as_found", records, UNREAD)
    assert f"offset {len(json.dumps(records[0])) + 1}" in str(error.value)
    assert work(tmp_path, kind, "as_found", records, ERRORS).rejected == 1
    assert [row[:2] for row in kind.sorted_rows(tmp_path)] == [(0, 1)]
