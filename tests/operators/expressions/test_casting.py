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
