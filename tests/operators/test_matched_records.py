"""Regular expressions on bytes, against Python's on text and on bytes."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from operators.matched_records import RecordPattern, matches

VALUES = st.one_of(st.binary(max_size=6), st.text("aé€𝄞", max_size=4).map(str.encode), st.none())


def _found(value: bytes | None, regex: str) -> bool | None:
    if value is None:
        return None
    try:
        return re.search(regex, value.decode()) is not None
    except UnicodeDecodeError:
        return re.search(regex.encode(), value) is not None


@given(st.lists(VALUES, max_size=6), st.sampled_from(["^(?s:.)$", "[é€]", "a(?s:.)a", "^[^a]*$"]))
@example([b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xf4\x8f\xbf\xbf", b"\xe0\x9f\xbf"], "^(?s:.)$")
def test_text_is_matched_by_characters_and_else_by_bytes(values: list[bytes | None], regex: str) -> None:
    """Each value as if it were alone, in a slice as well."""
    expected = [_found(value, regex) for value in values]
    assert matches(pa.array(values, pa.binary()), regex).to_pylist() == expected
    assert matches(pa.array([b"\xff", *values], pa.binary()).slice(1), regex).to_pylist() == expected


def test_what_bytes_cannot_be_matched_by_is_refused_beforehand() -> None:
    """RE2 has no character beyond a byte where it sees bytes, and a record that is no text may come at any time."""
    for regex in ("(", r"\x{4e00}"):
        with pytest.raises(ValidationError, match="is not a valid RE2 expression"):
            TypeAdapter(RecordPattern).validate_python(regex)
    assert TypeAdapter(RecordPattern).validate_python("[一-鿿]") == "[一-鿿]"
