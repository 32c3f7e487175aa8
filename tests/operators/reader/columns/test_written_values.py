"""Tests of operators.reader.columns.written_values."""

from __future__ import annotations

import gc

import pytest

from operators.reader.columns.written_values import all_members, members_of, without_collection


def test_objects_that_are_read_together_are_those_that_are_read_alone() -> None:
    """Of more records than are read at a time, with blanks, duplicate members and numbers of many digits."""
    records = [b' {"a": %d, "a": [1.50, {"b": "\xc3\xa4,"}]} ' % (10**20 + row) for row in range(1000)]
    assert [*all_members(records)] == [*map(members_of, records)]


def test_the_collection_of_garbage_goes_on_behind_values_of_json() -> None:
    """Also where reading them fails, and where it is switched off anyway."""
    with pytest.raises(ValueError, match="no"), without_collection():
        assert not gc.isenabled()
        raise ValueError("no")
    assert gc.isenabled()
    with without_collection():
        with without_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
