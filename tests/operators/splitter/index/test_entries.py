"""Entries of the index as bytes."""

from __future__ import annotations

import pytest

from operators.splitter.index.entries import decoded, encoded, entries_of


@pytest.mark.parametrize(("count", "is_smaller"), [(0, False), (3, False), (1000, True)])
def test_entries_are_read_back_and_many_of_them_are_compressed(count: int, is_smaller: bool) -> None:
    """A few would become larger."""
    numbers = list(range(count))
    entries = entries_of([b"/in/2024/11/file-%06d.txt" % number for number in numbers], [numbers] * 5)
    data = encoded(entries)
    assert decoded(data).equals(entries)
    assert (len(data) < entries.nbytes // 4) == is_smaller
