"""Columns whose values ask for a wider type, in each kind of table."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.engine.run import run
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from operators.sink.columns.nested_types import common_type
from tests.engine.dags import Given, dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.nightly import by_day
from tests.runs.table_kinds import KINDS, rows_of, writer

D = decimal.Decimal
CHANGES: dict[str, tuple[pa.Array, pa.Array, pa.DataType, str]] = {
    "int to long": (pa.array([1], pa.int32()), pa.array([1 << 40]), pa.int64(), "iceberg parquet"),
    "float to double": (pa.array([1.5], pa.float32()), pa.array([0.1]), pa.float64(), "iceberg parquet"),
    "int to double": (pa.array([1], pa.int32()), pa.array([0.1]), pa.float64(), "parquet"),
    "more digits before the point": (
        pa.array([D("1.10")], pa.decimal128(9, 2)),
        pa.array([D("12345678901.20")], pa.decimal128(20, 2)),
        pa.decimal128(20, 2),
        "iceberg parquet",
    ),
    "more digits behind the point": (
        pa.array([D("1.10")], pa.decimal128(9, 2)),
        pa.array([D("1.2345")], pa.decimal128(9, 4)),
        pa.decimal128(11, 4),
        "",
    ),
    "date to timestamp": (
        pa.array([dt.date(2026, 1, 2)]),
        pa.array([dt.datetime(2026, 1, 2, 3)]),
        pa.timestamp("us"),
        "",
    ),
}
"""Values before and after, the type that takes both, and the kinds of tables whose columns become so."""


class Arrays(Operator):
    """Makes records with a column of one of the arrays; each text names a case and the number of its array."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def make(self, record: bytes) -> None:
        """Emit the row of a text."""
        row = json.loads(record)
        columns = {"id": pa.array([row["id"]]), "x": [*CHANGES.values()][row["case"]][row["array"]]}
        self.output.emit(RecordBatch(pa.RecordBatch.from_pydict(columns)))


def app(root: Path, kind: str, case: str, arrays: str, **properties: Any) -> LogicalPlan:
    """Records with the arrays of a case, two in a window, in tasks of their own."""
    # Lines are separated by blanks.
    number = [*CHANGES].index(case)
    texts = [f'{{"id":{n},"case":{number},"array":{each}}}' for n, each in enumerate(arrays)]
    operators: dict[str, Given] = {
        "source": TextSource(texts=[text.encode() for text in texts]),
        "lines": (SampleWords(), 2),
        "rows": (Arrays(), "parallel"),
        "table": (writer(root, kind, **properties), "parallel"),
    }
    return dag(root, operators, ["source.out lines.samples", "lines.records rows.input", "rows.output table.input"])


def written(root: Path, kind: str) -> pa.Table:
    """The rows of a table, sorted by id, with the column for rescued values."""
    found = rows_of(root, kind)
    if "_rescued" not in found.schema.names:
        found = found.append_column("_rescued", pa.nulls(len(found), pa.string()))
    return found.sort_by("id")


@pytest.mark.parametrize("commit", [{"every_millis": 0}, None], ids=["each window", "a group"])
@pytest.mark.parametrize("case", by_day(1, CHANGES))
@pytest.mark.parametrize("kind", KINDS)
def test_a_column_becomes_wider_or_the_value_is_rescued(kind: str, case: str, commit: Any, tmp_path: Path) -> None:
    """Earlier and later values keep what they are, narrow ones of the same window too, and no run ends."""
    if kind == "parquet" and commit is None:
        pytest.skip("it has no groups")
    narrow, wide, both, kinds = CHANGES[case]
    given = {} if kind == "parquet" else {"commit": commit}
    run(app(tmp_path, kind, case, "00", **given), runtime=InlineRuntime)
    run(app(tmp_path, kind, case, "000100", **given), runtime=InlineRuntime)
    found = written(tmp_path, kind)
    is_wider = kind in kinds.split()
    assert found.schema.field("x").type == (both if is_wider else narrow.type)
    old, new = found["x"][0].as_py(), wide[0].as_py()
    assert found["x"].to_pylist() == [old, old, old, new if is_wider else None, old, old]
    assert old == narrow.cast(found.schema.field("x").type)[0].as_py()
    texts = found["_rescued"].to_pylist()
    assert texts[:3] + texts[4:] == [None] * 5
    if is_wider:
        assert texts[3] is None
    else:
        assert json.loads(texts[3])["x"] in (new, str(new))


@pytest.mark.parametrize("case", by_day(1, CHANGES))
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_column_takes_all_types_of_its_window(kind: str, case: str, tmp_path: Path) -> None:
    """Before a file of the table has it, any wider type may be decided."""
    narrow, wide, both, _ = CHANGES[case]
    run(app(tmp_path, kind, case, "01"), runtime=InlineRuntime)
    found = written(tmp_path, kind)
    assert found.schema.field("x").type == both
    assert found["x"].to_pylist() == [narrow.cast(both)[0].as_py(), wide.cast(both)[0].as_py()]
    assert found["_rescued"].null_count == 2


def test_waiting_fragments_are_as_wide_as_later_ones(tmp_path: Path) -> None:
    """A group whose first windows have a narrow column is merged into files with the wider one."""
    run(app(tmp_path, "iceberg", "int to long", "000001"), runtime=InlineRuntime)
    found = written(tmp_path, "iceberg")
    assert found["x"].to_pylist() == [1, 1, 1, 1, 1, 1 << 40]
    assert found["_rescued"].null_count == 6


@pytest.mark.parametrize("mode", ["rescue", "fail"])
def test_no_column_becomes_wider_where_the_app_says_otherwise(mode: str, tmp_path: Path) -> None:
    """The value is rescued, or ends the run."""
    run(app(tmp_path, "iceberg", "int to long", "00"), runtime=InlineRuntime)
    again = app(tmp_path, "iceberg", "int to long", "0001", on_type_change=mode)
    if mode == "fail":
        with pytest.raises(Exception, match=r"column 'x' does not fit int32 of table iceberg:shop.x"):
            run(again, runtime=InlineRuntime)
        return
    run(again, runtime=InlineRuntime)
    found = written(tmp_path, "iceberg")
    assert found["x"].to_pylist() == [1, 1, 1, None]
    assert json.loads(found["_rescued"][3].as_py())["x"] == 1 << 40


@pytest.mark.parametrize("case", [name for name, change in CHANGES.items() if "parquet" in change[3]])
def test_readers_of_parquet_join_files_of_both_types(case: str, tmp_path: Path) -> None:
    """DuckDB by union_by_name, and polars by an option that casts upwards."""
    run(app(tmp_path, "parquet", case, "00"), runtime=InlineRuntime)
    run(app(tmp_path, "parquet", case, "0001"), runtime=InlineRuntime)
    table, expected = tmp_path / "table", written(tmp_path, "parquet")["x"]
    query = f"SELECT x FROM read_parquet('{table}/*.parquet', union_by_name = true) ORDER BY id"
    with duckdb.connect() as connection:
        assert connection.sql(query).to_arrow_table()["x"].to_pylist() == expected.to_pylist()
    files = (pl.read_parquet_schema(file) for file in sorted(table.glob("*.parquet")))
    schema = {name: kind for found in files for name, kind in found.items()}
    upwards = pl.ScanCastOptions(integer_cast=["upcast", "allow-float"], float_cast="upcast")
    frame = pl.scan_parquet(table, schema=schema, cast_options=upwards, missing_columns="insert")
    assert frame.sort("id").collect()["x"].to_list() == expected.to_pylist()


@pytest.mark.parametrize(
    ("kind", "other", "both"),
    [
        (pa.int64(), pa.float64(), None),
        (pa.int16(), pa.int32(), pa.int32()),
        (pa.string(), pa.int32(), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.date32(), pa.timestamp("us", "UTC"), None),
        (pa.decimal128(38, 0), pa.decimal128(9, 2), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), None),
        (pa.bool_(), pa.int64(), None),
    ],
)
def test_only_types_that_take_all_values_are_wider(kind: pa.DataType, other: pa.DataType, both: object) -> None:
    """Neither a double nor a long takes all values of the other."""
    assert common_type(kind, other) == common_type(other, kind) == both
