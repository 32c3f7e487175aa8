"""Mappings that per-record methods emit: their columns are those of the batch as long as the method leaves them so."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.columns.column_values import mappings_of
from dagflow.api.records import Origin, RecordBatch
from dagflow.errors import OperatorError
from dagflow.execution import emitted_records
from dagflow.testing.operators import OperatorHarness
from tests.execution.sample_operators import TextSample

MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5)
COLUMNS = {
    "n": pa.array([1, None, 3], pa.int32()),
    "price": pa.array([Decimal("1.50"), Decimal("-2.00"), None], pa.decimal128(18, 2)),
    "day": pa.array([MOMENT.date(), None, datetime.date(1, 1, 1)]),
    "at": pa.array([MOMENT, None, datetime.datetime(9999, 12, 31)], pa.timestamp("ms")),
    "zoned": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "Europe/Paris")),
    "size": pa.array([0.5, float("inf"), None], pa.float32()),
    "text": pa.array(["a", "", None], pa.large_string()),
    "tags": pa.array([[1], None, []], pa.list_(pa.int16())),
}
BLOCK = TextSample("a.csv", b"x" * 50, 100)

Row = dict[str, Any]


class AppliesFunction(Operator):
    """Emits what a function makes of each record."""

    function: Callable[[Row], list[Any]]

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, row: Row) -> None:
        """Called once per record."""
        for made in self.function(row):
            self.output.emit(made)


def batch_of(columns: dict[str, pa.Array]) -> RecordBatch:
    """Records of one block, with offsets from 100 on."""
    arrow = pa.RecordBatch.from_pydict(columns)
    return RecordBatch(arrow, origin=Origin((BLOCK,), np.arange(arrow.num_rows), 100))


def each(function: Callable[[Row], list[Any]], columns: dict[str, pa.Array]) -> RecordBatch:
    """The one batch that a per-record method makes of a batch."""
    harness = OperatorHarness(AppliesFunction(function=function))
    harness.window({"input": batch_of(columns)})
    (made,) = harness.batches["output"]
    return made


def changed(row: Row, name: str, value: Any) -> list[Row]:
    """The record with another value, changed in place."""
    row[name] = value
    return [row]


def test_columns_that_a_method_passes_on_keep_their_types() -> None:
    """Neither digits of decimals, nor units, zones and widths are inferred anew; nor are those in lists."""
    made = each(lambda row: [row], COLUMNS).to_arrow()
    assert made.equals(batch_of(COLUMNS).to_arrow())


def test_a_list_that_a_method_changes_in_place_is_changed() -> None:
    """The object is the same, and its content is not."""
    made = each(lambda row: [row["tags"].append(7), row][1:], {"tags": pa.array([[1], []])})
    assert made.to_arrow().column("tags").to_pylist() == [[1, 7], [7]]


@pytest.mark.parametrize(
    ("kind", "before", "after", "then"),
    [
        (pa.int32(), 1, 2, pa.int32()),
        (pa.int32(), 1, True, pa.bool_()),
        (pa.int32(), 1, 1.0, pa.float64()),
        (pa.int32(), 1, 1 << 40, pa.int64()),
        (pa.uint8(), 1, -1, pa.int64()),
        (pa.int32(), 1, None, pa.int32()),
        (pa.float64(), 1.0, 1, pa.int64()),
        (pa.float32(), 0.5, 0.1, pa.float64()),
        (pa.bool_(), True, 1, pa.int64()),
        (pa.decimal128(18, 2), Decimal("1.00"), Decimal("2.5"), pa.decimal128(18, 2)),
        (pa.decimal128(18, 2), Decimal("1.00"), Decimal("2.505"), pa.decimal128(4, 3)),
        (pa.large_string(), "a", "b", pa.large_string()),
        (pa.timestamp("s"), MOMENT, MOMENT.replace(second=9), pa.timestamp("s")),
        (pa.timestamp("s"), MOMENT, MOMENT.replace(microsecond=9), pa.timestamp("us")),
        (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=datetime.UTC), MOMENT, pa.timestamp("us")),
        (pa.timestamp("us"), MOMENT, MOMENT.date(), pa.date32()),
        (pa.list_(pa.int16()), [1], None, pa.list_(pa.int16())),
    ],
)
def test_a_changed_column_keeps_its_type_if_all_values_fit(
    kind: pa.DataType, before: Any, after: Any, then: pa.DataType
) -> None:
    """Values of another class, and those that would lose something, have the type that Arrow infers."""
    made = each(lambda row: changed(row, "x", after), {"x": pa.array([before, before], kind)}).to_arrow()
    assert made.schema.field("x").type == then
    (value,) = set(map(repr, made.column("x").to_pylist()))
    assert value == repr(pa.array([after], then)[0].as_py())


ACTIONS: dict[str, Callable[[Row], list[Row]]] = {
    "keep": lambda row: [row],
    "drop": lambda _: [],
    "twice": lambda row: [row, dict(row)],
    "copy": lambda row: [dict(row)],
    "change": lambda row: changed(row, "n", 7),
    "add": lambda row: changed(row, "more", "x"),
    "remove": lambda row: [{name: value for name, value in row.items() if name != "text"}],
    "other": lambda row: [{"other": row["n"]}],
}


def test_a_value_of_another_kind_names_the_record_it_was_emitted_for() -> None:
    """By its offset, also where records before it gave none or several."""
    made: Iterator[list[Row]] = iter([[], [{"v": 1}, {"v": 2}], [{"v": True}]])
    with pytest.raises(
        OperatorError, match=r"column 'v': record 3 has bool where an earlier .* at offset 102 of a.csv"
    ):
        each(lambda _: next(made), {"n": pa.array([1, 2, 3])})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [MOMENT.date(), MOMENT]),
        (pa.timestamp("us"), [MOMENT, MOMENT.replace(tzinfo=datetime.UTC)]),
        (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=datetime.UTC), MOMENT]),
        (pa.time64("us"), [MOMENT.time(), MOMENT.timetz().replace(tzinfo=datetime.UTC)]),
        (pa.float64(), [1.5, True]),
    ],
)
def test_a_column_of_a_known_type_takes_no_other_kinds(kind: pa.DataType, values: list[Any]) -> None:
    """Nothing is cut off a value to make it fit."""
    made = iter(values)
    with pytest.raises(OperatorError, match="column 'x': record 2 has "):
        each(lambda row: changed(row, "x", next(made)), {"x": pa.array(values[:1] * 2, kind)})


@given(st.lists(st.sampled_from(sorted(ACTIONS)), min_size=1, max_size=12), st.integers(1, 5))
def test_pieces_of_any_size_give_the_rows_that_were_emitted(plan: list[str], piece: int) -> None:
    """Whatever a method does with each record, rows and offsets are those of one that is called without dagflow."""
    columns = {
        "n": pa.array(range(len(plan)), pa.int32()),
        "text": pa.array([None if at % 3 == 0 else f"t{at}" for at in range(len(plan))]),
    }
    rows = pa.RecordBatch.from_pydict(columns).to_pylist()
    made = [(at, row) for at, action in enumerate(plan) for row in ACTIONS[action](dict(rows[at]))]
    names = list(dict.fromkeys(name for _, row in made for name in row))
    actions = iter(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emitted_records, "PIECE_RECORDS", piece)
        patch.setattr("dagflow.execution.chain.PIECE_RECORDS", piece)
        if not made:
            assert len(each(lambda row: ACTIONS[next(actions)](row), columns)) == 0
            return
        batch = each(lambda row: ACTIONS[next(actions)](row), columns)
    assert batch.to_arrow().schema.names == names
    assert batch.to_pylist() == [{name: row.get(name) for name in names} for _, row in made]
    assert batch.offsets().tolist() == [100 + at for at, _ in made]
    assert all(batch.to_arrow().schema.field(name).type == kind.type for name, kind in columns.items() if name in names)


def test_a_batch_among_mappings_keeps_its_place() -> None:
    """What was gathered as columns goes on one by one, in order."""
    whole = RecordBatch(pa.RecordBatch.from_pydict({"n": [70, 71]}))
    harness = OperatorHarness(AppliesFunction(function=lambda row: [whole, row] if row["n"] == 3 else [row]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emitted_records, "PIECE_RECORDS", 1)
        patch.setattr("dagflow.execution.chain.PIECE_RECORDS", 1)
        harness.window({"input": batch_of({"n": pa.array([1, 2, 3, 4])})})
    assert [row["n"] for row in harness.emitted["output"]] == [1, 2, 70, 71, 3, 4]


def test_mappings_without_columns_are_refused() -> None:
    """As everywhere."""
    with pytest.raises(OperatorError, match="records have at least one column"):
        each(lambda _: [{}], {"n": pa.array([1])})


@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_that_pyarrow_gives(name: str) -> None:
    """Also where they are made in a faster way."""
    arrow = pa.RecordBatch.from_pydict({name: COLUMNS[name]})
    assert list(map(repr, mappings_of(arrow))) == list(map(repr, arrow.to_pylist()))


def test_times_that_python_has_not_are_refused() -> None:
    """Numbers of numpy stand for them, which are no times."""
    with pytest.raises(OverflowError, match="out of range"):
        mappings_of(pa.RecordBatch.from_pydict({"at": pa.array([1 << 60]).cast(pa.timestamp("us"))}))


def test_columns_of_one_name_give_one_value() -> None:
    """The last one's, as pyarrow has it."""
    twice = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"])
    assert mappings_of(twice) == twice.to_pylist() == [{"a": 3}, {"a": 4}]
