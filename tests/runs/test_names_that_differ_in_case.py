"""Columns and members that a table takes for one, where the app says fail: refused, with advice that works."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.runs.remedy_app import refusal

APP = """
name: letters
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", max_files_per_window: 1, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  select: {{class: Select, properties: {select}, partition: parallel}}
  table: {{class: TableWriter, properties: {{table: "delta:{root}/table"{more}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: select.input}}
  rows: {{from: select.output, to: table.input}}
"""
AS_FOUND = "{type: json_lines, columns: as_found}"
CSV = "{type: csv, columns: {}}"
ALL = "{where: 'true'}"
FAIL = ", on_new_column: fail"


def put(root: Path, **files: str) -> None:
    """Write files of the input."""
    (root / "in").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "in" / name).write_text(text)


def work(root: Path, format: str = AS_FOUND, select: str = ALL, more: str = "") -> list[dict[str, object]]:
    """Run the app and return the rows of the table, in their order."""
    (root / "app.yaml").write_text(APP.format(root=root, format=format, select=select, more=more))
    run(load_app(root / "app.yaml"), runtime=InlineRuntime)
    rows: list[dict[str, object]] = DeltaTable(str(root / "table")).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(str(row["id"])))


def decided(root: Path) -> int:
    """How many windows are decided."""
    return status(str(root / "journal"), StorageContext.default()).last_committed


ROW_OF_BOTH, ROW_OF_ONE = '{"id": 1, "ID": 2}\n', '{"id": 3}\n'
REMEDIES = {
    "leave one out": ("{type: json_lines, columns: {id: int64}}", ALL, [{"id": 1}, {"id": 3}]),
    "rename one": (
        "{type: json_lines, columns: {id: int64, ID: int64}}",
        "{rename: {ID: other}}",
        [{"id": 1, "other": 2}, {"id": 3, "other": None}],
    ),
    "drop one": ("{type: json_lines, columns: {id: int64, ID: int64}}", "{drop: ID}", [{"id": 1}, {"id": 3}]),
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_columns_of_json_that_differ_in_case_are_named_in_the_app(tmp_path: Path, remedy: str) -> None:
    """The error names the record that has brought the second one, and each of its remedies is taken."""
    put(tmp_path, a='{"id": 3}\n', b=ROW_OF_BOTH)
    message = refusal(lambda: work(tmp_path, more=FAIL), "cannot have both columns 'id' and 'ID': case does not count")
    assert f"the first record with 'ID' is at {tmp_path}/in/b:0\n" in message
    assert "columns of a JSON reader name those that are wanted, or a Select before the table drop or rename" in message
    format, select, rows = REMEDIES[remedy]
    assert work(tmp_path, format, select) == rows


@pytest.mark.parametrize(
    ("select", "row"), [("{drop: ID}", {"id": "1"}), ("{rename: {ID: other}}", {"id": "1", "other": "2"})]
)
def test_columns_of_a_header_that_differ_in_case_go_through_select(
    tmp_path: Path, select: str, row: dict[str, str]
) -> None:
    """It drops one of them, or renames it."""
    put(tmp_path, a="id,ID\n1,2\n")
    refusal(
        lambda: work(tmp_path, CSV, more=FAIL), f"at {tmp_path}/in/a:6\n.* a Select before the table drop or rename one"
    )
    assert work(tmp_path, CSV, select) == [row]


MEMBERS = {
    "struct": ('{"id": 1, "o": {"b": "x", "B": 1}}', "struct<b: string>", {"b": "x"}),
    "list of structs": ('{"id": 1, "o": [{"b": "x", "B": 1}]}', "list<struct<B: int64>>", [{"B": 1}]),
    "struct in a struct": (
        '{"id": 1, "o": {"p": {"b": "x", "B": 1}}}',
        "struct<p: struct<b: string>>",
        {"p": {"b": "x"}},
    ),
}


@pytest.mark.parametrize("nested", MEMBERS)
def test_members_that_differ_in_case_are_refused_before_they_are_decided(tmp_path: Path, nested: str) -> None:
    """Delta takes them in no transaction; with one of them named, or without the column, the window goes on."""
    text, kind, value = MEMBERS[nested]
    put(tmp_path, a='{"id": 0}\n', b=f"{text}\n")
    message = refusal(
        lambda: work(tmp_path, more=FAIL), "cannot have both members 'B' and 'b' in column 'o': case does not count"
    )
    assert f"the first record with 'o' is at {tmp_path}/in/b:0\n" in message
    assert "give 'o' as a struct<...> of the members that are wanted, or a Select before the table drop" in message
    assert decided(tmp_path) == 1
    columns = f"{{type: json_lines, columns: {{id: int64, o: '{kind}'}}}}"
    assert work(tmp_path, columns) == [{"id": 0, "o": None}, {"id": 1, "o": value}]


def test_a_column_with_members_that_differ_in_case_is_dropped(tmp_path: Path) -> None:
    """By a Select, where all records have it."""
    put(tmp_path, a='{"id": 1, "o": {"b": "x", "B": 1}}\n')
    refusal(lambda: work(tmp_path, more=FAIL), "or a Select before the table drop the column")
    assert work(tmp_path, select="{drop: o}") == [{"id": 1}]
