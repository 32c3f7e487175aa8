"""Tests of operators.record_refusing."""

from __future__ import annotations

from dagflow.api.records import UNKNOWN
from dagflow.api.refused_records import Reject
from operators.record_refusing import not_taken

REJECT = Reject("in/a", 7, UNKNOWN, "no number", b"x")


def test_the_error_has_the_place_of_the_record_and_says_what_to_add() -> None:
    """A run that ends at a refused record says what would let it go on."""
    error = not_taken(REJECT)
    assert (error.url, error.offset, error.message) == ("in/a", 7, "no number")
    assert error.hint == "to take such records aside, add `rejects: DIRECTORY` to the app, and run again"
