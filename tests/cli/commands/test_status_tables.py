"""What a checkpoint has added to its tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from dagflow.cli.commands.status import tables_status
from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.table_writer import TableWriter
from tests.engine.dags import Given, dag
from tests.engine.sample_app import TextSource
from tests.engine.table_app import TEXTS, delta_app, work
from tests.execution.sample_operators import SampleWords
from tests.nightly import by_day
from tests.runs.test_changing_columns import JsonRows, app

STORAGE = StorageContext.default()
ROWS = [{"id": number} for number in range(5)]


def test_versions_files_and_watermark_are_those_of_the_table(tmp_path: Path) -> None:
    """As the table itself has them; two rows make a window."""
    run(app(tmp_path, ROWS, commit={"every_millis": 0}), runtime=InlineRuntime)
    found = tables_status(str(tmp_path / "journal"), STORAGE)
    table, shown = DeltaTable(str(tmp_path / "table")), found.tables["table"]
    assert found.watermark == shown.window_id == 3
    assert shown.versions == [(window, f"version {window - 1}") for window in (1, 2, 3)]
    sizes = sorted(path.stat().st_size for path in (tmp_path / "table").glob("*.parquet"))
    assert (shown.files, shown.records) == (len(table.file_uris()), 5)
    assert (shown.size_bytes, shown.least_bytes, shown.greatest_bytes) == (sum(sizes), sizes[0], sizes[-1])


@pytest.mark.parametrize("replayed", by_day(1, [[1], [2], [1, 2]]))
def test_after_a_replay_the_version_is_that_of_the_table(tmp_path: Path, replayed: list[int]) -> None:
    """The newest window stays the one that it is, and a window that was not replayed keeps its version."""
    work(delta_app(tmp_path, TEXTS))
    before = DeltaTable(str(tmp_path / "db")).version()
    replay_windows(delta_app(tmp_path, TEXTS), RunOptions(), replayed, runtime=InlineRuntime)
    newest = f"version {DeltaTable(str(tmp_path / 'db')).version()}"
    shown = tables_status(str(tmp_path / "journal"), STORAGE).tables["table"]
    assert (shown.version, shown.window_id) == (newest, 2) and newest != f"version {before}"
    assert [version for window, version in shown.versions if window in replayed] == [newest] * len(replayed)
    assert all(version != newest for window, version in shown.versions if window not in replayed)
    work(delta_app(tmp_path, [*TEXTS, b"h i"]))
    shown = tables_status(str(tmp_path / "journal"), STORAGE).tables["table"]
    assert (shown.version, shown.window_id) == (f"version {DeltaTable(str(tmp_path / 'db')).version()}", 3)


def test_the_command_line_shows_it(tmp_path: Path) -> None:
    """As text and as JSON; a checkpoint without tables says so."""
    run(app(tmp_path, ROWS, commit={"every_millis": 0}), runtime=InlineRuntime)
    place = ["status", str(tmp_path / "journal"), "--tables"]
    text = CliRunner().invoke(command_line, place).stdout
    assert text.startswith("all tables show the windows up to 3\n\ntarget table: version 2, with window 3\n    ")
    assert "    window 3: version 2\n    window 2: version 1\n    window 1: version 0\n" in text
    assert json.loads(CliRunner().invoke(command_line, [*place, "--json"]).stdout)["watermark"] == 3


def test_records_in_a_dataset_of_parquet_are_not_denied(tmp_path: Path) -> None:
    """The answer names the tables that it covers."""
    operators: dict[str, Given] = {
        "source": TextSource(texts=[b'{"id":1}']),
        "lines": (SampleWords(), 2),
        "rows": (JsonRows(), "parallel"),
        "table": (TableWriter(table=f"parquet:{tmp_path / 'table'}"), "parallel"),
    }
    streams = ["source.out lines.samples", "lines.records rows.input", "rows.output table.input"]
    run(dag(tmp_path, operators, streams), runtime=InlineRuntime)
    text = CliRunner().invoke(command_line, ["status", str(tmp_path / "journal"), "--tables"]).stdout
    assert text == "nothing was added to a table of Delta Lake or Iceberg\n"


@pytest.mark.parametrize("other", [["--files", "x"], ["--window", "1"]])
def test_one_question_at_a_time(tmp_path: Path, other: list[str]) -> None:
    """With the way to ask."""
    done = CliRunner().invoke(command_line, ["status", str(tmp_path), "--tables", *other])
    assert (done.exit_code, "--files, --window and --tables cannot be given together" in done.stderr) == (2, True)
