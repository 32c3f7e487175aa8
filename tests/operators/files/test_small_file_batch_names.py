"""Names in one text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.files.small_file_batch import NameColumn

NAMES = st.lists(st.binary(max_size=5).map(lambda name: name.replace(b"\0", b"").decode("utf-8", "surrogateescape")))


@given(NAMES, st.integers(-7, 7), st.integers(-7, 7))
def test_they_are_what_a_list_of_them_is(names: list[str], start: int, end: int) -> None:
    """Whatever bytes they are made of: by number, in a stretch, in order, and after a journey."""
    packed = NameColumn.of(names)
    assert (len(packed), list(packed), [packed[index] for index in range(len(names))]) == (len(names), names, names)
    assert list(packed[start:end]) == names[start:end]
    for again in (pickle.loads(pickle.dumps(packed)), NameColumn(packed.text)):
        assert list(again) == names


@given(NAMES.filter(bool), st.data())
def test_some_are_taken_out_in_any_order(names: list[str], data: st.DataObject) -> None:
    """The names at the positions, as often as they are asked for; nothing for no positions."""
    positions = data.draw(st.lists(st.integers(0, len(names) - 1)))
    taken = NameColumn.of(names).take(np.array(positions, np.int64))
    assert list(taken) == [names[position] for position in positions]


def test_what_is_not_there_is_refused() -> None:
    """As a list does it; and a stretch has no gaps."""
    packed = NameColumn.of(["a", "b"])
    assert (packed[-1], packed[-2]) == ("b", "a")
    for index in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            packed[index]
    with pytest.raises(ValueError, match="in steps of 2"):
        packed[::2]
