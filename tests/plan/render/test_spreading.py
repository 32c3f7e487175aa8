"""Intervals are placed near to where they want to be, apart from each other."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.plan.render.spreading import spread, total

INTERVALS = st.lists(
    st.tuples(st.floats(-500, 1500), st.floats(1, 200), st.floats(0, 30)), min_size=1, max_size=12
).map(lambda found: tuple(map(list, zip(*found, strict=True))))


@given(INTERVALS, st.floats(0, 500))
def test_intervals_are_apart_and_within_bounds(intervals: tuple[list[float], ...], more: float) -> None:
    """Whatever they want, if there is room."""
    wanted, sizes, gaps = intervals
    end = total(sizes, gaps) + more
    middles = spread(wanted, sizes, gaps, 0.0, end)
    spans = [(middle - size / 2, middle + size / 2) for middle, size in zip(middles, sizes, strict=True)]
    assert spans[0][0] >= -1e-6 and spans[-1][1] <= end + 1e-6
    for (one, other), (gap, next_gap) in zip(pairwise(spans), pairwise(gaps), strict=True):
        assert other[0] - one[1] >= (gap + next_gap) / 2 - 1e-6


def test_what_has_room_gets_what_it_wants() -> None:
    """Nothing is moved without need."""
    assert spread([10, 50, 90], [10, 10, 10], [4, 4, 4], 0, 100) == [10, 50, 90]


def test_neighbours_that_want_the_same_place_share_the_way() -> None:
    """Both are moved as far."""
    assert spread([50, 50], [10, 10], [2, 2], 0, 100) == pytest.approx([44, 56])


def test_nothing_is_spread_over_nothing() -> None:
    """A row may be empty."""
    assert spread([], [], [], 0, 10) == []
