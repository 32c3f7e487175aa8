"""Aggregate gives what DuckDB gives, whatever the batches, partitions and windows."""

from __future__ import annotations

import itertools
import json
import math
import re
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dagflow.api.records import RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import run_operator
from operators.aggregate.aggregate import Aggregate
from tests.nightly import examples

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.decimal128(9, 2)), ("d", pa.float64())])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "", None]),
            "n": st.one_of(st.none(), st.integers(-(2**40), 2**40)),
            "x": st.one_of(st.none(), st.decimals(-100, 100, places=2)),
            "d": st.sampled_from([None, 0.5, -2.0, 1e10, math.nan]),
        }
    ),
    max_size=12,
)
COLUMNS = {
    "records": "count(*)",
    "values": "count(n)",
    "total": "sum(n)",
    "amount": "sum(x)",
    "mean": "avg(n)",
    "least": "min(d)",
    "most": "max(d)",
    "first": "min(x)",
    "twice": "2 * sum(x) + count(*)",
}


def batch(rows: list[dict[str, Any]]) -> RecordBatch:
    return RecordBatch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))


def emitted(operator: Any, batches: list[RecordBatch]) -> list[Any]:
    """The batches that an operator emits for a window of batches."""
    found: list[Any] = []
    operator.output.connect(found.append)
    operator.begin_window(1)
    for each in batches:
        operator.take(each)
    operator.end_window()
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (one != one and other != other) or math.isclose(one, other)
    return bool(one == other)


@settings(max_examples=examples(40))
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_results_are_those_of_duckdb_over_all_partitions(shares: list[list[dict[str, Any]]]) -> None:
    """Each group once, in order of keys with null last; NaN is the largest number."""
    partial = Aggregate(by="k", columns=COLUMNS)
    unifier = partial.unifier("output")
    parts = [each for share in shares for each in emitted(partition_of(partial), [batch(share)])]
    found = [row for each in emitted(unifier, parts) for row in each.to_pylist()]
    records = pa.Table.from_batches([batch([row for share in shares for row in share]).to_arrow()])
    names = ", ".join(f"{text} AS {name}" for name, text in COLUMNS.items())
    database = duckdb.connect()
    database.register("records", records)
    query = f"SELECT k, {names} FROM records GROUP BY k ORDER BY k NULLS LAST"
    wanted = [dict(zip(["k", *COLUMNS], row, strict=True)) for row in database.execute(query).fetchall()]
    assert records.num_rows or not found
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert all(same(ours[name], theirs[name]) for name in ours), (ours, theirs)


def partition_of(operator: Aggregate) -> Aggregate:
    """Another partition of an operator that has a unifier."""
    other = Aggregate(by=dict(operator.by), columns=dict(operator.columns))
    other.unifier("output")
    return other


def test_without_keys_all_records_are_one_group() -> None:
    """A window without records gives none."""
    rows = [{"n": 1}, {"n": 3}]
    assert run_operator(Aggregate(columns={"n": "sum(n)", "m": "avg(n)"}), rows)["output"] == [{"n": 4, "m": 2.0}]
    assert run_operator(Aggregate(columns={"n": "count(*)"}), [])["output"] == []


def test_keys_may_be_expressions_and_results_may_use_them() -> None:
    """Zero and NaN are one key each, whatever their bits."""
    rows = [{"d": value} for value in (0.0, -0.0, 7.5, math.nan, -math.nan, None)]
    found = run_operator(Aggregate(by={"k": "d * 2"}, columns={"n": "count(*)", "next": "k + 1"}), rows)["output"]
    assert [(str(row["k"]), row["n"], str(row["next"])) for row in found] == [
        ("0.0", 2, "1.0"),
        ("15.0", 1, "16.0"),
        ("nan", 2, "nan"),
        ("None", 1, "None"),
    ]


def test_windows_add_up_to_what_one_window_gives() -> None:
    """A part that was left is taken in again, by the same operator or another one."""
    windows = [[{"k": "a", "n": 2**62}], [{"k": "b", "n": 1}, {"k": "a", "n": -(2**62)}], [{"k": "a", "n": 5}]]
    whole = run_operator(Aggregate(by="k", columns={"t": "sum(n)"}), [row for rows in windows for row in rows])
    operator = Aggregate(by="k", columns={"t": "sum(n)"})
    part = None
    for number, rows in enumerate(windows):
        operator.begin_window(number)
        if part is not None:
            operator.add_part(part)
        operator.take(RecordBatch(pa.RecordBatch.from_pylist(rows)))
        part = operator.take_part()
    assert part is not None
    last = Aggregate(by="k", columns={"t": "sum(n)"})
    found: list[Any] = []
    last.output.connect(found.append)
    last.begin_window(9)
    last.add_part(part)
    last.end_window()
    assert [row for each in found for row in each.to_pylist()] == whole["output"]


WHOLE = pa.array([1, 2, None, 2**62], pa.int64())
DOUBLES = pa.array([1.5, None, None, None])
DECIMALS = pa.array([Decimal("0.10"), Decimal(3), None, Decimal("0.01")], pa.decimal128(9, 2))
NULLS = pa.nulls(4)


@pytest.mark.parametrize(
    ("columns", "sums", "means"),
    [
        ((WHOLE, DOUBLES), [2.5, 2.0, None, 2.0**62], [1.25, 2.0, None, 2.0**62]),
        ((NULLS, DOUBLES), [1.5, None, None, None], [1.5, None, None, None]),
        ((NULLS, DECIMALS), ["0.10", "3.00", None, "0.01"], ["0.100000", "3.000000", None, "0.010000"]),
        (
            (WHOLE, NULLS, DECIMALS),
            ["1.10", "5.00", None, "4611686018427387904.01"],
            ["0.550000", "2.500000", None, "2305843009213693952.005000"],
        ),
        ((WHOLE, DECIMALS, DOUBLES), [2.6, 5.0, None, 2.0**62], [2.6 / 3, 2.5, None, 2.0**61]),
    ],
)
def test_numbers_of_several_kinds_have_one_sum(
    columns: tuple[pa.Array, ...], sums: list[Any], means: list[Any]
) -> None:
    """In batches and in windows, in any order: records of JSON have the types that are found."""
    for order in itertools.permutations(columns):
        batches = [RecordBatch(pa.record_batch({"k": pa.array(list("abcd")), "n": values})) for values in order]
        operator, windows = aggregate_of_several_kinds(), aggregate_of_several_kinds()
        found: list[Any] = []
        windows.output.connect(found.append)
        windows.begin_window(9)
        for number, each in enumerate(batches):
            operator.begin_window(number)
            operator.take(each)
            windows.add_part(operator.take_part() or b"")
        windows.end_window()
        for given_out in (found, emitted(aggregate_of_several_kinds(), batches)):
            rows = [row for each in given_out for row in each.to_pylist()]
            assert [[as_text(row[name]) for row in rows] for name in ("s", "m")] == [sums, means]


def aggregate_of_several_kinds() -> Aggregate:
    """A sum and a mean of each group."""
    return Aggregate(by="k", columns={"s": "sum(n)", "m": "avg(n)"})


def as_text(value: object) -> object:
    """A decimal with all of its digits; any other value as it is."""
    return str(value) if isinstance(value, Decimal) else value


def test_a_record_whose_argument_cannot_be_computed_is_refused() -> None:
    """It is in no group; the others are."""
    rows = [{"k": "a", "n": 4, "m": 2}, {"k": "a", "n": 4, "m": 0}, {"k": "b", "n": 1, "m": 0}]
    found = run_operator(Aggregate(by="k", columns={"n": "count(*)", "s": "sum(n div m)"}), rows)
    assert found["output"] == [{"k": "a", "n": 1, "s": 2}]
    assert [json.loads(each)["reason"] for each in found["errors"]] == ["4 is divided by 0", "1 is divided by 0"]


def test_a_sum_that_does_not_fit_ends_the_run_and_names_the_group() -> None:
    """Nothing wraps around; a decimal has the room."""
    rows = [{"k": "a", "n": 2**62}] * 3
    with pytest.raises(OperatorError, match="column 't' of k a: 13835058055282163712 does not fit bigint"):
        run_operator(Aggregate(by="k", columns={"t": "sum(n)"}), rows)
    wide = run_operator(Aggregate(by="k", columns={"t": "sum(cast(n as decimal(28, 0)))"}), rows)
    assert wide["output"] == [{"k": "a", "t": Decimal(3 * 2**62)}]


@pytest.mark.parametrize(
    ("by", "text", "message"),
    [
        ("k", "n", "column 'n' has many values in a group; take one, as max(n), or group by it"),
        ("k", "sum(n) + m", "column 'm' has many values in a group"),
        ("k", "sum(max(n))", "max() is inside of sum()"),
        ("k", "count(distinct n)", "count(distinct …) is not available"),
        ("k", "sum(*)", "sum is used as sum(a)"),
        ("k", "sum(n, m)", "sum is used as sum(a)"),
        ("k", "summ(n)", "there is no function 'summ'; did you mean 'sum'?"),
        ("k", "cuont(*)", "there is no function 'cuont'; did you mean 'count'?"),
        ("k", "sum(upr(k))", "there is no function 'upr'; did you mean 'upper'?"),
        ("c", "count(*)", "columns: 'c' is one of the columns in by as well"),
    ],
)
def test_a_result_that_no_group_has_is_refused(by: str, text: str, message: str) -> None:
    """Before anything runs."""
    with pytest.raises((ValueError, ValidationError), match=re.escape(message)):
        Aggregate(by=by, columns={"c": text})


def test_the_columns_of_records_are_checked_when_they_come() -> None:
    """Keys and arguments alike."""
    rows = [{"k": "a", "n": 1}]
    with pytest.raises(OperatorError, match="there is no column 'm'; there are k, n"):
        run_operator(Aggregate(by="k", columns={"t": "sum(m)"}), rows)
    with pytest.raises(OperatorError, match=r"sum\(\) takes numbers, and this is text"):
        run_operator(Aggregate(by="n", columns={"t": "sum(k)"}), rows)
    with pytest.raises(OperatorError, match="there is no column 'kk'; did you mean 'k'"):
        run_operator(Aggregate(by="kk", columns={"t": "count(*)"}), rows)


def test_a_sum_of_long_decimals_has_38_digits_or_ends_the_run() -> None:
    """As the sum of what two decimals with many digits are multiplied to; the mean has a digit more."""
    rows = [{"k": "a", "n": n} for n in (1, 2, None)]
    total = Aggregate(columns={"t": "sum(cast(n as decimal(38, 2)))", "m": "avg(cast(n as decimal(30, 2)))"})
    assert run_operator(total, rows)["output"] == [{"t": Decimal("3.00"), "m": Decimal("1.500000")}]
    most = "9" * 38
    with pytest.raises(OperatorError, match="column 't' of all records: it has more than 38 digits"):
        run_operator(Aggregate(columns={"t": f"sum({most})"}), rows)


def test_a_part_of_a_sum_may_have_more_digits_than_a_sum() -> None:
    """Parts that fit 64 bits, and parts that do not, add up: what is rounded to 64 bits is the result."""
    large = 1 << 62
    partial = Aggregate(by="k", columns={"total": "sum(n)", "mean": "avg(n)"})
    unifier = partial.unifier("output")
    shares = [[large] * 3, [-large], [-large + 6]]
    rows = [[{"k": "a", "n": value} for value in share] for share in shares]
    parts = [each for share in rows for each in emitted(partition_of(partial), [batch(share)])]
    kinds = {each.to_arrow().column(each.to_arrow().schema.names[1]).type for each in parts}
    assert kinds == {pa.int64(), pa.decimal128(38, 0)}
    (made,) = emitted(unifier, parts)
    assert made.to_pylist() == [{"k": "a", "total": large + 6, "mean": (large + 6) / 5}]


@pytest.mark.parametrize("keys", [2, 1000])
def test_rows_wait_until_they_fill_memory_before_they_are_combined(keys: int) -> None:
    """The result is the same, whether combining saves much or little."""
    calls: list[int] = []

    class Counts(Aggregate):
        """Notes how many rows are combined."""

        held_bytes = 1000

        def combined(self, partial: pa.Table) -> pa.Table:
            calls.append(partial.num_rows)
            return super().combined(partial)

    batches = [
        batch([{"k": f"{(10 * at + row) % keys}", "d": math.nan if at == 7 else 1.0} for row in range(10)])
        for at in range(40)
    ]
    (made,) = emitted(Counts(by="k", columns={"records": "count(*)", "most": "max(d)"}), batches)
    rows = made.to_pylist()
    assert sum(row["records"] for row in rows) == 400 and len(rows) == min(keys, 400)
    assert sum(math.isnan(row["most"]) for row in rows) == min(keys, 10)
    assert 4 <= len(calls) <= 20
    assert 40 <= calls[0] <= 100
