"""Tests of dagflow.api.refused_records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.refused_records import Reject

NUMBERS = st.integers(-1, 2**63 - 1)


@given(st.builds(Reject, st.text(), NUMBERS, NUMBERS, st.text(), st.binary()))
def test_a_reject_comes_back_from_its_bytes(reject: Reject) -> None:
    """Whatever its record holds, and the JSON has the names that readers of rejects know."""
    assert Reject.from_bytes(reject.to_bytes()) == reject
    assert list(json.loads(reject.to_bytes())) == ["url", "offset", "length", "reason", "raw"]


@pytest.mark.parametrize("data", [b"", b"text", b"1", b"[]", b"{}", b'{"raw": 1}', b'{"raw": "-"}', b"\xff"])
def test_other_bytes_are_no_reject(data: bytes) -> None:
    """A port of an author may emit anything under the name errors."""
    with pytest.raises(ValueError, match=r".+"):
        Reject.from_bytes(data)
