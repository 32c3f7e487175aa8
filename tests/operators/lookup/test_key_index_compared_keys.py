"""Keys of different types are compared as the values they are."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.expressions.sql_types import normal_type
from operators.lookup.key_index import compared_keys, compared_type

WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64())
DECIMALS = tuple(
    pa.decimal128(*digits) for digits in [(1, 0), (20, 0), (38, 0), (10, 2), (38, 1), (38, 30), (38, 38), (20, 19)]
)
FLOATS = (pa.float16(), pa.float32(), pa.float64())
NEAR = (0, 1, 127, 255, 2**24, 2**31, 2**32, 2**53, 2**63, 2**64, 10**19, 10**20, 10**37)


def has_value(number: Fraction, kind: pa.DataType) -> Any:
    """The value of a type that is a number; None where there is none."""
    if pa.types.is_decimal(kind):
        scaled = number * 10**kind.scale
        is_there = scaled.denominator == 1 and abs(scaled) < 10**kind.precision
        return Decimal(f"{scaled.numerator}e-{kind.scale}") if is_there else None
    if pa.types.is_floating(kind):
        try:
            found = pa.array([float(number)]).cast(kind, safe=False)[0].as_py()
        except OverflowError:
            return None
        return found if abs(found) != float("inf") and Fraction(found) == number else None
    if number.denominator != 1:
        return None
    least, most = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if pa.types.is_unsigned_integer(kind):
        least, most = 0, 2**kind.bit_width - 1
    return int(number) if least <= number <= most else None


NUMBERS = st.builds(
    lambda base, sign, off, parts: Fraction(sign * base + off) + Fraction(parts),
    st.sampled_from(NEAR),
    st.sampled_from([-1, 1]),
    st.integers(-2, 2),
    st.sampled_from(["0", "0", "1/2", "1/10", "1/1000000000000000000000000000000"]),
)


@given(st.sampled_from(WHOLE + DECIMALS + FLOATS), st.sampled_from(WHOLE + DECIMALS + FLOATS), st.lists(NUMBERS))
def test_keys_are_equal_if_and_only_if_they_are_the_same_number(
    left: pa.DataType, right: pa.DataType, numbers: list[Fraction]
) -> None:
    """Whatever the types are; with fractions a decimal is compared with a double as a double."""
    kind = compared_type(normal_type(left), normal_type(right))
    assert kind is not None
    if pa.types.is_floating(kind):
        exact = (WHOLE, FLOATS)
        if not any(left in kinds for kinds in exact) or not any(right in kinds for kinds in exact):
            return
    found = []
    for side in (left, right):
        values = [has_value(number, side) for number in numbers]
        keys = compared_keys(pa.array(values, side), kind)
        assert keys.type == kind
        found.append((values, keys.to_pylist()))
    (ours, our_keys), (theirs, their_keys) = found
    for value, key in zip(ours, our_keys, strict=True):
        for other, other_key in zip(theirs, their_keys, strict=True):
            if value is not None and other is not None:
                assert (key is not None and key == other_key) == (Fraction(value) == Fraction(other))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_beyond_the_range_of_a_type_equal_nothing(unit: str, zone: str | None) -> None:
    """Nanoseconds end in the year 2262; times that both types have are equal."""
    ends = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), dt.datetime(2024, 1, 1)]
    kind = compared_type(pa.timestamp("us", zone), pa.timestamp(unit, zone))
    ours = compared_keys(pa.array(ends, pa.timestamp("us", zone)), kind)
    theirs = compared_keys(pa.array(ends[2:], pa.timestamp(unit, zone)), kind)
    assert [each.is_valid for each in ours] == [unit != "ns", unit != "ns", True]
    assert ours[2] == theirs[0]


def test_days_beyond_the_range_of_timestamps_equal_nothing() -> None:
    """A day is compared with its midnight."""
    days = pa.array([2**31 - 1, -(2**31), 1, None], pa.int32()).cast(pa.date32())
    kind = compared_type(pa.date32(), pa.timestamp("ns"))
    assert compared_keys(days, kind).cast(pa.int64()).to_pylist() == [None, None, 86_400 * 10**9, None]


def test_values_that_are_no_numbers_equal_no_whole_number() -> None:
    """Among doubles, and in a dictionary."""
    doubles = pa.array([float("nan"), float("inf"), -float("inf"), None, -0.0, 2.0])
    for values in (doubles, doubles.dictionary_encode()):
        assert compared_keys(values, pa.int64()).to_pylist() == [None, None, None, None, 0, 2]
    assert str(compared_keys(doubles, pa.float64())[0]) == "nan", "NaN equals NaN among doubles"


@given(st.lists(st.integers(-(10**9) + 1, 10**9 - 1)), st.integers(0, 9))
def test_decimals_equal_the_doubles_that_are_written_alike(numbers: list[int], scale: int) -> None:
    """3.07 is 3.07, though no double is exactly that."""
    texts = [f"{number}e-{scale}" for number in numbers]
    decimals = pa.array([Decimal(text) for text in texts], pa.decimal128(9, scale))
    kind = compared_type(decimals.type, pa.float64())
    assert kind == (pa.float64() if scale else decimals.type)
    if scale:
        assert compared_keys(decimals, kind).to_pylist() == [float(text) for text in texts]


def test_every_price_equals_its_double() -> None:
    """Arrow's own cast misses every seventh of the prices up to 10."""
    prices = [f"{number // 100}.{number % 100:02}" for number in range(1000)]
    keys = compared_keys(pa.array(map(Decimal, prices), pa.decimal128(9, 2)), pa.float64())
    assert keys.to_pylist() == list(map(float, prices))
