"""Numbers that are rounded and divided in expressions, with the values and types of Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from operators.expressions.expression import Expression
from operators.expressions.syntax import ExpressionError
from tests.sql.cases import RefusedRecord, computed

ONE = pa.RecordBatch.from_pydict(
    {
        "big": pa.array([2**63 - 1]),
        "small": pa.array([5], pa.int32()),
        "tiny": pa.array([100], pa.int8()),
        "half": pa.array([Decimal("0.5")], pa.decimal128(38, 38)),
        "long": pa.array([Decimal("70000000000000000000000000000000")], pa.decimal128(38, 0)),
        "bit": pa.array([Decimal("-3E-20")], pa.decimal128(30, 20)),
        "price": pa.array([Decimal("55.55")], pa.decimal128(4, 2)),
        "hard": pa.array([Decimal("8589.93459199999999999943")], pa.decimal128(38, 20)),
    }
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("round(1.005e0, 2)", 1.01),
        ("round(1e306, 3)", 1e306),
        ("round(small, -19)", 0),
        ("round(small, -1)", 10),
        ("round(small, -99)", 0),
        ("round(cast(small as bigint), -19)", 0),
        ("round(tiny, -2)", 100),
        ("round(tiny, -3)", 0),
        ("round(cast('2000000000' as int), -10)", 0),
        ("round(price, -2)", Decimal(100)),
        ("round(price, -5)", Decimal(0)),
        ("round(price, -50)", Decimal(0)),
        ("round(price, 50)", Decimal("55.55")),
        ("round(hard, 6)", Decimal("8589.934592")),
        ("big / half", Decimal("18446744073709551614")),
        ("cast(sign(-0e0) as string)", "-0.0"),
        ("long + bit", Decimal("70000000000000000000000000000000")),
    ],
)
def test_values_are_those_of_spark(text: str, value: Any) -> None:
    """Whatever the digits are."""
    assert computed(text, ONE) == [value]


@pytest.mark.parametrize(("places", "digits"), [(-1, 3), (-2, 3), (-5, 6), (-50, 38)])
def test_a_decimal_rounded_to_tens_has_room_for_their_zeros(places: int, digits: int) -> None:
    """The types are those of Spark."""
    assert Expression.of(f"round(price, {places})").bind(ONE.schema).type == pa.decimal128(digits, 0)


def test_a_whole_number_that_is_rounded_out_of_its_type_is_refused() -> None:
    """As what else does not fit is."""
    assert computed("round(big, -19)", ONE) == [RefusedRecord("9223372036854775807 does not fit bigint")]


@pytest.mark.parametrize("text", ["half + long", "long - half", "half * long", "long / half"])
def test_decimals_with_too_many_digits_are_reported_before_a_run(text: str) -> None:
    """A sum can have 77 digits, and Arrow's decimals have 76."""
    with pytest.raises(ExpressionError, match="has too many digits; cast one to a decimal with fewer"):
        Expression.of(text).bind(ONE.schema)
