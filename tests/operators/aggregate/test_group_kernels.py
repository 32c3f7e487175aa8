"""Groups that machine code numbers are those of Arrow, with the same values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.aggregate.hash_groups import _are_numbers, _by_number

pytest.importorskip("numba", reason="needs numba")

from operators.aggregate.group_kernels import numbered  # compiles with numba

KEYS = [pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("us", "UTC"), pa.time64("ns")]
VALUES = [pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64(), pa.float64()]
FUNCTIONS = [("a", "sum"), ("b", "min"), ("b", "max")]


@pytest.mark.parametrize("value", VALUES, ids=str)
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_numbered_groups_are_those_of_arrow(key: pa.DataType, value: pa.DataType) -> None:
    """Whatever the bits of the keys, the types of the values, and the batches."""
    dice = np.random.default_rng(1)
    some = [0.0, 0.1, 2.5, -1e300, math.inf, math.nan] if value == pa.float64() else [0, 1, 7, 127]
    keys = dice.integers(0, 9, 500) << dice.choice([0, 20, 40, 52], 500)
    columns = [pa.array(keys).view(key), *(pa.array(dice.choice(some, 500)).cast(value) for _ in "ab")]
    rows = pa.table(columns, ["k", "a", "b"])
    table = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 300), rows.slice(301)])
    assert _are_numbers(table, "k", FUNCTIONS)
    wanted = table.group_by("k", use_threads=False).aggregate(FUNCTIONS).select(["k", "a_sum", "b_min", "b_max"])
    assert shown(_by_number(table, "k", FUNCTIONS, numbered).sort_by("k")) == shown(wanted.sort_by("k"))


@pytest.mark.parametrize("function", ["sum", "min", "max"])
def test_zeros_keep_the_sign_that_arrow_gives_them(function: str) -> None:
    """In whatever order both zeros, other numbers and NaN come."""
    some = [0.0, -0.0, 1.0, -1.0, math.nan]
    rows = [(key, value) for key, values in enumerate(itertools.product(some, repeat=3)) for value in values]
    table = pa.table([pa.array([key for key, _ in rows]), pa.array([value for _, value in rows])], ["k", "a"])
    wanted = table.group_by("k", use_threads=False).aggregate([("a", function)])
    assert shown(_by_number(table, "k", [("a", function)], numbered)) == shown(wanted)


def shown(table: pa.Table) -> str:
    """Its types, and its values as text: NaN is not equal to itself."""
    return str(table.schema) + str([column.combine_chunks().to_string(window=999) for column in table.columns])


def test_only_numbers_without_nulls_are_folded() -> None:
    """Arrow does the rest: nulls, texts, decimals, truth values, counts of rows, and what has no row."""
    rows: dict[str, list[Any]] = {"k": [1, 2, 1], "a": [1.5, 0.5, 0.5]}
    others: list[dict[str, list[Any]]] = [
        {"a": ["x", "y", "z"]},
        {"a": [True, False, True]},
        {"a": [1, None, 1]},
        {"k": [1, None, 1]},
    ]
    assert _are_numbers(pa.table(rows), "k", [("a", "sum")])
    assert not any(_are_numbers(pa.table(rows | other), "k", [("a", "min")]) for other in others)
    assert not _are_numbers(pa.table(rows).slice(3), "k", [("a", "sum")])
    assert not _are_numbers(pa.table(rows), "k", [([], "count_all")])
    assert not _are_numbers(pa.table(rows), "k", [("a", "mean")])


def test_keys_that_differ_in_any_bits_take_few_slots_in_turn() -> None:
    """Each key is found although all slots before and behind those of others are full."""
    for shift in range(0, 45, 11):
        keys = np.arange(1 << 12, dtype=np.uint64).repeat(2) << np.uint64(shift)
        numbers, firsts = numbered(keys)
        assert firsts.tolist() == list(range(0, len(keys), 2))
        assert np.array_equal(keys[firsts][numbers], keys)
