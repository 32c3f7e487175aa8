"""Numbers of CSV as other programs and countries write them."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of
from operators.testing import columns_of as columns_of_blocks


def test_decimals_keep_their_digits_and_rows_with_too_many_are_refused() -> None:
    """A column of decimals has so many digits, and so many of them behind the point."""
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": {"price": "decimal(9, 2)"}})
    content = b"1234567.89\n0.1\n1.234\n"
    rejected: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), rejected.append)
    rows: list[Any] = []
    for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
        rows += accounting.parse(made, batch).batch.to_arrow().column("price").to_pylist()
    assert [str(price) for price in rows] == ["1234567.89", "0.10"]
    assert len(rejected) == 1


@given(
    st.decimals(-(10**9), 10**9, places=2),
    st.sampled_from([(",", "."), (",", None), (".", ","), (",", "\u202f"), (".", "'"), (",", " ")]),
    st.booleans(),
)
def test_numbers_as_other_countries_write_them_are_read_exactly(
    value: Decimal, marks: tuple[str, str | None], groups: bool
) -> None:
    """With and without groups of thousands, in quotes where the mark is the delimiter."""
    decimal, thousands = marks
    plain = f"{value:,f}" if groups and thousands else f"{value:f}"
    written = plain.translate({ord(","): thousands, ord("."): decimal})
    made = RECORD_FORMATS.make(
        {"type": "csv", "decimal": decimal, "thousands": thousands, "columns": {"d": "decimal(12, 2)", "f": "double"}}
    )
    rows, rejects = columns_of_blocks(made, f'd,f,s\n"{written}","{written}","{written}"\n'.encode())
    assert (rows, rejects) == ([{"d": value, "f": float(value), "s": written}], [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,234.5", "'1,234.5' does not match 1.234,5"),
        ("1.23", "'1.23' does not match 1.234,5"),
        ("12.34.567", "'12.34.567' does not match 1.234,5"),
        ("1234.567", "'1234.567' does not match 1.234,5"),
        (".123", "'.123' does not match 1.234,5"),
        ("1,5,5", "'1,5,5' does not match 1.234,5"),
        ("12.345.678,9", "'12.345.678,9' has more than 6 digits before the point, or 1 behind it"),
    ],
)
def test_numbers_that_are_written_otherwise_are_refused(text: str, reason: str) -> None:
    """Never read as a thousand times as much, or as little."""
    spec = {"type": "csv", "delimiter": ";", "decimal": ",", "thousands": ".", "columns": {"n": "decimal(7, 1)"}}
    rows, rejects = columns_of_blocks(RECORD_FORMATS.make(spec), f"n\n{text}\n1.234,5\n".encode())
    assert rows == [{"n": Decimal("1234.5")}]
    assert reason in rejects[0]["reason"]
