"""How many readers a backlog calls for."""

from __future__ import annotations

import pytest

from dagflow.api.partitioning import BacklogStats, Partitioner
from operators.reader.block_reader import BlockReader, readers_for


@pytest.mark.parametrize(
    ("backlogs", "readers"),
    [((0, 1), 1), ((2, 3), 2), ((4, 5, 6, 7), 4), ((8, 12, 15), 8), ((16, 17, 100, 10**9), 16)],
)
def test_the_published_table_holds(backlogs: tuple[int, ...], readers: int) -> None:
    """For 1 to 16 readers the count is the backlog, rounded down to a power of two."""
    assert [readers_for(backlog, 1, 16) for backlog in backlogs] == [readers] * len(backlogs)


@pytest.mark.parametrize(
    ("lowest", "highest", "backlog", "readers"),
    [(1, 10, 10, 8), (1, 10, 11, 10), (3, 16, 3, 3), (3, 16, 0, 3), (2, 16, 1, 2), (4, 16, 1, 4), (3, 3, 100, 3)],
)
def test_limits_hold_after_rounding(lowest: int, highest: int, backlog: int, readers: int) -> None:
    """The minimum is never undercut, and the maximum is reached although it is no power of two."""
    assert readers_for(backlog, lowest, highest) == readers


def stats(now_millis: int, partitions: int, backlog: int) -> BacklogStats:
    return BacklogStats(now_millis=now_millis, partitions=partitions, backlog=backlog)


def test_the_reader_decides_for_itself() -> None:
    """A reader is its own partitioner."""
    assert isinstance(BlockReader(), Partitioner)


def test_the_start_honours_the_minimum() -> None:
    """Before anything is known there are as few readers as are allowed."""
    assert BlockReader(min_readers=4).define_partitions(stats(0, 0, 0)) == 4
    assert BlockReader().define_partitions(stats(0, 0, 0)) == 1


def test_a_change_is_asked_for_once_and_the_next_one_waits() -> None:
    """The first decision is made at once; the next after interval_millis."""
    reader = BlockReader(interval_millis=500, shrink_after_millis=0)
    assert reader.process_stats(stats(1000, 1, 10)).repartition
    assert reader.define_partitions(stats(1000, 1, 10)) == 8
    same = reader.process_stats(stats(1500, 8, 10))
    assert not same.repartition
    assert "8 is right" in same.reason
    assert not reader.process_stats(stats(1499, 8, 2)).repartition
    later = reader.process_stats(stats(1500, 8, 2))
    assert later.repartition
    assert later.reason == "backlog of 2 blocks, 1 to 16 readers: 8 to 2"


def test_a_backlog_that_goes_up_and_down_keeps_its_readers() -> None:
    """Readers are removed when no backlog has needed them for shrink_after_millis, down to the greatest since."""
    reader = BlockReader(shrink_after_millis=10_000)
    counts = [1]
    for second, backlog in enumerate((4, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, *[1] * 10, 2)):
        now = stats(1000 * second, counts[-1], backlog)
        counts.append(reader.define_partitions(now) if reader.process_stats(now).repartition else counts[-1])
    assert counts[1:] == [*[4] * 10, *[2] * 10, 1, 2]


def test_without_stats_the_count_stays() -> None:
    """collect_stats: false keeps what there is, from the start on."""
    reader = BlockReader(collect_stats=False, min_readers=2)
    response = reader.process_stats(stats(0, 2, 100))
    assert (response.repartition, response.reason) == (False, "collect_stats is off: 2 stay")
    assert reader.define_partitions(stats(0, 0, 100)) == 2
    assert reader.define_partitions(stats(0, 5, 100)) == 5


def test_limits_that_contradict_each_other_are_refused() -> None:
    """There is no number between 4 and 2."""
    with pytest.raises(ValueError, match="min_readers, 4, is above max_readers, 2"):
        BlockReader(min_readers=4, max_readers=2)
