"""Casts of decimals whose digits all stand behind the point."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.sql.cases import computed


@pytest.mark.parametrize(("digits", "zeros"), [(1, ""), (4, "000"), (38, "0" * 37)])
def test_fractions_become_text_whole_numbers_and_truths(digits: int, zeros: str) -> None:
    """All digits are in the text, and a whole number has none of them."""
    values = [Decimal("0.2"), Decimal(0), Decimal("-0.9"), None]
    table = pa.RecordBatch.from_pydict({"r": pa.array(values, pa.decimal128(digits, digits))})
    wanted: dict[str, list[Any]] = {
        "text": [f"0.2{zeros}", f"0.0{zeros}", f"-0.9{zeros}", None],
        "int": [0, 0, 0, None],
        "bigint": [0, 0, 0, None],
        "boolean": [True, False, True, None],
        "double": [0.2, 0.0, -0.9, None],
    }
    assert {kind: computed(f"cast(r as {kind})", table) for kind in wanted} == wanted


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("'12e-39'", "decimal(38, 30)", Decimal(0)),
        ("'12e-39'", "decimal(38, 38)", Decimal("1e-38")),
        ("'0.0000000000000000000000000000000000000005'", "decimal(9, 2)", Decimal(0)),
        ("'0.00" + "4" + "9" * 60 + "'", "decimal(9, 2)", Decimal(0)),
        ("'0.00" + "5" + "0" * 60 + "'", "decimal(9, 2)", Decimal("0.01")),
        ("'0." + "1" * 38 + "'", "decimal(38, 38)", Decimal("0." + "1" * 38)),
        ("'" + "0" * 90 + "1'", "decimal(9, 2)", Decimal(1)),
        ("'14e40'", "decimal(38, 0)", None),
        ("'" + "1" * 70 + "'", "decimal(38, 0)", None),
        ("1e-25::double", "decimal(38, 30)", Decimal("1e-25")),
        ("-1.5e-37::double", "decimal(38, 38)", Decimal("-1.5e-37")),
        ("1e-300::double", "decimal(9, 2)", Decimal(0)),
        ("14e40::double", "decimal(38, 0)", None),
        ("1e300::double", "decimal(38, 30)", None),
        ("9.5e37::double", "decimal(38, 0)", Decimal("9.5e37")),
    ],
)
def test_a_decimal_has_the_digits_of_its_text_or_double(value: str, kind: str, expected: Decimal | None) -> None:
    """Digits behind the last one are rounded, however many there are; what is too large has no value."""
    table = pa.RecordBatch.from_pydict({"a": [1]})
    assert computed(f"try_cast({value} as {kind})", table) == [expected]
