"""Groups that machine code keeps are those of Arrow, with the same values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.aggregate.aggregate_calls import with_room
from operators.aggregate.hash_groups import Shares

pytest.importorskip("numba", reason="needs numba")

from operators.aggregate import group_kernels, hash_groups  # compiles with numba
from operators.aggregate.group_kernels import HashTable

KEYS = [
    *(pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("us", "UTC"), pa.time64("ns")),
    *(pa.int8(), pa.uint16(), pa.int32(), pa.date32(), pa.float32()),
]
VALUES = [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.float64()]
FUNCTIONS = [("a", "sum"), ("b", "min"), ("b", "max")]


def folded(tables: Iterable[pa.Table], functions: list[tuple[str, str]]) -> pa.Table:
    """The groups that one hash table makes of all tables."""
    first, *rest = tables
    groups = HashTable.of(first.schema, ["k"], functions)
    assert groups is not None
    assert all(groups.add(table) for table in (first, *rest))
    return pa.table(groups.columns(), ["k", *(f"{name}_{function}" for name, function in functions)])


def by_arrow(table: pa.Table, functions: list[tuple[str, str]]) -> pa.Table:
    """The groups that Arrow makes, in the order of the columns of folded()."""
    found = table.group_by("k", use_threads=False).aggregate(functions)
    for at, field in enumerate(found.schema):
        if field.type == pa.uint64() and field.name.endswith("_sum"):
            found = found.set_column(at, field.name, found.column(at).cast(pa.int64()))
    return found.select(["k", *(f"{name}_{function}" for name, function in functions)])


def shown(table: pa.Table) -> str:
    """Its types, and its values as text: NaN is not equal to itself."""
    return str(table.schema) + str([column.combine_chunks().to_string(window=999) for column in table.columns])


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_groups_are_those_of_arrow(key: pa.DataType, value: pa.DataType) -> None:
    """Whatever the bits of the keys, the types of the values, and the batches."""
    dice = np.random.default_rng(1)
    some = [0.0, 0.1, 2.5, -1e300, math.inf, math.nan] if value == pa.float64() else [0, 1, 7, 127]
    shifts = [shift for shift in (0, 3, 20, 40, 52) if shift < key.bit_width - 3]
    bits = dice.integers(0, 9, 500) << dice.choice(shifts, 500)
    keys = pa.array(bits).cast(pa.type_for_alias(f"uint{key.bit_width}"), safe=False).view(key)
    columns = [keys, *(pa.array(dice.choice(some, 500)).cast(value) for _ in "ab")]
    table = pa.table(columns, ["k", "a", "b"])
    found = folded([table.slice(0, 1), table.slice(1, 300), table.slice(301)], FUNCTIONS)
    assert shown(found.sort_by("k")) == shown(by_arrow(table, FUNCTIONS).sort_by("k"))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC"), pa.time32("s"), pa.date64()])
def test_the_first_and_the_last_time_are_those_of_arrow(kind: pa.DataType) -> None:
    """Times are whole numbers with a sign."""
    integer = pa.type_for_alias(f"int{kind.bit_width}")
    table = pa.table([[1, 2, 1, 2], pa.array([3, 0, 1, 5], integer).view(kind)], ["k", "a"])
    functions = [("a", "min"), ("a", "max")]
    assert shown(folded([table], functions)) == shown(by_arrow(table, functions))


@pytest.mark.parametrize("function", ["sum", "min", "max"])
def test_zeros_keep_the_sign_that_arrow_gives_them(function: str) -> None:
    """In whatever order both zeros, other numbers and NaN come."""
    some = [0.0, -0.0, 1.0, -1.0, math.nan]
    rows = [(key, value) for key, values in enumerate(itertools.product(some, repeat=3)) for value in values]
    table = pa.table([pa.array([key for key, _ in rows]), pa.array([value for _, value in rows])], ["k", "a"])
    functions = [("a", function)]
    assert shown(folded([table], functions)) == shown(by_arrow(table, functions))


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(-9, 9)), min_size=1, max_size=400), st.integers(1, 99))
def test_groups_in_shares_are_those_of_arrow(rows: list[tuple[int, int]], step: int) -> None:
    """Many groups are divided, here soon; a double is added up in the order of its rows."""
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], ["k", "a"])
    table = table.append_column("b", table["a"].cast(pa.float64()))
    functions = [("a", "sum"), ("b", "sum"), ("b", "max")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_kernels, "_STAGED_ROWS", 8)
        patch.setattr(group_kernels, "_SHARED_GROUPS", 4)
        patch.setattr(group_kernels, "_TABLE_ROWS", 3)
        found = folded((table.slice(start, step) for start in range(0, len(table), step)), functions)
    assert shown(found.sort_by("k")) == shown(by_arrow(table, functions).sort_by("k"))


def test_only_numbers_are_folded() -> None:
    """Arrow does the rest: texts, decimals, truth values, counts of rows, several keys, and none."""
    rows: dict[str, list[Any]] = {"k": [1, 2, 1], "a": [1.5, 0.5, 0.5]}
    table = pa.table(rows)
    others: list[dict[str, list[Any]]] = [
        {name: some} for name in "ak" for some in (["x", "y", "z"], [True, False, True])
    ]
    assert HashTable.of(table.schema, ["k"], [("a", "sum")]) is not None
    assert not any(HashTable.of(pa.table(rows | other).schema, ["k"], [("a", "min")]) for other in others)
    decimals = table.set_column(0, "k", table["k"].cast(pa.decimal128(19, 0)))
    unsigned = table.set_column(1, "a", table["k"].cast(pa.uint64()))
    for other, keys, function in (
        *((decimals, ["k"], "sum"), (unsigned, ["k"], "max"), (table, ["k", "a"], "sum"), (table, [], "sum")),
        (table, ["k"], "mean"),
    ):
        assert HashTable.of(other.schema, keys, [("a", function)]) is None


def test_rows_with_nulls_or_too_large_sums_are_not_taken() -> None:
    """What was folded before stays."""
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
    groups = HashTable.of(schema, ["k"], [("a", "sum")])
    assert groups is not None
    assert groups.add(pa.table({"k": [1], "a": [2**62]}))
    for rows in (
        {"k": [None], "a": [1]},
        {"k": [1], "a": [None]},
        {"k": [1], "a": [2**62]},
        {"k": [2], "a": [-(2**62)]},
    ):
        assert not groups.add(pa.table(rows, schema))
    assert not groups.add(pa.table({"k": [1], "a": [0.5]}))
    assert groups.add(pa.table({"k": [2], "a": [2**62 - 1]}))
    assert [column.to_pylist() for column in groups.columns()] == [[1, 2], [2**62, 2**62 - 1]]


def test_keys_that_differ_in_any_bits_are_each_found() -> None:
    """Although all slots before and behind those of others are full."""
    for shift in range(0, 45, 11):
        keys = np.arange(1 << 15, dtype=np.uint64).repeat(2) << np.uint64(shift)
        table = pa.table([pa.array(keys), pa.array(np.ones(len(keys), np.int8))], ["k", "a"])
        found = folded([table], [("a", "sum")]).sort_by("k")
        assert found["k"].to_pylist() == keys[::2].tolist()
        assert found["a_sum"].unique().to_pylist() == [2]


def test_what_cannot_be_folded_goes_to_arrow_with_all_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A null, then rows like the first ones: each group is there once."""
    monkeypatch.setattr(hash_groups._HASH_TABLE, "_left_bytes", 1)
    functions = [("a:whole", "sum")]

    def combined(table: pa.Table) -> pa.Table:
        found = hash_groups.grouped(with_room(table, ["a:whole"]), ["k"], functions)
        return found.rename_columns(["k", "a:whole"] if found.schema.names[0] == "k" else ["a:whole", "k"])

    shares = Shares(["k"], combined, lambda schema: functions)
    added: list[dict[str, list[Any]]] = [{"k": [1, 2], "a:whole": [1, 2]}, {"k": [1, None], "a:whole": [3, 4]}]
    for rows in [added[0], added[0], added[1], added[0]]:
        shares.add(pa.table(rows, pa.schema([("k", pa.int64()), ("a:whole", pa.int64())])))
    found = shares.whole().select(["k", "a:whole"]).sort_by("k")
    assert found.to_pydict() == {"k": [1, 2, None], "a:whole": [6, 6, 4]}
    assert shares.rows == 3
