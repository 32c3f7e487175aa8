"""Windows that their table refuses for ever: a repair takes them back, and no row is lost or there twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from dagflow.api.transactions import FileTarget, Target
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.errors import DagflowError, JournalError
from dagflow.execution.messages import WindowJob
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
from operators.rescued_values import rescued_values
from operators.sink.table_writer import TableWriter
from tests.faulty import Faults, FaultyTarget
from tests.nightly import by_day

APP = """
name: refused
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: json_lines, columns: as_found}}}}}}
  writer: {{class: {writer}, properties: {{table: "delta:{root}/{table}"{more}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: writer.input}}
"""
STORAGE = StorageContext.default()
FORMS = {"groups": ("", 4), "windows": (", commit: {every_millis: 0}", 2), "keys": (", upsert_by: id", 4)}
"""How windows are committed, and the window that has the second file's rows."""

HERE = "tests.strangers.test_repair"

Change = Callable[[str], None]


class DyingWriter(TableWriter):
    """Its driver dies when the first transaction is made, and before that is known."""

    def transaction_target(self, storage: StorageContext) -> FileTarget | None:
        """The table."""
        target = super().transaction_target(storage)
        return FaultyTarget(target, Faults(1, "after")) if isinstance(target, Target) else target


def work(
    root: Path,
    more: str,
    table: str = "table",
    before: Callable[[WindowJob], None] | None = None,
    writer: str = "TableWriter",
) -> None:
    """Run the app."""
    (root / "app.yaml").write_text(APP.format(root=root, more=more, table=table, writer=writer))
    run(load_app(root / "app.yaml"), RunOptions(), runtime=lambda program: InlineRuntime(program, before=before))


def put(root: Path, name: str, *records: dict[str, Any]) -> None:
    """Write a file of the input."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))


def rows_of(root: Path, table: str = "table") -> list[dict[str, Any]]:
    """The values of all records, rescued ones included, by id."""
    found = []
    for row in DeltaTable(str(root / table)).to_pyarrow_table().to_pylist():
        rescued = rescued_values(row["_rescued"]) if row.get("_rescued") else {}
        values = {name: value for name, value in row.items() if value is not None and name != "_rescued"}
        found.append({**values, **rescued})
    return sorted(found, key=lambda row: int(row["id"]))


def get_stuck(root: Path, form: str, change: Change) -> None:
    """Commit one row; another program changes the table after the columns of the next window are looked at."""
    more, window_id = FORMS[form]
    put(root, "1", {"id": 1, "k": "a"})
    work(root, more)
    put(root, "2", {"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"})

    def disturb(window: WindowJob) -> None:
        if window.window_id == window_id:
            change(str(root / "table"))

    with pytest.raises(DagflowError, match=f"dagflow repair {root}/journal --window {window_id}"):
        work(root, more, before=disturb)


def add_in_other_letters(path: str) -> None:
    """Add a column that differs from one of the app's only in case."""
    write_deltalake(path, pa.table({"id": [9], "new": ["x"]}), mode="append", schema_mode="merge")


def change_type(path: str) -> None:
    """Write the table anew with another type."""
    rows = pa.table({"id": [1], "k": [1.5]})
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")


def drop_column(path: str) -> None:
    """Write the table anew without a column, and with another one that allows no null there."""
    rows = pa.table({"id": [1], "New": pa.array(["x"])})
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite")


def constrain(path: str) -> None:
    """Add a constraint, which dagflow does not check."""
    DeltaTable(path).alter.add_constraint({"small": "id < 100"})


def replace_log(path: str) -> None:
    """Put a file in the place of the table's log."""
    (Path(path) / "_delta_log").rename(f"{path}.log")
    (Path(path) / "_delta_log").write_text("mine")


def partition_otherwise(path: str) -> None:
    """Write the table anew with other partitions."""
    rows = pa.table({"id": [1], "k": ["a"]})
    write_deltalake(path, rows, mode="overwrite", schema_mode="overwrite", partition_by=["k"])


FITS: list[Change] = [add_in_other_letters, change_type, drop_column, partition_otherwise]


@pytest.mark.parametrize("form", by_day(1, FORMS))
@pytest.mark.parametrize("change", [*FITS, constrain, pytest.param(replace_log, marks=pytest.mark.nightly)])
def test_a_window_that_its_table_refuses_for_ever_is_taken_back(tmp_path: Path, change: Change, form: str) -> None:
    """The error names the command; then its rows go into the table as it is, or into another one that the app names."""
    get_stuck(tmp_path, form, change)
    more, window_id = FORMS[form]
    # Rows with keys need a table that is partitioned by keys alone.
    table = "table" if change in FITS and (change, form) != (partition_otherwise, "keys") else "other"
    versions = len(list(tmp_path.glob("table/_delta_log/*.json")))
    for _ in range(2):
        with pytest.raises(DagflowError, match=f"dagflow repair {tmp_path}/journal --window {window_id}"):
            work(tmp_path, more, table)
    assert len(list(tmp_path.glob("table/_delta_log/*.json"))) == versions
    repair(str(tmp_path / "journal"), window_id, STORAGE)
    put(tmp_path, "3", {"id": 4})
    work(tmp_path, more, table)
    expected = [{"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}, {"id": 4}]
    assert [row for row in rows_of(tmp_path, table) if row["id"] in (2, 3, 4)] == expected
    work(tmp_path, more, table)
    # Row 1 stays in the first table, and the other program has added row 9.
    assert len(rows_of(tmp_path, table)) == 3 + (table == "table") + (change is add_in_other_letters)


@pytest.mark.parametrize("form", by_day(1, FORMS))
def test_values_that_are_rescued_after_a_repair_have_their_place(tmp_path: Path, form: str) -> None:
    """Rows that have waited give it as rows that are read again do."""
    get_stuck(tmp_path, form, change_type)
    more, window_id = FORMS[form]
    repair(str(tmp_path / "journal"), window_id, STORAGE)
    work(tmp_path, more)
    rows = {row["id"]: row["_rescued"] for row in DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()}
    second = (tmp_path / "in" / "2").read_bytes().index(b"\n") + 1
    place = {"_file": f"{tmp_path}/in/2"}
    assert json.loads(rows[2]) == {"k": "b", **place, "_offset": 0}
    assert json.loads(rows[3]) == {"k": "c", **place, "_offset": second}


def test_rows_whose_key_does_not_fit_go_into_another_table(tmp_path: Path) -> None:
    """Without their key they would count as one row; nothing of them is written before."""

    def change_key(path: str) -> None:
        write_deltalake(path, pa.table({"id": [b"1"]}), mode="overwrite", schema_mode="overwrite")

    get_stuck(tmp_path, "keys", change_key)
    more, window_id = FORMS["keys"]
    repair(str(tmp_path / "journal"), window_id, STORAGE)
    with pytest.raises(DagflowError, match=r"is a key of upsert_by.*let the app write into another one"):
        work(tmp_path, more)
    work(tmp_path, more, "other")
    assert rows_of(tmp_path, "other") == [{"id": 2, "k": "b", "New": 1}, {"id": 3, "k": "c"}]


@pytest.mark.parametrize("form", by_day(1, FORMS))
def test_a_window_that_is_in_its_table_is_not_there_twice(tmp_path: Path, form: str) -> None:
    """Also where its driver died before it knew, and the window is taken back: its group does not wait again."""
    more, window_id = FORMS[form]
    put(tmp_path, "1", {"id": 1})
    work(tmp_path, more)
    put(tmp_path, "2", {"id": 2}, {"id": 3})
    with contextlib.suppress(InjectedCrash):
        work(tmp_path, more, writer=f"{HERE}.DyingWriter")
    for _ in range(2):
        repair(str(tmp_path / "journal"), window_id, STORAGE)
    put(tmp_path, "3", {"id": 4})
    work(tmp_path, more)
    assert rows_of(tmp_path) == [{"id": number} for number in (1, 2, 3, 4)]


def test_a_window_whose_input_is_gone_is_not_taken_back(tmp_path: Path) -> None:
    """Its files are all that is left of the records; with the file in its place it is."""
    get_stuck(tmp_path, "windows", add_in_other_letters)
    (tmp_path / "in" / "2").rename(tmp_path / "2")
    with pytest.raises(JournalError, match=r"window 2 has read .*/in/2, which is gone"):
        repair(str(tmp_path / "journal"), 2, STORAGE)
    (tmp_path / "2").rename(tmp_path / "in" / "2")
    repair(str(tmp_path / "journal"), 2, STORAGE)
    work(tmp_path, FORMS["windows"][0])
    assert [row["id"] for row in rows_of(tmp_path)] == [1, 2, 3, 9]
