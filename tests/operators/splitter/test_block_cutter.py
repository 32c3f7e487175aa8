from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.files.metadata import FileVersion
from operators.splitter.block_cutter import OpenFile, count_blocks


@given(size=st.integers(0, 10_000), start=st.integers(0, 10_000), block_size=st.integers(1, 3000))
def test_the_count_of_blocks_is_what_cutting_gives(size: int, start: int, block_size: int) -> None:
    """From any byte on: the first block ends at the next multiple, the last at the end of the file."""
    file = OpenFile("f", FileVersion(size), block_size, start)
    ends = []
    while file.next_start < size:
        block = file.next_block(1)
        ends.append(block.end)
        file = file.after(block)
    assert len(ends) == count_blocks(start, size, block_size)
    assert all(end % block_size == 0 for end in ends[:-1])
    assert ends == [] or ends[-1] == size


def test_a_block_size_below_one_is_refused() -> None:
    """A block has at least one byte."""
    with pytest.raises(ValueError, match="block_size must be at least 1, got 0"):
        count_blocks(0, 10, 0)
