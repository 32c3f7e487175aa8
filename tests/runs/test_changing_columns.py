"""Columns and types that change while an app runs: what becomes of each value, in each mode."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from operators.reader.columns.found_members import FoundMembers
from operators.reader.formats.base import ByteAccounting
from operators.sink.table_writer import TableWriter
from tests.engine.dags import Given, dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.nightly import by_day
from tests.runs.table_kinds import KINDS, rows_of, writer

Row = dict[str, Any]


class JsonRows(Operator):
    """Makes records with columns of lines of JSON, each line a batch of one row."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def make(self, record: bytes) -> None:
        """Emit the row of a line, with Arrow's own types for its values."""
        row = json.loads(record)
        columns = {name: pa.array([value]) for name, value in row.items()}
        self.output.emit(RecordBatch(pa.RecordBatch.from_pydict(columns)))


def app(root: Path, rows: Sequence[Row], kind: str = "delta", **properties: Any) -> LogicalPlan:
    """Rows, each in a window of its own or several in one, into a table."""
    texts = [json.dumps(row, separators=(",", ":")).encode() for row in rows]
    operators: dict[str, Given] = {
        "source": TextSource(texts=texts),
        "lines": (SampleWords(), 2),
        "rows": (JsonRows(), "parallel"),
        "table": (writer(root, kind, **properties), "parallel"),
    }
    return dag(root, operators, ["source.out lines.samples", "lines.records rows.input", "rows.output table.input"])


def written(root: Path, kind: str = "delta") -> list[Row]:
    """Return the rows of the table, without nulls, sorted by id; what is rescued as values."""
    found = rows_of(root, kind).to_pylist()
    rows = [{name: value for name, value in row.items() if value is not None} for row in found]
    for row in rows:
        if "_rescued" in row:
            values = json.loads(row["_rescued"])
            row["_rescued"] = {name: value for name, value in values.items() if name not in ("_file", "_offset")}
    return sorted(rows, key=lambda row: int(row["id"]))


@dataclass(frozen=True)
class RowOfOtherColumns:
    """A row that changes the columns of the rows before it.

    Attributes:
        row: The row.
        kept: What the table has of it where all of it fits.
        rescued: What is rescued of it otherwise.
        mode: The property that decides about it; "" where it fits in every mode.
    """

    row: Row
    kept: Row
    rescued: Row
    mode: str


BASE: Row = {"id": 1, "n": 1, "x": 1.5, "t": "a"}
CHANGES = {
    "a new column": RowOfOtherColumns({"id": 2, "new": 5}, {"id": 2, "new": 5}, {"new": 5}, "on_new_column"),
    "a new nested column": RowOfOtherColumns(
        {"id": 2, "k": [1, 2]}, {"id": 2, "k": [1, 2]}, {"k": [1, 2]}, "on_new_column"
    ),
    "text for a number": RowOfOtherColumns({"id": 2, "n": "many"}, {}, {"n": "many"}, "on_type_change"),
    "a fraction for a whole number": RowOfOtherColumns({"id": 2, "n": 1.5}, {}, {"n": 1.5}, "on_type_change"),
    "a number for text": RowOfOtherColumns({"id": 2, "t": 7}, {}, {"t": 7}, "on_type_change"),
    "an array for a number": RowOfOtherColumns({"id": 2, "n": [1]}, {}, {"n": [1]}, "on_type_change"),
    "a whole number for a fraction": RowOfOtherColumns({"id": 2, "x": 3}, {"id": 2, "x": 3.0}, {}, ""),
    "a column that is gone": RowOfOtherColumns({"id": 2}, {"id": 2}, {}, ""),
}
MODES = {"on_new_column": ("add", "rescue", "ignore", "fail"), "on_type_change": ("widen", "rescue", "fail")}
CASES = [
    (kind, name, property, mode, is_same_window)
    for kind in KINDS
    for name, change in CHANGES.items()
    for property, modes in MODES.items()
    for mode in modes
    for is_same_window in (False, True)
    if change.mode in ("", property) and (kind == "delta" or is_same_window)
]


@pytest.mark.parametrize(("kind", "name", "property", "mode", "is_same_window"), by_day(18, CASES))
def test_each_mode_does_what_it_says(
    kind: str, name: str, property: str, mode: str, is_same_window: bool, tmp_path: Path
) -> None:
    """Values are in their column, in _rescued, counted as ignored, or end the run; and never anywhere else."""
    change = CHANGES[name]
    # The table is there with the columns of the first rows; two texts make a window.
    run(app(tmp_path, [BASE, BASE], kind, **{property: mode}), runtime=InlineRuntime)
    later = [BASE, BASE, change.row, *([{**BASE, "id": 3}] if is_same_window else [])]
    again = app(tmp_path, later, kind, **{property: mode})
    rest = [{**BASE, "id": 3}] if is_same_window else []
    if change.mode and mode == "fail":
        with pytest.raises(DagflowError, match=r"has no column|and .* in table|does not fit"):
            run(again, runtime=InlineRuntime)
        assert written(tmp_path, kind) == [BASE, BASE]
        return
    done = run(again, runtime=InlineRuntime)
    expected: Row = {"id": 2}
    if not change.mode or mode == "add":
        expected = change.kept
    elif mode in ("widen", "rescue"):
        expected["_rescued"] = change.rescued
    assert written(tmp_path, kind) == [BASE, BASE, expected, *rest]
    assert counted(done, "ignored_values") == (1 if change.mode and mode == "ignore" else 0)
    assert counted(done, "rescued_values") == (1 if change.mode and mode in ("widen", "rescue") else 0)


class AsFoundColumns(Operator):
    """Makes the columns that `columns: as_found` has for lines of JSON, all of a text in one batch."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def make(self, batch: RecordBatch) -> None:
        """Emit the rows with the values that have been put aside."""
        found = FoundMembers(()).parse(batch, ByteAccounting())
        assert found.columns is not None
        self.output.emit(RecordBatch(found.columns))


@pytest.mark.parametrize("mode", ["rescue", "fail"])
def test_values_that_the_reader_has_put_aside_are_treated_alike(mode: str, tmp_path: Path) -> None:
    """What becomes of a value does not depend on which other records are in its batch."""
    operators: dict[str, Given] = {
        "source": TextSource(texts=[b'{"id":1,"n":1} {"id":2,"n":"many"} {"id":3,"n":3}']),
        "lines": (SampleWords(), 2),
        "rows": (AsFoundColumns(), "parallel"),
        "table": (TableWriter(table=f"delta:{tmp_path / 'table'}", on_type_change=mode), "parallel"),
    }
    plan = dag(tmp_path, operators, ["source.out lines.samples", "lines.records rows.input", "rows.output table.input"])
    if mode == "fail":
        with pytest.raises(DagflowError, match=r"'n' \(int64\): \"many\" does not fit into table"):
            run(plan, runtime=InlineRuntime)
        return
    done = run(plan, runtime=InlineRuntime)
    assert counted(done, "rescued_values") == 1
    assert written(tmp_path) == [{"id": 1, "n": 1}, {"id": 2, "_rescued": {"n": "many"}}, {"id": 3, "n": 3}]


def counted(done: RunSnapshot, name: str) -> int:
    """Return what the writer of a run has counted."""
    return sum(each.counts.get(name, 0) for each in done.operators)


def test_tasks_of_a_window_that_bring_a_column_with_two_types_agree(tmp_path: Path) -> None:
    """The driver decides, by the number of records, and the window runs again by that; nothing is lost."""
    rows: list[Row] = [{"id": 1, "n": "a"}, {"id": 2, "n": 2}]
    run(app(tmp_path, rows, on_type_change="rescue"), runtime=InlineRuntime)
    assert written(tmp_path) == [{"id": 1, "n": "a"}, {"id": 2, "_rescued": {"n": 2}}]


def test_of_two_types_the_one_that_takes_both_is_decided(tmp_path: Path) -> None:
    """Also where the app rescues nothing."""
    run(app(tmp_path, [{"id": 1, "n": 1}, {"id": 2, "n": 2.5}]), runtime=InlineRuntime)
    assert written(tmp_path) == [{"id": 1, "n": 1.0}, {"id": 2, "n": 2.5}]


def test_a_rescued_column_named_as_the_place_is_kept_and_counted(tmp_path: Path) -> None:
    """Its value has one more underscore; the place is that of the record."""
    rows: list[Row] = [{"id": 1, "_file": "a", "_offset": "b"}, {"id": 2, "_file": 7, "_offset": 8}]
    done = run(app(tmp_path, rows, on_type_change="rescue"), runtime=InlineRuntime)
    assert written(tmp_path) == [rows[0], {"id": 2, "_rescued": {"__file": 7, "__offset": 8}}]
    assert counted(done, "rescued_values") == 2
