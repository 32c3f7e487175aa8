"""Groups in shares are those of one hash table, whatever the types of the keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.aggregate.hash_groups import Shares, _folded, _hashes, grouped

ROWS = 300_000
NUMBERS = np.random.default_rng(1).integers(0, ROWS // 2, ROWS)

KEYS: dict[str, list[Any]] = {
    "numbers": [pa.array(NUMBERS)],
    "numbers with nulls": [pa.array(NUMBERS, mask=NUMBERS < 1000)],
    "small numbers and truth values": [pa.array(NUMBERS.astype(np.uint16)), pa.array(NUMBERS > 70_000)],
    "doubles": [pa.array(np.where(NUMBERS < 1000, np.nan, NUMBERS * 0.1))],
    "doubles with nulls": [pa.array(NUMBERS * 0.1, mask=NUMBERS < 1000)],
    "texts": [pa.array(np.where(NUMBERS < 1000, "", NUMBERS.astype("U8")).tolist(), pa.string())],
    "texts and bytes with nulls": [
        pa.array([None if number < 1000 else str(number % 500) for number in NUMBERS.tolist()]),
        pa.array([None if number % 7 == 0 else b"%d of many" % number for number in NUMBERS.tolist()]),
    ],
    "decimals": [pa.array(NUMBERS).cast(pa.decimal128(19, 0))],
    "times": [pa.array(NUMBERS).cast(pa.timestamp("us"))],
    "wide decimals": [pa.array(NUMBERS).cast(pa.decimal256(40, 0))],
}


def combined(rows: pa.Table) -> pa.Table:
    """One row for each group: keys, a sum and a minimum."""
    names = rows.schema.names
    found = grouped(rows, names[:-2], [("sum", "sum"), ("min", "min")])
    return found.rename_columns([name.removesuffix("_sum").removesuffix("_min") for name in found.schema.names])


@pytest.mark.parametrize("name", KEYS)
def test_groups_in_shares_are_those_of_one_table(name: str) -> None:
    """Each once, with all of its rows, from batches of any length that come before and after rows are divided."""
    names = [f"key {number}" for number in range(len(KEYS[name]))]
    numbers = pa.array(np.arange(ROWS))
    table = pa.table([*KEYS[name], numbers, numbers], [*names, "sum", "min"])
    shares = Shares(names, combined)
    for start, end in ((0, 7), (7, 290_000), (290_000, ROWS)):
        shares.add(table.slice(start, end - start))
        shares.combine()
    found = shares.whole()
    assert shares.rows == len(found)
    # Arrow's own hash of doubles is slow.
    plain = [key.cast(pa.string()) if pa.types.is_floating(key.type) else key for key in table.select(names).columns]
    wanted = combined(pa.table([*plain, numbers, numbers], table.schema.names))
    assert len(found) == len(wanted) > ROWS // 5
    # The first row of a group belongs to no other group, so that it stands for the keys, of which some are NaN.
    assert found.sort_by("min").select(["min", "sum"]).equals(wanted.sort_by("min").select(["min", "sum"]))


def test_keys_of_several_types_are_divided_in_one() -> None:
    """A negative number of 32 bits has other bits than the same one of 64."""
    keys = pa.array(NUMBERS - ROWS // 4)
    shares = Shares(["key"], combined)
    for kind in (pa.int32(), pa.int64(), pa.int32()):
        shares.add(pa.table([keys.cast(kind), keys, keys], ["key", "sum", "min"]))
        shares.combine()
    found = shares.whole().sort_by("key")
    assert found["key"].to_pylist() == sorted(set(keys.to_pylist()))
    assert pc.sum(found["sum"]) == pa.scalar(3 * int(keys.to_numpy().sum()))


def test_what_is_taken_is_gone() -> None:
    """Other rows may come then."""
    shares = Shares(["key"], combined)
    for number in (1, 2):
        shares.add(pa.table({"key": [number], "sum": [number], "min": [number]}))
        assert [table.to_pylist() for table in shares.take()] == [[{"key": number, "sum": number, "min": number}]]
        assert (shares.rows, shares.nbytes, [*shares.take()]) == (0, 0, [])


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=8), st.integers(0, 7))
def test_equal_keys_are_in_one_share_wherever_they_are(texts: list[bytes], first: int) -> None:
    """The bytes around a text, and the rows before it, do not count."""
    together = _hashes([pa.array(texts).slice(first % len(texts))])
    alone = [_hashes([pa.array([text])])[0] for text in texts[first % len(texts) :]]
    assert together.tolist() == alone


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.timestamp("ns"), pa.time64("us")])
def test_folded_values_are_unfolded_again(kind: pa.DataType) -> None:
    """With their nulls, also in a part of an array; and doubles that are whole numbers differ in their lower halves."""
    values = pa.array([None, 0, 1, 2**40, 2**41, None], pa.int64()).cast(pa.int64()).view(kind).slice(1)
    assert _folded(_folded(values, pa.int64()), kind).equals(values)
    doubles = _folded(pa.array(np.arange(1000.0)), pa.int64()).to_numpy()
    assert len(np.unique(doubles & 0xFFFFFFFF)) > 900


def test_a_few_rows_are_grouped_in_the_order_of_their_first_rows() -> None:
    """As Arrow gives them."""
    table = pa.table({"k": ["b", "a", "b"], "x": [Decimal(1), Decimal(2), Decimal(3)]})
    assert grouped(table, ["k"], [("x", "max")]).to_pylist() == [
        {"k": "b", "x_max": Decimal(3)},
        {"k": "a", "x_max": Decimal(2)},
    ]
