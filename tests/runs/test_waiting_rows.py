"""Rows that wait for a table which another program has changed: they are made to fit it as it is then."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.execution.messages import WindowJob
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
from operators.rescued_values import rescued_values
from tests.runs.remedy_app import refusal
from tests.runs.test_table_remedies import catalog_in

APP = """
name: waiting
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", max_files_per_window: 1, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: {columns}}}}}}}
  select: {{class: Select, properties: {select}, partition: parallel}}
  table: {{class: TableWriter, properties: {{{table}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: select.input}}
  rows: {{from: select.output, to: table.input}}
"""
TYPED, AS_FOUND, ALL = "{id: int64, v: int64}", "as_found", "{where: 'true'}"


def app(root: Path, table: str, select: str = ALL, columns: str = TYPED) -> LogicalPlan:
    """Numbers become rows of a table."""
    (root / "app.yaml").write_text(APP.format(root=root, columns=columns, select=select, table=table))
    return load_app(root / "app.yaml")


def work(logical: LogicalPlan, options: RunOptions = RunOptions()) -> None:  # noqa: B008  # frozen
    """Run an app."""
    run(logical, options, runtime=InlineRuntime)


def put(root: Path, number: int, **row: Any) -> None:
    """Write a file of one record."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{number}.json").write_text(json.dumps({"id": number, **row}) + "\n")


def let_wait(root: Path, logical: Callable[[], LogicalPlan], **row: Any) -> None:
    """Commit one row, with columns id and v, and let two more wait in windows 3 and 4; then a file comes."""
    put(root, 1, v=1)
    work(logical())
    put(root, 2, **row)
    put(root, 3, **row)
    die_in_window(logical(), 5)
    put(root, 4, v=4)


def die_in_window(logical: LogicalPlan, window_id: int) -> None:
    """Run an app until a window begins."""

    def look(window: WindowJob) -> None:
        if window.window_id == window_id:
            raise InjectedCrash("died")

    with contextlib.suppress(InjectedCrash):
        run(logical, runtime=lambda program: InlineRuntime(program, before=look))


def delta_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table."""
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


def rename_to_capital(path: Path) -> None:
    """Write a Delta table anew with a column V in the place of v."""
    rows = pa.table(DeltaTable(str(path)).to_pyarrow_table())
    names = ["V" if name == "v" else name for name in rows.column_names]
    write_deltalake(str(path), rows.rename_columns(names), mode="overwrite", schema_mode="overwrite")


def test_waiting_rows_that_were_cut_off_are_reported_with_what_is_gone(tmp_path: Path) -> None:
    """Also where they are of another partition than the file that cannot be made."""
    table = f'table: "delta:{tmp_path / "table"}", partition_by: v'
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text("".join(f'{{"id": {n}, "v": {n}}}\n' for n in range(9)))
    die_in_window(app(tmp_path, table), 3)
    waiting = read_state(StorageContext.default().objects(str(tmp_path / "journal"))).held.waiting["table"]
    gone, cut = [Path(held.file.pending_url) for held in waiting]
    gone.unlink()
    cut.write_bytes(cut.read_bytes()[:-9])
    error = refusal(lambda: work(app(tmp_path, table)), "a fragment of the table is gone")
    assert error.endswith(f"18 in all: dagflow replay {tmp_path}/journal --window 1-2")
    replay_windows(app(tmp_path, table), RunOptions(), [1, 2], runtime=InlineRuntime)
    work(app(tmp_path, table))
    assert [row["id"] for row in delta_rows(tmp_path / "table")] == [n for n in range(9) for _ in "ab"]


def test_rows_that_waited_in_a_removed_directory_come_back_as_advised(tmp_path: Path) -> None:
    """By one command, whatever files they were to be in; rows that were in the table are lost with it."""
    table = f'table: "delta:{tmp_path / "table"}", partition_by: v, target_file_bytes: 100'
    put(tmp_path, 1, v=1)
    work(app(tmp_path, table))
    for number in (2, 3, 4):
        put(tmp_path, number, v=number // 2)
    die_in_window(app(tmp_path, table), 6)
    shutil.rmtree(tmp_path / "table")
    put(tmp_path, 5, v=5)
    for _ in range(2):
        error = refusal(lambda: work(app(tmp_path, table)), "a fragment of the table is gone")
    command = error.rpartition("that are gone again, 3 in all: ")[2]
    assert command == f"dagflow replay {tmp_path}/journal --window 3-5"
    replay_windows(app(tmp_path, table), RunOptions(), [3, 4, 5], runtime=InlineRuntime)
    for _ in range(2):
        work(app(tmp_path, table))
        assert [(row["id"], row["v"]) for row in delta_rows(tmp_path / "table")] == [(2, 1), (3, 1), (4, 2), (5, 5)]


KEYED = ["", ", upsert_by: id"]


@pytest.mark.parametrize("more", KEYED)
def test_waiting_rows_of_a_column_that_came_in_other_letters(tmp_path: Path, more: str) -> None:
    """The table cannot have both, so that their values are rescued; an app that fits the table goes on without that."""
    table = f'table: "delta:{tmp_path / "table"}"{more}'
    let_wait(tmp_path, lambda: app(tmp_path, table), v=2)
    rename_to_capital(tmp_path / "table")
    work(app(tmp_path, table, "{rename: {v: V}}"))
    rows = delta_rows(tmp_path / "table")
    assert [(row["id"], row["V"], rescued(row)) for row in rows] == [
        (1, 1, {}), (2, None, {"v": 2}), (3, None, {"v": 2}), (4, 4, {})
    ]  # fmt: skip


def rescued(row: dict[str, Any]) -> dict[str, Any]:
    """The rescued values of a row."""
    return rescued_values(row["_rescued"]) if row.get("_rescued") else {}


def test_waiting_rows_with_a_column_that_was_added_meanwhile(tmp_path: Path) -> None:
    """Another program has added it in other letters: its values are rescued."""
    table = f'table: "delta:{tmp_path / "table"}"'
    let_wait(tmp_path, lambda: app(tmp_path, table, columns=AS_FOUND), v=2, Note="x")
    write_deltalake(str(tmp_path / "table"), pa.table({"id": [9], "note": ["y"]}), mode="append", schema_mode="merge")
    work(app(tmp_path, table, columns=AS_FOUND))
    rows = delta_rows(tmp_path / "table")
    assert [(row["id"], row["v"], row["note"], rescued(row)) for row in rows] == [
        (1, 1, None, {}), (2, 2, None, {"Note": "x"}), (3, 2, None, {"Note": "x"}), (4, 4, None, {}), (9, None, "y", {})
    ]  # fmt: skip


def test_waiting_rows_of_a_column_of_another_type(tmp_path: Path) -> None:
    """Another program has written the table anew: what does not fit its type is rescued, and the rest converted."""
    table = f'table: "delta:{tmp_path / "table"}"'
    let_wait(tmp_path, lambda: app(tmp_path, table, columns=AS_FOUND), v="x")
    rows = pa.table({"id": ["1"], "v": [1.5]})
    write_deltalake(str(tmp_path / "table"), rows, mode="overwrite", schema_mode="overwrite")
    work(app(tmp_path, table, columns=AS_FOUND))
    found = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    values = [{**rescued(row), **{name: row[name] for name in ("id", "v") if row[name] is not None}} for row in found]
    assert sorted(values, key=lambda row: str(row["id"])) == [
        {"id": "1", "v": 1.5}, {"id": 2, "v": "x"}, {"id": 3, "v": "x"}, {"id": 4, "v": 4}
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["add", "ignore", "fail"])
def test_waiting_rows_with_a_column_that_was_dropped(tmp_path: Path, policy: str) -> None:
    """It is rescued, as no new column may have its name, or left out, or refused, as the app says."""
    table = f'table: "iceberg:shop.orders", catalog: {json.dumps(catalog_in(tmp_path))}'
    let_wait(tmp_path, lambda: app(tmp_path, table), v=2)
    with (
        SqlCatalog("default", **catalog_in(tmp_path)) as catalog,
        catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update,
    ):
        update.delete_column("v")
    if policy == "fail":
        refusal(lambda: work(app(tmp_path, f"{table}, on_new_column: fail")), "cannot have a new column 'v': a column")
        policy = "rescue"
    work(app(tmp_path, f"{table}, on_new_column: {policy}", columns=AS_FOUND))
    with SqlCatalog("default", **catalog_in(tmp_path)) as catalog:
        rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    values = {} if policy == "ignore" else {2: {"v": 2}, 3: {"v": 2}, 4: {"v": 4}}
    assert {row["id"]: rescued(row) for row in rows} == {number: values.get(number, {}) for number in (1, 2, 3, 4)}


def test_waiting_rows_go_into_another_table_that_the_app_names(tmp_path: Path) -> None:
    """The rows that are in the first one stay there; also where the new one is partitioned otherwise."""
    first, other = (f'table: "delta:{tmp_path / name}"' for name in ("table", "other"))
    let_wait(tmp_path, lambda: app(tmp_path, first), v=2)
    work(app(tmp_path, f"{other}, partition_by: v"))
    assert delta_rows(tmp_path / "table") == [{"id": 1, "v": 1}]
    assert delta_rows(tmp_path / "other") == [{"id": 2, "v": 2}, {"id": 3, "v": 2}, {"id": 4, "v": 4}]


def test_waiting_rows_that_run_again_do_not_say_what_columns_there_are(tmp_path: Path) -> None:
    """As long as there is no table, those of a replay make its columns, also in place of all that waited."""
    table = f'table: "delta:{tmp_path / "table"}", on_new_column: ignore'
    put(tmp_path, 1, v=1)
    put(tmp_path, 2, v=2)
    die_in_window(app(tmp_path, table), 3)
    mended = app(tmp_path, table, "{rename: {v: w}}")
    replay_windows(mended, RunOptions(), [1, 2], runtime=InlineRuntime)
    work(mended)
    assert delta_rows(tmp_path / "table") == [{"id": 1, "w": 1}, {"id": 2, "w": 2}]
