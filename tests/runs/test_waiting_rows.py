"""Rows that wait for a table which another program has changed so that it does not take them any more."""

from __future__ import annotations

import contextlib
import json
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
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
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


def read_again(error: str, logical: LogicalPlan) -> None:
    """Replay the windows that an error names."""
    assert error.endswith(" --window 3-4")
    replay_windows(logical, RunOptions(), [3, 4], runtime=InlineRuntime)


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
    assert error.endswith("dagflow replay CHECKPOINT --window 1-2")
    replay_windows(app(tmp_path, table), RunOptions(), [1, 2], runtime=InlineRuntime)
    work(app(tmp_path, table))
    assert [row["id"] for row in delta_rows(tmp_path / "table")] == [n for n in range(9) for _ in "ab"]


def test_waiting_rows_of_a_column_that_came_in_other_letters(tmp_path: Path) -> None:
    """The app is refused first; when it fits the table as it is now, the windows that wait are read again."""
    table = f'table: "delta:{tmp_path / "table"}"'
    let_wait(tmp_path, lambda: app(tmp_path, table), v=2)
    rename_to_capital(tmp_path / "table")
    refusal(lambda: work(app(tmp_path, table)), "cannot have both columns 'V' and 'v': case does not count")
    mended = app(tmp_path, table, "{rename: {v: V}}")
    error = refusal(lambda: work(mended), "rows that wait for table delta:.* are refused: change it, or change the app")
    read_again(error, mended)
    work(mended)
    assert delta_rows(tmp_path / "table") == [{"id": n, "V": v} for n, v in ((1, 1), (2, 2), (3, 2), (4, 4))]


@pytest.mark.parametrize("remedy", ["replay", "change the table"])
def test_waiting_rows_with_a_column_that_was_added_meanwhile(tmp_path: Path, remedy: str) -> None:
    """Another program has added it in other letters; the rows come without it, or with it where that one is gone."""
    table = f'table: "delta:{tmp_path / "table"}"'
    let_wait(tmp_path, lambda: app(tmp_path, table, columns=AS_FOUND), v=2, Note="x")
    before = DeltaTable(str(tmp_path / "table")).version()
    write_deltalake(str(tmp_path / "table"), pa.table({"id": [9], "note": ["y"]}), mode="append", schema_mode="merge")
    error = refusal(lambda: work(app(tmp_path, table, columns=AS_FOUND)), "rows that wait .* are refused: change it")
    if remedy == "replay":
        read_again(error, app(tmp_path, table))
        work(app(tmp_path, table, columns=AS_FOUND))
        assert [(row["id"], row["v"]) for row in delta_rows(tmp_path / "table")] == [
            (1, 1), (2, 2), (3, 2), (4, 4), (9, None)
        ]  # fmt: skip
    else:
        DeltaTable(str(tmp_path / "table")).restore(before)
        work(app(tmp_path, table, columns=AS_FOUND))
        assert [row["Note"] for row in delta_rows(tmp_path / "table")] == [None, "x", "x", None]


@pytest.mark.parametrize(
    ("select", "more", "refused"),
    [
        ("{drop: v}", "", "cannot have a new column 'v': a column of that name was dropped"),
        (ALL, ", on_new_column: ignore", "has no column 'v' for int64, and on_new_column is ignore"),
    ],
)
def test_waiting_rows_with_a_column_that_was_dropped(tmp_path: Path, select: str, more: str, refused: str) -> None:
    """An app that does not write it any more reads them again."""
    table = f'table: "iceberg:shop.orders", catalog: {json.dumps(catalog_in(tmp_path))}'
    let_wait(tmp_path, lambda: app(tmp_path, table), v=2)
    with (
        SqlCatalog("default", **catalog_in(tmp_path)) as catalog,
        catalog.load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update,
    ):
        update.delete_column("v")
    mended = app(tmp_path, table + more, select)
    error = refusal(lambda: work(mended), f"{refused}.*rows that wait for table iceberg:shop.orders are refused")
    read_again(error, mended)
    work(mended)
    with SqlCatalog("default", **catalog_in(tmp_path)) as catalog:
        rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert sorted(rows, key=lambda row: int(row["id"])) == [{"id": number} for number in (1, 2, 3, 4)]


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


def test_waiting_rows_with_keys_are_not_replayed(tmp_path: Path) -> None:
    """They could take the place of newer rows; another table gets all of them."""
    keyed = [f'table: "delta:{tmp_path / name}", upsert_by: id' for name in ("table", "other")]
    let_wait(tmp_path, lambda: app(tmp_path, keyed[0]), v=2)
    rename_to_capital(tmp_path / "table")
    advice = "rows that wait are refused: change table delta:.*, or start over: let the app name another table"
    refusal(lambda: work(app(tmp_path, keyed[0], "{rename: {v: V}}")), advice)
    work(app(tmp_path, keyed[1]), RunOptions(fresh=True))
    assert delta_rows(tmp_path / "other") == [{"id": n, "v": v} for n, v in ((1, 1), (2, 2), (3, 2), (4, 4))]
