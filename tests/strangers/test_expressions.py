"""Expressions at the edges: long decimals, numbers that are none, the largest ones, and nulls without a type."""

from __future__ import annotations

import itertools
import math
from datetime import date, datetime
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

from dagflow.testing.apps import with_types_of
from operators.expressions.expression import Expression
from operators.expressions.functions import FUNCTIONS, OPERATORS
from operators.expressions.syntax import ExpressionError
from operators.expressions.vectors import Rows
from tests.sql.cases import computed

DIGITS = "12345678901234567890123456789012345678"
ONE = pa.RecordBatch.from_pydict(
    {
        "i": pa.array([1], pa.int32()),
        "x": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "d": [1.5],
        "s": ["a"],
        "b": [True],
        "day": [date(2024, 1, 1)],
        "ts": [datetime(2024, 1, 1)],
        "at": pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC")),
        "length": pa.array([1], pa.duration("us")),
        "clock": pa.array([1], pa.time64("us")),
        "raw": [b"1"],
        "list": [[1]],
        "nothing": pa.nulls(1),
    }
)
LITERALS = ["null", "2", "'month'", "interval '1' day"]


@pytest.mark.parametrize("digits", [1, 27, 28, 29, 37, 38])
@pytest.mark.parametrize("behind", [0, 1, 20])
def test_a_negative_literal_keeps_its_digits(digits: int, behind: int) -> None:
    """It is the number that is written, whatever Python rounds to."""
    whole = max(digits - behind, 0)
    text = f"{DIGITS[:whole]}.{DIGITS[whole:digits]}" if behind else DIGITS[:digits]
    with localcontext(prec=5):
        assert computed(f"-{text}", ONE) == [Decimal(f"-{text}")]


def test_a_number_that_no_double_holds_is_a_mistake() -> None:
    """It is not taken for infinity, which would make conditions true or false without a word."""
    with pytest.raises(ExpressionError, match="1e309 is larger than any double, at column 6"):
        Expression.of("d < -1e309").bind(ONE.schema)


def test_rows_that_a_test_expects_may_have_long_decimals() -> None:
    """A decimal column with 38 digits is compared with a number in YAML as it is written."""
    rows = [{"x": Decimal(f"{DIGITS[:30]}.25")}]
    assert with_types_of([{"x": int(DIGITS[:30])}], rows) == [{"x": f"{DIGITS[:30]}.00"}]


@pytest.mark.parametrize("base", [1.0, -1.0, 2.0, 0.5, -2.0, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("exponent", [math.nan, math.inf, -math.inf, 0.0, 0.5])
def test_power_is_a_number_only_where_java_has_one(base: float, exponent: float) -> None:
    """One to the power of NaN, and plus or minus one to that of an infinity, is NaN; anything to that of 0 is 1."""
    rows = pa.RecordBatch.from_pydict({"a": [base, None], "n": [exponent, exponent]})
    is_none = math.isnan(exponent) or (abs(base) == 1 and math.isinf(exponent))
    is_none |= math.isnan(base) and exponent != 0
    is_none |= base < 0 and exponent == 0.5
    found, null = computed("power(a, n)", rows)
    assert null is None
    assert math.isnan(found) == is_none
    assert is_none or found == base**exponent


@pytest.mark.parametrize("kind", ["double", "real"])
def test_the_largest_whole_number_comes_back_from_a_double(kind: str) -> None:
    """It becomes 2 to the power of 63 there, which is the largest one again; the next double does not fit."""
    largest, smallest = 2**63 - 1, -(2**63)
    rows = pa.RecordBatch.from_pydict({"n": [largest, smallest, None]})
    assert computed(f"cast(cast(n as {kind}) as bigint)", rows) == [largest, smallest, None]
    beyond, *others = computed("floor(cast(n as double))", rows)
    assert beyond == "9.223372036854776e+18 does not fit bigint"  # as in Spark
    assert others == [smallest, None]
    with_next = pa.RecordBatch.from_pydict({"d": [math.nextafter(2.0**63, math.inf), 2.0**31]})
    assert "does not fit bigint" in str(computed("cast(d as bigint)", with_next)[0])
    assert "does not fit int" in str(computed("cast(d as int)", with_next)[1])


def calls_with_a_null() -> list[str]:
    """Each function and operator, with a null and values of each type."""
    values = [*LITERALS, "i", "s", "day", "ts", "nothing"]
    texts = []
    for name, function in FUNCTIONS.items():
        for count in range(function.least, (function.most or 2) + 1):
            for position, other in itertools.product(range(count), values):
                arguments = [other] * count
                arguments[position] = "null"
                texts.append(f"{name}({', '.join(arguments)})")
    for name, other in itertools.product(OPERATORS, values):
        if name in ("not", "negative", "is null"):
            texts += ["not null", "- null", "null is null"]
        else:
            texts += [f"null {name} {other}", f"{other} {name} null"]
    for kind in ("int", "double", "decimal(9, 2)", "boolean", "text", "date", "timestamp"):
        texts.append(f"cast(null as {kind})")
    for unit, other in itertools.product(("year", "month", "hour", "second"), values):
        texts += [f"extract({unit} from {other})", f"date_trunc('{unit}', {other})"]
    return texts


def test_a_null_without_a_type_is_taken_everywhere() -> None:
    """Every call has a value of its type, or a mistake in words; Arrow and DuckDB are not asked what they cannot do."""
    for text in calls_with_a_null():
        try:
            bound = Expression.of(text).bind(ONE.schema)
        except ExpressionError:
            continue
        found: Any = bound.compute(Rows(ONE))
        assert found.values.type == bound.type, text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ts + null", pa.timestamp("us")),
        ("null + ts", pa.timestamp("us")),
        ("at - null", pa.timestamp("us", "UTC")),
        ("null - ts", pa.duration("us")),
        ("day + null", pa.date32()),
        ("dayofweek(null)", pa.int32()),
        ("extract(hour from nothing)", pa.int32()),
        ("date_trunc('month', null)", pa.timestamp("us")),
        ("add_months(null, null)", pa.date32()),
    ],
)
def test_a_null_beside_a_moment_is_null(text: str, kind: pa.DataType) -> None:
    """It stands for whatever is expected there."""
    assert Expression.of(text).bind(ONE.schema).type == kind
    assert computed(text, ONE) == [None]


@pytest.mark.parametrize("text", ["day - clock", "clock + null", "clock - ts", "lpad(s, interval '1' day)"])
def test_a_type_that_does_not_fit_beside_a_moment_is_named(text: str) -> None:
    """Times of day are no moments, and intervals no numbers."""
    with pytest.raises(ExpressionError, match=r"and this is time64|dates and timestamps|must be a whole number"):
        Expression.of(text).bind(ONE.schema)


@pytest.mark.parametrize("name", ["least", "greatest"])
def test_of_equal_values_the_first_is_taken(name: str) -> None:
    """Both zeros of doubles are equal, and a division shows which one it is."""
    rows = pa.RecordBatch.from_pydict({"a": [0.0, -0.0, None], "b": [-0.0, 0.0, -0.0]})
    assert computed(f"power({name}(a, b), -1)", rows) == [math.inf, -math.inf, -math.inf]


def test_decimals_of_different_types_are_compared_with_all_digits() -> None:
    """No digit is rounded, and no number is too large, whatever the other has."""
    rows = pa.RecordBatch.from_pydict(
        {
            "long": pa.array([Decimal(0), Decimal("9" * 38)], pa.decimal128(38, 0)),
            "small": pa.array([Decimal("0.0001"), Decimal(0)], pa.decimal128(38, 38)),
        }
    )
    assert computed("long < small", rows) == [True, False]
    assert computed("long = small", rows) == [False, False]
    assert computed("small is distinct from long", rows) == [True, True]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("coalesce(small, 5)", (38, 28)), ("greatest(long, small)", (38, 0)), ("if(long > 5, long, small)", (38, 0))],
)
def test_a_choice_between_decimals_has_room_for_every_whole_number(text: str, kind: tuple[int, int]) -> None:
    """As in Spark, digits behind the point are rounded where 38 are not enough for all."""
    rows = pa.RecordBatch.from_pydict(
        {
            "long": pa.array([Decimal("9" * 38), Decimal(0)], pa.decimal128(38, 0)),
            "small": pa.array([None, Decimal("0.75")], pa.decimal128(38, 38)),
        }
    )
    assert Expression.of(text).bind(rows.schema).type == pa.decimal128(*kind)
    assert computed(text, rows) == ([5, Decimal("0.75")] if kind[1] else [Decimal("9" * 38), 1])
