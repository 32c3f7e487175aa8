"""Dealing tuples out to partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.bundle import unbundled
from dagflow.api.partitioner import assign_balanced, deal_out
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch


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


SIZES = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=8), max_size=8)


@given(SIZES, st.integers(1, 12))
def test_bundles_are_dealt_out_as_their_members(sizes: list[list[int]], partitions: int) -> None:
    """Bundled or not, each partition gets the same tuples; a list of one is sent as a single tuple here."""
    items: list[BlockMetadata | SmallFileBatch] = []
    block_id = 1
    for group in sizes:
        urls = [f"/in/{block_id + number}" for number in range(len(group))]
        pack = SmallFileBatch.of(block_id, urls, group, group)
        items.append(pack if len(group) > 1 else next(iter(pack)))
        block_id += len(group)
    single = list(unbundled(items))
    shares = assign_balanced([block.size_bytes for block in single], partitions)
    dealt = [list(unbundled(share)) for share in deal_out(items, partitions)]
    assert dealt == [[single[index] for index in share] for share in shares]


def test_a_whole_bundle_goes_to_one_partition() -> None:
    """What one task must read is not divided, however large beside the rest."""
    packs = [
        SmallFileBatch.of(1 + 10 * number, [f"/in/{number}/{name}" for name in range(10)], [9] * 10, [0] * 10)
        for number in range(3)
    ]
    whole = [SmallFileBatch(p.first_id, p.base, p.names, p.sizes, p.mtimes, is_whole=True) for p in packs]
    assert [[len(pack) for pack in share] for share in deal_out(whole, 2)] == [[10, 10], [10]]
    block = BlockMetadata(99, "/in/x", FileVersion(5), 0, 5, True)
    assert deal_out([block], 3) == [[block], [], []]
