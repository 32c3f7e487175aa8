"""Decimals of texts are those that Python's decimal module makes of them."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.expressions.casting import rescaled
from operators.reader.columns.literals import decimals_of, values_of
from operators.reader.columns.types import ColumnType

DIGITS = st.text("0123456789", max_size=20) | st.sampled_from(["0" * 40, "9" * 38, "1" * 50, "0" * 40 + "1", "14"])
EXPONENTS = st.integers(-90, 90).map(lambda power: f"e{power}") | st.sampled_from(
    ["", "", "", "e+05", "E-007", "e400", "e-400", f"e{'9' * 30}", f"E-{'9' * 5000}", "e" + "0" * 30 + "1"]
)
NUMBERS = st.builds(
    lambda sign, whole, point, behind, exponent: f"{sign}{whole or '0'}{point}{behind if point else ''}{exponent}",
    st.sampled_from(["", "+", "-"]),
    DIGITS,
    st.sampled_from(["", "."]),
    DIGITS,
    EXPONENTS,
)
TYPES = st.integers(1, 38).flatmap(lambda digits: st.tuples(st.just(digits), st.integers(0, digits)))


def expected(text: str, digits: int, scale: int, *, rounds: bool = False) -> Decimal | None:
    """The value of a text; None where the type does not have it."""
    mantissa, _, exponent = text.lower().partition("e")
    power = exponent.lstrip("+-0")
    if len(power) > 9:
        power = "9" * 9
    traps = [InvalidOperation] if rounds else [InvalidOperation, Inexact]
    context = Context(digits, ROUND_HALF_UP, MIN_EMIN, MAX_EMAX, traps=traps)
    written = Decimal(f"{mantissa}e{'-' * exponent.startswith('-')}{power or 0}")
    try:
        return context.quantize(written, Decimal((0, (1,), -scale)))
    except (InvalidOperation, Inexact):
        return None


@given(TYPES, st.lists(NUMBERS, max_size=8))
def test_each_text_is_its_value_or_none(kind: tuple[int, int], texts: list[str]) -> None:
    """Whatever its digits, its exponent and the texts beside it: nothing is rounded, and nothing wraps."""
    values = values_of(pa.array([None, *texts], pa.string())[1:], ColumnType.of("decimal({}, {})".format(*kind)))
    assert values.to_pylist() == [expected(text, *kind) for text in texts]


@given(TYPES, NUMBERS)
def test_a_text_that_is_cut_is_rounded_once(kind: tuple[int, int], text: str) -> None:
    """A digit more than the type has is enough to round it, however many stand behind that."""
    digits, scale = kind
    wide = pa.decimal256(76, max(37, scale + 1))
    try:
        found = rescaled(decimals_of(pa.array([text]), wide, cuts=True), pa.decimal128(digits, scale))[0].as_py()
    except pa.ArrowInvalid:
        found = None
    assert found == expected(text, digits, scale, rounds=True)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1400000000000000000000", "decimal(38, 30)", None),
        ("14e20", "decimal(38, 30)", None),
        ("1" * 70, "decimal(38, 0)", None),
        ("12e-39", "decimal(18, 0)", None),
        ("0." + "0" * 40 + "1", "decimal(9, 2)", None),
        ("0e40", "decimal(38, 0)", Decimal(0)),
        ("0e400", "decimal(9, 2)", Decimal(0)),
        ("0e" + "9" * 20, "decimal(9, 2)", Decimal(0)),
        ("1." + "0" * 80, "decimal(9, 2)", Decimal(1)),
        ("-0." + "1" * 38, "decimal(38, 38)", Decimal("-0." + "1" * 38)),
    ],
)
def test_powers_of_ten_that_arrow_lacks(text: str, kind: str, value: Decimal | None) -> None:
    """Arrow makes other numbers of these, or 0, or refuses what is 0."""
    for texts in ([text], ["1", text, None, "-0.0"]):
        assert values_of(pa.array(texts), ColumnType.of(kind))[texts.index(text)].as_py() == value


@pytest.mark.parametrize("end", ["_0", "\u0967", "e", "e1_0", "-1", "..", " ", "nan"])
def test_what_is_no_number_is_no_decimal(end: str) -> None:
    """Python takes some of these, which are read by Python because they are long."""
    with pytest.raises(pa.ArrowInvalid, match="no number"):
        decimals_of(pa.array(["0" * 100 + end]), pa.decimal128(9, 2))
