"""Values of Python keep the type of their column where nothing is lost by it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dagflow.execution.typed_values import with_type

MOMENT = datetime(2026, 1, 2, 3, 4, 5)
STRUCT = pa.struct([pa.field("x", pa.int32()), pa.field("t", pa.timestamp("ms", "UTC"))])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.decimal128(9, 2)), [[Decimal("1.10")], [], None, [None]]),
        (pa.list_(pa.decimal128(9, 2)), [[], []]),
        (pa.list_(pa.field("z", pa.int16(), metadata={"a": "b"})), [None, [1, 2], [3]]),
        (pa.large_list(pa.large_string()), [["a"], None, []]),
        (pa.list_(pa.list_(pa.int8())), [[[1], None, []], None]),
        (pa.list_(pa.float32()), [[0.5, None], [float("inf")]]),
        (pa.list_(pa.timestamp("ns")), [[MOMENT]]),
        (STRUCT, [{"x": 1, "t": MOMENT.replace(tzinfo=UTC)}, None, {"x": None, "t": None}]),
        (pa.list_(STRUCT), [[{"x": 1, "t": None}], []]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1), ("b", None)], None, []]),
    ],
)
def test_nested_values_keep_a_type_in_which_they_fit(kind: pa.DataType, values: list[Any]) -> None:
    """Whatever the other values of the batch are."""
    array = with_type(values, kind)
    assert array is not None
    array.validate(full=True)
    assert (array.type, array.to_pylist()) == (kind, values)


def test_members_that_a_value_lacks_are_null() -> None:
    """As Arrow has them."""
    array = with_type([{"x": 1}, {}], STRUCT)
    assert array is not None
    assert array.to_pylist() == [{"x": 1, "t": None}, {"x": None, "t": None}]


def test_a_null_may_stand_for_a_struct_whose_member_is_required() -> None:
    """It is the member of a struct that is there that must be there."""
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    array = with_type([None, {"x": 1}], kind)
    assert array is not None
    assert (array.type, array.to_pylist()) == (kind, [None, {"x": 1}])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (STRUCT, [{"x": 1, "more": 1}]),
        (STRUCT, [{"x": 1 << 40}]),
        (STRUCT, [{"t": MOMENT}]),
        (STRUCT, [{"t": MOMENT.replace(tzinfo=UTC, microsecond=1)}]),
        (STRUCT, [[("x", 1)]]),
        (pa.list_(pa.float32()), [[0.1]]),
        (pa.list_(pa.float64()), [[True]]),
        (pa.list_(pa.int8()), [(1,)]),
        (pa.list_(pa.date32()), [[MOMENT], [date(2026, 1, 1)]]),
        (pa.list_(pa.decimal128(9, 2)), [[Decimal("1.005")]]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1, 2)]]),
        (pa.map_(pa.string(), pa.int8()), [[(None, 1)]]),
        (pa.map_(pa.string(), pa.int8()), [{"a": 1}]),
        (pa.list_(pa.field("item", pa.int64(), nullable=False)), [[None]]),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [[("a", None)]]),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), [{"x": None}]),
        (pa.list_(pa.string()), [["\udcff"]]),
    ],
)
def test_nested_values_that_would_lose_something_are_not_made(kind: pa.DataType, values: list[Any]) -> None:
    """Arrow by itself drops members, digits and times silently."""
    assert with_type(values, kind) is None
