"""Arrow's columns without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.storage.columns import binary_column, bool_column, flags_of, positions_in

FEW = st.lists(st.sampled_from([b"a", b"b", b"c", b""]), max_size=20)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40))
def test_flags_come_back_as_they_were_also_those_of_a_slice(flags: list[bool], start: int) -> None:
    """Eight of them share a byte, and a slice may begin within one."""
    column = bool_column(np.array(flags, bool))
    assert column.to_pylist() == flags
    assert flags_of(column.slice(start)).tolist() == flags[start:]


@given(FEW, FEW, st.integers(0, 20), st.sampled_from([1, 200]))
def test_of_equal_values_the_first_is_found(wanted: list[bytes], values: list[bytes], cut: int, times: int) -> None:
    """Among few and among many, also where both columns consist of pieces."""
    wanted, values = wanted * times, values * times
    column = pa.chunked_array([binary_column(values[:cut]), binary_column(values[cut:])], pa.binary())
    for asked in (binary_column(wanted), pa.chunked_array([wanted[:cut], wanted[cut:]], pa.binary())):
        known, positions = positions_in(asked, column)
        assert known.tolist() == [value in values for value in wanted]
        assert positions.tolist() == [values.index(value) for value in wanted if value in values]


_EMPTY = """
import sys
import pyarrow as pa
from dagflow.storage.columns import numbers_of, positions_in
nothing = pa.chunked_array([], pa.int64())
assert (len(numbers_of(nothing)), *map(len, positions_in(nothing, nothing))) == (0, 0, 0)
sys.exit("pandas" in sys.modules)
"""


def test_columns_of_no_pieces_need_no_pandas() -> None:
    """A window in which no reader is waited for is compared in the driver, whose memory would grow by a third."""
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", _EMPTY], check=True)
