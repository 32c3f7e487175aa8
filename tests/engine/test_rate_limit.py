"""How the tasks of a window divide a rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.engine.rate_limit import RateLimit
from tests.engine.test_task_groups import task_of, two_readers


@given(
    one=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    two=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    parallelism=st.integers(1, 8),
)
def test_what_runs_at_once_has_the_rate_together_and_no_more(one: list[int], two: list[int], parallelism: int) -> None:
    """No more tasks than cores; the largest shares of all tasks are the rate; each slot runs once, in order."""
    sizes = {"one": one, "two": two}
    result = RateLimit(two_readers(), {}).divided(task_of(sizes), parallelism)
    assert [slot for group in result.together for slot in group] == list(range(len(one) + len(two)))
    assert len(result.together) <= parallelism
    slots = [(head, partition) for head in sizes for partition in range(len(sizes[head]))]
    for head, each in sizes.items():
        own = [
            [result.shares.get(slots[index], 0.0) for index in group if slots[index][0] == head]
            for group in result.together
        ]
        assert sum(max(group, default=0.0) for group in own) == pytest.approx(1.0 if any(each) else 0.0)
        # With these shares, all tasks read what is theirs of it in the same time.
        for group in result.together:
            part = sum(sizes[head][slots[index][1]] for index in group if slots[index][0] == head)
            for index in group:
                if slots[index][0] == head and sizes[head][slots[index][1]]:
                    assert part / result.shares[slots[index]] == pytest.approx(sum(each))


def test_a_partition_alone_has_the_whole_rate() -> None:
    """However many partitions got nothing."""
    result = RateLimit(two_readers(), {}).divided(task_of({"one": [0, 9, 0], "two": [0]}), 4)
    assert result.shares == {("one", partition): 1.0 for partition in range(3)}
    assert list(map(list, result.together)) == [[0, 1, 2, 3]]
