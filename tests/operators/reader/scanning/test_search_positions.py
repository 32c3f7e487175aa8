"""The quick search agrees with numpy's own, whatever the density of what is looked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.scanning.search import MIN_POSITIONS, contains, positions_of


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=20))
def test_positions_are_those_that_numpy_finds(runs: list[tuple[int, int]]) -> None:
    """Gaps and runs of hits of any length, so that groups are empty, have one hit, several, or are full."""
    few = np.array([hit for gap, run in runs for hit in [False] * gap + [True] * run], bool)
    for hits in (few, np.concatenate((few, np.zeros(MIN_POSITIONS, bool), few))):
        assert positions_of(hits).tolist() == np.flatnonzero(hits).tolist()


@pytest.mark.parametrize("density", [0.0, 0.001, 0.01, 0.03, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4096, MIN_POSITIONS, MIN_POSITIONS + 15, 400_003])
def test_positions_in_long_stretches(density: float, size: int) -> None:
    """Sparse and dense hits take different ways to the same answer."""
    hits = np.random.default_rng(size).random(size) < density
    found = positions_of(hits)
    assert found.dtype == np.int64
    assert np.array_equal(found, np.flatnonzero(hits))


@given(st.binary(max_size=50), st.integers(0, 255), st.sampled_from(["u1", "<u2", ">u2"]), st.integers(1, 3))
def test_contains_is_what_a_comparison_finds(data: bytes, value: int, dtype: str, step: int) -> None:
    """Bytes and wider units, side by side or not, and none at all."""
    units = np.frombuffer(data[: len(data) // 2 * 2], dtype)[::step]
    assert contains(units, value) == (value in units.tolist())
