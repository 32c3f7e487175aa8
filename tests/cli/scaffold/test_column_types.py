"""The type of a column is the narrowest that takes all values of the sample."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.cli.scaffold.column_types import guess_column
from operators.reader.columns.literals import values_of
from operators.reader.columns.types import ColumnType


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-20", ""], "int64"),
        (["1", "2.5"], "double"),
        (["1.5", "nan"], "double"),
        (["1.50", "-20.25", "0.10"], "decimal(18, 2)"),
        (["1.50", "2.25"], "double"),
        (["01234", "98765"], "string"),
        (["9223372036854775807", "-9223372036854775808"], "int64"),
        (["9223372036854775808"], "decimal(38, 0)"),
        (["12345678901234567890", "1"], "decimal(38, 0)"),
        (["12345678901234567890", "-0.125", "1e3"], "decimal(38, 3)"),
        (["123456789012345678.25"], "decimal(38, 2)"),
        (["0.1234567890123456789"], "decimal(38, 19)"),
        (["12345678901234567890", "1e-18"], "decimal(38, 18)"),
        (["12345678901234567890", "1e-19"], "string"),
        (["1" * 38], "decimal(38, 0)"),
        (["1" * 39], "string"),
        (["1" * 5000], "string"),
        (["12345678901234567890", "nan"], "string"),
        (["1e999"], "string"),
        (["1e99999999999999999999"], "string"),
        (["10000000000000000000", "0.5", "1e10"], "double"),
        (["0.30000000000000004", "0.1000000000000000000000"], "double"),
        (["true", "False"], "bool"),
        (["yes", "no"], "string"),
        (["2024-02-29"], "date32"),
        (["2023-02-29"], "string"),
        (["20240229", "20240301"], {"type": "date32", "format": "%Y%m%d"}),
        (["31.12.2024"], {"type": "date32", "format": "%d.%m.%Y"}),
        (["12/31/2024"], {"type": "date32", "format": "%m/%d/%Y"}),
        (["31/12/2024"], {"type": "date32", "format": "%d/%m/%Y"}),
        (["01/02/2024"], "string"),
        (["2024-02-29T10:00:00Z", "2024-02-29 10:00:00+01:00"], "timestamp[us, UTC]"),
        (["2024-02-29 10:00:00.5"], "timestamp[us]"),
        (["2024-02-29 10:00:00", "2024-02-29 10:00:00Z"], "string"),
        (["", ""], "string"),
        (["a", "1"], "string"),
        (["\u0661", "\u0662"], "string"),
        (["\uff11.5"], "string"),
        (["\u0662\u0660\u0662\u0664-01-31"], "string"),
        (["-nan"], "string"),
        (["31.12.2024\t10:00"], "string"),
        (["2024-01-01T10:00:00+00:60"], "string"),
        (["2024-01-01T10:00:00+24:00"], "string"),
        (["0001-01-01T00:00:00+01:00"], "string"),
    ],
)
def test_a_column_has_the_narrowest_type_of_its_values(values: list[str], expected: Any) -> None:
    """What is ambiguous, and what would lose a digit or anything else, is text."""
    assert guess_column("x", values).type == expected


DIGITS = st.text("0123456789\u0663\uff19", min_size=1, max_size=4)
TWO = st.integers(0, 70).map("{:02}".format) | st.sampled_from(["1", "\u0660\u0661"])
SIGN = st.sampled_from(["", "+", "-"])
CLOCK = st.tuples(TWO, TWO).map(":".join)
DAY = st.sampled_from(
    ["2024-02-29", "2023-02-29", "0001-01-01", "0000-01-01", "9999-12-31", "20240131", "\u0662\u0660\u0662\u0664-01-31"]
)
LIKE_VALUES = st.one_of(
    st.tuples(SIGN, DIGITS).map("".join),
    st.tuples(SIGN, DIGITS, st.sampled_from([".", "e", "E-", ".e", "e+"]), DIGITS).map("".join),
    st.tuples(SIGN, st.sampled_from(["nan", "NaN", "NAN", "inf", "Infinity", "Inf"])).map("".join),
    DAY,
    st.tuples(
        DAY,
        st.sampled_from("T \t\u00a0"),
        CLOCK,
        st.sampled_from(["", ":00", ":60", ":59.5", ":59.1234567"]),
        st.just("") | st.just("Z") | st.tuples(st.sampled_from("+-"), CLOCK).map("".join),
    ).map("".join),
    st.tuples(TWO, st.sampled_from("./-"), TWO, st.sampled_from("./-"), st.sampled_from(["2024", "0000", "24"])).map(
        "".join
    ),
    st.tuples(
        TWO, st.sampled_from(["-feb-", "-\u017fep-", "-DEC-", "."]), st.sampled_from(["2024", "02.2024 10:00"])
    ).map("".join),
)


@given(st.lists(LIKE_VALUES, min_size=1, max_size=3))
@example(["2024-01-01T10:00:00+00:60"])
@example(["31.12.2024  10:00"])
def test_the_reader_takes_every_value_that_a_type_was_proposed_for(values: list[str]) -> None:
    """A proposed type refuses no value of the sample."""
    kind = ColumnType.of(guess_column("x", values).type)
    assert values_of(pa.array(values), kind).null_count == 0


def test_words_for_no_value_do_not_make_a_column_text() -> None:
    """They are words in a column of text."""
    assert (guess_column("x", ["1", "NA"]).type, guess_column("x", ["1", "NA"]).null_words) == ("int64", ("NA",))
    assert (guess_column("x", ["a", "NA"]).type, guess_column("x", ["a", "NA"]).null_words) == ("string", ())


class Compared(str):
    """A value that counts how often it is compared with another one."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return super().__eq__(other)


def test_values_of_no_type_are_not_compared_with_all_others() -> None:
    """A thousand of 100,000 may have no type, and the time grows with the number of values alone."""
    Compared.comparisons = 0
    values = [Compared(f"bad {number}" if number % 101 == 0 else number) for number in range(20_000)]
    found = guess_column("x", values)
    assert (found.type, found.exceptions) == ("int64", 199)
    assert Compared.comparisons < 50 * len(values)
