"""Tests of operators.rejects.record_refusing."""

from __future__ import annotations

from dagflow.api.records import UNKNOWN
from dagflow.api.refused_records import Reject
from operators.rejects.record_refusing import not_taken

REJECT = Reject("in/a", 7, UNKNOWN, "no number", b"x")


def test_the_error_has_the_place_of_the_record_and_names_the_port() -> None:
    """A run that ends at a refused record says which stream would let it go on."""
    error = not_taken(REJECT, "the reader's port errors")
    assert (error.url, error.offset, error.message) == ("in/a", 7, "no number")
    assert error.hint == "to take such records aside, connect the reader's port errors, and run again"
