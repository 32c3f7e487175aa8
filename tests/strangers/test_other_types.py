"""Columns of which an existing table can take no value, because it has them with other types."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from dagflow.cli.render import summary
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.plan.load import load_app
from dagflow.report.reading import figures_of, read_checkpoint, recent_rejects
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import AlertSettings
from dagflow.storage.context import StorageContext
from tests.cli.commands.inspected_app import invoke

APP = """\
name: typed
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: FORMAT}}
  table: {class: TableWriter, properties: {table: "delta:table"}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: table.input}
"""
TEXTS = "{type: csv, columns: {id: string, d: string}}"


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with a number and a date, and a file of both as text."""
    monkeypatch.chdir(tmp_path)
    DeltaTable.create("table", Schema([Field("id", PrimitiveType("long")), Field("d", PrimitiveType("date"))]))
    Path("in").mkdir()
    Path("in/a.csv").write_text("id,d\n1,2026-05-01\n2,2026-05-02\n")


def validated(format: str) -> tuple[int, str]:
    """The exit code and the messages of `dagflow validate` for an app with a format."""
    Path("app.yaml").write_text(APP.replace("FORMAT", format))
    code, _, messages = invoke("validate", "app.yaml")
    return code, messages


@pytest.mark.parametrize("format", [TEXTS, "csv"])
def test_types_of_both_sides_are_compared_before_a_run(format: str) -> None:
    """Types that the app declares, and those of a header; the mistake is at the line of the writer."""
    code, output = validated(format)
    assert code == 2 and "app.yaml:6:3: operator 'table' (TableWriter): table delta:" in output
    assert "'id' is int64 there, and string in the records; 'd' is date32 there, and string" in output


REMEDIES = {
    "columns": ("{type: csv, columns: {id: int64, d: date32}}", ""),
    "cast": (TEXTS, "columns: {id: cast(id as bigint), d: cast(d as date)}"),
    "rename": ("{type: csv, columns: {id: int64, d: string}}", "rename: {d: other}"),
}


@pytest.mark.parametrize("remedy", REMEDIES)
def test_columns_of_other_types_arrive_as_the_error_advises(remedy: str) -> None:
    """With types in the reader, with a cast, or under other names."""
    assert "with columns of the reader or a cast in a Select, or other names" in validated(TEXTS)[1]
    format, select = REMEDIES[remedy]
    app = APP.replace("FORMAT", format)
    if select:
        app = app.replace("  table: {", f"  select: {{class: Select, properties: {{{select}}}}}\n  table: {{")
        app = app.replace("to: table.input", "to: select.input}\n  typed: {from: select.output, to: table.input")
    Path("app.yaml").write_text(app)
    run(load_app("app.yaml"), runtime=InlineRuntime)
    days = ["2026-05-01", "2026-05-02"]
    rows = sorted(DeltaTable("table").to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))
    column = "other" if remedy == "rename" else "d"
    assert [(row["id"], str(row[column]), row.get("_rescued")) for row in rows] == [
        (number, day, None) for number, day in enumerate(days, 1)
    ]


def test_types_that_may_fit_are_no_mistake() -> None:
    """A number of fewer bits, and a column that the table lacks."""
    assert validated("{type: csv, columns: {id: int32, d: date32, more: string}}")[0] == 0


@pytest.mark.parametrize(("last", "warned"), [(1, False), ("z", True)])
def test_a_value_that_fits_in_any_task_of_a_window_is_enough(last: object, warned: bool) -> None:
    """The values of a window count together, in a run and in its replay; here each file is a task."""
    Path("in/a.csv").unlink()
    for number, value in enumerate(["x", "y", last]):
        Path(f"in/{number}.json").write_text(json.dumps({"id": number, "n": value}) + "\n")
    write_deltalake("table", pa.table({"n": pa.array([], pa.int64())}), mode="append", schema_mode="merge")
    format = "{type: json_lines, columns: as_found}, min_readers: 3, max_readers: 3"
    Path("app.yaml").write_text(APP.replace("FORMAT", format).replace("files: in", "files: in, batch_bytes: 0"))
    app = load_app("app.yaml")
    summaries = [summary(run(app, runtime=InlineRuntime))]
    replay_windows(app, RunOptions(), [1], runtime=InlineRuntime)
    summaries.append(invoke("status", "app.yaml")[1])
    assert [("every value of column 'n' of a window, 3 in all" in text) for text in summaries] == [warned, warned]
    assert [("every value of column" in text) for text in summaries] == [warned, warned]


def test_a_column_of_which_all_values_are_rescued_is_a_warning() -> None:
    """In the summary, in the status, and as an alert; one with a value that fits is not."""
    Path("in/a.csv").unlink()
    lines = [{"id": "x", "d": "2026-05-01", "n": 1}, {"id": "y", "d": "2026-05-02", "n": "z"}]
    Path("in/a.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    warning = "warning: table has rescued every value of column 'id' of a window, 2 in all"
    assert validated("{type: json_lines, columns: as_found}")[0] == 0
    text = summary(run(load_app("app.yaml"), runtime=InlineRuntime))
    assert warning in text and "column 'n'" not in text
    assert warning in invoke("status", "app.yaml")[1]
    storage = StorageContext.default()
    recent = recent_rejects("journal", storage, 0, 100)
    texts = {each.cause: each.text for each in figures_of(read_checkpoint("journal", storage), AlertSettings(), recent)}
    assert "'id' of table" in texts["rescued"]


def test_columns_of_a_table_are_in_the_order_of_those_of_the_file(tmp_path: Path) -> None:
    """Whichever of them has the first value."""
    rows = pa.table({"a": pa.array([None, None, 1]), "b": pa.array([None, 1, 2]), "c": [1, 2, 3]})
    pq.write_table(rows, tmp_path / "in.parquet", row_group_size=1)
    steps = "steps: [{files: in.parquet}, {read: parquet}, {table: delta:ordered}]"
    with contextlib.chdir(tmp_path):
        Path("app.yaml").write_text(f"name: ordered\nattributes: {{checkpoint: own}}\n{steps}\n")
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert DeltaTable(str(tmp_path / "ordered")).to_pyarrow_table().column_names == ["a", "b", "c"]
