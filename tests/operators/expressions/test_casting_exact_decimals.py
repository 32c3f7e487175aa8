"""Decimals against Python's, where Arrow's own division gives wrong digits."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.expressions.casting import quotient, rescaled, whole_ceil, whole_floor, whole_part

EXACT = Context(prec=200)
DIVISORS = [(3 * 10**10 + 7, 96), (10**20 - 1, 64), (2**65 - 59, 64)]
"""With the bits that stand behind the part of the dividend; no divisor divides by five."""


def hard(divisor: int) -> st.SearchStrategy[int]:
    """Numbers of up to 38 digits whose upper part leaves a remainder just below the divisor."""
    most = (10**38 >> 32) // divisor - 1
    parts = st.tuples(st.integers(0, most), st.integers(1, 1000), st.integers(0, 2**32 - 1))
    return parts.map(lambda part: (part[0] * divisor + divisor - part[1]) << 32 | part[2])


def hard_dividend(divisor: int, left: int, bits: int) -> int:
    """One that is so with as many zeros behind it as Arrow writes there."""
    zeros = len(str(divisor)) + 1
    quotient_of_part = -(divisor - left) * pow(divisor, -1, 5**zeros) % 5**zeros
    dividend: int = (quotient_of_part * divisor + divisor - left) << bits
    power: int = 10**zeros
    assert dividend % power == 0
    return dividend // power


def signed(sizes: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return st.builds(int.__mul__, sizes, st.sampled_from([-1, 1]))


def shifted(number: int, scale: int) -> Decimal:
    return EXACT.scaleb(Decimal(number), -scale)


def rounded(value: Decimal, scale: int, mode: str = ROUND_HALF_UP) -> Decimal:
    return value.quantize(Decimal((0, (1,), -scale)), mode, context=EXACT)


@given(st.data(), st.integers(0, 38), st.integers(-39, 38))
def test_decimals_are_rounded_half_away_from_zero(data: st.DataObject, scale: int, wanted: int) -> None:
    """To any number of digits, also tens and hundreds."""
    wanted = min(wanted, scale)
    sizes = [st.integers(0, 10**38 - 1), *(hard(10**digits) for digits in (scale - wanted, 14) if 0 < digits < 28)]
    values = [shifted(each, scale) for each in data.draw(st.lists(signed(st.one_of(sizes)), min_size=1, max_size=20))]
    found = rescaled(pa.array(values, pa.decimal128(38, scale)), pa.decimal256(76, wanted))
    assert found.to_pylist() == [rounded(each, wanted) for each in values]


@pytest.mark.parametrize("digits", range(10, 28))
def test_a_part_that_leaves_nearly_the_divisor_is_rounded(digits: int) -> None:
    """Whether Arrow divides by a power of ten to find the digits that stay, or by a tenth of it."""
    parts = [power - left for power in (10**digits, 10 ** (digits - 1)) for left in (1, 2, 3)]
    values = [shifted(sign * (part << 32 | 7), 30) for part in parts for sign in (-1, 1)]
    found = rescaled(pa.array(values, pa.decimal128(38, 30)), pa.decimal128(38, 30 - digits))
    assert found.to_pylist() == [rounded(each, 30 - digits) for each in values]


@given(st.data(), st.integers(0, 38))
def test_fractions_are_cut_off_down_and_up(data: st.DataObject, scale: int) -> None:
    """Floor and ceil differ from the whole part on one side of zero each."""
    sizes = [st.integers(0, 10**38 - 1), *([hard(10**scale)] if 0 < scale < 28 else [])]
    values = [shifted(each, scale) for each in data.draw(st.lists(signed(st.one_of(sizes)), min_size=1, max_size=20))]
    array = pa.array([*values, None], pa.decimal128(38, scale))
    for function, mode in ((whole_part, ROUND_DOWN), (whole_floor, ROUND_FLOOR), (whole_ceil, ROUND_CEILING)):
        assert function(array).to_pylist() == [*(rounded(each, 0, mode) for each in values), None]


def assert_divided(tops: list[int], divisor: int, digits: int) -> None:
    """Quotients are those of Python, where the type of the dividends has some digits."""
    found = quotient(
        pa.array([*map(Decimal, tops), None], pa.decimal256(digits, 0)),
        pa.array([Decimal(divisor)] * (len(tops) + 1), pa.decimal256(len(str(divisor)), 0)),
        pa.decimal128(38, 6),
    )
    wanted = [rounded(EXACT.divide(Decimal(top), Decimal(divisor)), 6) for top in tops]
    assert found.to_pylist() == [*wanted, None]


@pytest.mark.parametrize("left", range(1, 6))
@pytest.mark.parametrize(("divisor", "bits"), DIVISORS)
def test_a_part_that_leaves_nearly_the_divisor_is_divided(divisor: int, bits: int, left: int) -> None:
    """What Arrow gives is checked; types of too many digits for that are divided by Python."""
    dividend = hard_dividend(divisor, left, bits)
    for digits in (len(str(dividend)), 60):
        assert_divided([dividend, -dividend, 1, 0], divisor, digits)


@given(
    st.lists(signed(st.integers(0, 10**29 - 1)), min_size=1), st.integers(10**6, 10**22 - 1), st.sampled_from([29, 60])
)
def test_quotients_are_those_of_python(tops: list[int], divisor: int, digits: int) -> None:
    """Rounded half away from zero."""
    assert_divided(tops, divisor, digits)


@pytest.mark.parametrize("digits", [20, 53])
def test_a_division_by_zero_has_no_quotient(digits: int) -> None:
    """There is a null, whether Arrow or Python divides."""
    top, zero = pa.array([Decimal(1)], pa.decimal256(digits, 0)), pa.array([Decimal(0)], pa.decimal256(20, 0))
    assert quotient(top, zero, pa.decimal128(38, 6)).to_pylist() == [None]


def test_a_scalar_divides_an_array_and_is_divided_by_one() -> None:
    """As operands that are written in an expression are."""
    three, two = pa.scalar(Decimal(3), pa.decimal256(53, 0)), pa.scalar(Decimal(2), pa.decimal256(22, 0))
    both = pa.array([Decimal(2), None], two.type)
    assert quotient(three, both, pa.decimal128(38, 6)).to_pylist() == [Decimal("1.5"), None]
    assert quotient(pa.array([Decimal(3), None], three.type), two, pa.decimal128(38, 6)).to_pylist() == [
        Decimal("1.5"),
        None,
    ]
