"""Rounded doubles against Python's decimals of their shortest texts."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.expressions.casting import rounded

EXACT = Context(prec=800)
HALVES = st.tuples(st.integers(-(10**16), 10**16), st.integers(0, 25)).map(
    lambda parts: float(f"{parts[0]}5e-{parts[1]}")
)
"""Numbers with a five at the end, which is rounded away where it is the last digit."""


def wanted(number: float, places: int) -> str:
    """The text of a rounded number; it is no -0."""
    return str(Decimal(repr(number)).quantize(Decimal((0, (1,), -places)), ROUND_HALF_UP, context=EXACT))


@given(
    st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), HALVES), min_size=1, max_size=20),
    st.one_of(st.integers(-3, 6), st.integers(-330, 330)),
)
def test_doubles_are_rounded_by_their_text(numbers: list[float], places: int) -> None:
    """Half away from zero, whatever the double is in binary."""
    found = rounded(pa.array(numbers), places).to_pylist()
    assert list(map(repr, found)) == [repr(float(wanted(number, places)) + 0.0) for number in numbers]


@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.integers(-40, 50)
)
def test_reals_are_rounded_by_the_text_of_their_double(numbers: list[float], places: int) -> None:
    """And once: not to a double first."""
    found = rounded(pa.array(numbers, pa.float32()), places)
    texts = pa.array([wanted(number, places) for number in numbers])
    assert found.to_pylist() == texts.cast(pa.float32()).to_pylist()


@pytest.mark.parametrize(
    ("number", "places", "result"),
    [
        (1.005, 2, 1.01),
        (1.005, 15, 1.005),
        (5.015, 2, 5.02),
        (1.255, 2, 1.26),
        (0.285, 2, 0.29),
        (-0.285, 2, -0.29),
        (1e306, 3, 1e306),
        (1.7976931348623157e308, -308, math.inf),
        (5e-324, 300, 0.0),
        (5e-324, 10**12, 5e-324),
        (5e300, -(10**12), 0.0),
        (123456789012345.67, 1, 123456789012345.7),
    ],
)
def test_known_numbers_are_rounded_as_in_spark(number: float, places: int, result: float) -> None:
    """What Spark 4 gives for each."""
    assert rounded(pa.scalar(number), places).as_py() == result


def test_what_is_no_number_stays_as_it_is() -> None:
    """Nulls, NaN and infinity; a zero loses its sign."""
    found = rounded(pa.array([None, math.nan, math.inf, -math.inf, -0.0, -0.004]), 2)
    assert found.null_count == 1
    assert str(found.to_pylist()) == "[None, nan, inf, -inf, 0.0, 0.0]"
    assert rounded(pa.scalar(None, pa.float32()), 40).as_py() is None
    assert np.isnan(rounded(pa.array([math.nan], pa.float32()), 40)[0].as_py())
