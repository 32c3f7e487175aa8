"""The type of a column is the narrowest that takes all values of the sample."""

from __future__ import annotations

from typing import Any

import pytest

from dagflow.cli.scaffold.column_types import guess_column


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
    ],
)
def test_a_column_has_the_narrowest_type_of_its_values(values: list[str], expected: Any) -> None:
    """What is ambiguous, and what would lose a digit or anything else, is text."""
    assert guess_column("x", values).type == expected


def test_words_for_no_value_do_not_make_a_column_text() -> None:
    """They are words in a column of text."""
    assert (guess_column("x", ["1", "NA"]).type, guess_column("x", ["1", "NA"]).null_words) == ("int64", ("NA",))
    assert (guess_column("x", ["a", "NA"]).type, guess_column("x", ["a", "NA"]).null_words) == ("string", ())
