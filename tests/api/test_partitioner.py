"""Dealing tuples out to partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.partitioner import assign_balanced


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 20))
def test_every_item_goes_to_one_partition_and_neighbours_stay_together(sizes: list[int], partitions: int) -> None:
    """The shares, one behind the other, are the items."""
    shares = assign_balanced(sizes, partitions)
    assert len(shares) == partitions
    assert [index for share in shares for index in share] == list(range(len(sizes)))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 20))
def test_no_share_exceeds_the_mean_by_more_than_the_largest_item(sizes: list[int], partitions: int) -> None:
    """Balance is as good as whole items allow."""
    shares = assign_balanced(sizes, partitions)
    heaviest = max(sum(sizes[index] for index in share) for share in shares)
    assert heaviest <= sum(sizes) / partitions + max(sizes)


def test_equal_items_are_dealt_out_evenly() -> None:
    """Sixteen blocks for four readers are four for each."""
    assert [len(share) for share in assign_balanced([64] * 16, 4)] == [4, 4, 4, 4]


def test_items_without_a_size_are_dealt_out_by_number() -> None:
    """Empty files must not all land in one partition."""
    assert [len(share) for share in assign_balanced([0] * 8, 4)] == [2, 2, 2, 2]
