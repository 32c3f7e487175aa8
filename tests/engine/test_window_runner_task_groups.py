"""Which partitions of a window run together in a task, and how tasks divide a rate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.engine.window_runner import LIGHT_BYTES_PER_S, with_shared_rate, with_task_groups
from dagflow.execution.messages import WindowJob
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.plan.placement import place
from tests.engine.dags import Given, dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords, TextSample

PORT = PortRef("one", "samples")


def two_readers() -> PhysicalPlan:
    """A plan with two stages on the lowest level."""
    operators: dict[str, Given] = {"source": TextSource(texts=[]), "one": SampleWords(), "two": SampleWords()}
    return place(dag(Path(), operators, ["source.out one.samples", "source.out two.samples"]))


def task_of(sizes: dict[str, list[int]]) -> WindowJob:
    """A window with one sample of each size in each partition; 0 for a partition without any."""
    assigned = {
        head: [[(PORT, [TextSample("s", b"x" * size)])] if size else [] for size in each]
        for head, each in sizes.items()
    }
    return WindowJob(1, "tag", {head: len(each) for head, each in sizes.items()}, assigned)


MIB = 1 << 20


def groups(
    sizes: dict[str, list[int]], speeds: dict[str, float], *, min_task_s: float = 0.25, may_grow: bool = False
) -> list[list[int]]:
    """The tasks of a window on two cores."""
    job = with_task_groups(
        two_readers(), task_of(sizes), speeds, parallelism=2, min_task_s=min_task_s, may_grow=may_grow
    )
    return [list(group) for group in job.together]


def test_short_work_runs_in_one_task_for_each_core() -> None:
    """Eight partitions of 10 ms would spend as long in Spark as at work."""
    assert groups({"one": [MIB] * 8, "two": [0]}, {"one": 100.0 * MIB}) == [[0, 1, 2, 3], [4, 5, 6, 7, 8]]


def test_long_work_has_a_task_for_each_partition() -> None:
    """A task of half a second is long enough."""
    assert groups({"one": [MIB] * 4, "two": [0]}, {"one": 2.0 * MIB}) == [[0], [1], [2], [3, 4]]


def test_all_cores_have_the_same_number_of_tasks() -> None:
    """1.6 s of work are three tasks of a quarter of a second for each core, and no seventh one."""
    tasks = groups({"one": [MIB] * 16, "two": [0]}, {"one": 10.0 * MIB})
    assert [len(task) for task in tasks] == [3, 3, 3, 2, 3, 3]
    assert [slot for task in tasks for slot in task] == list(range(17))


def test_work_of_unknown_speed_is_taken_for_light() -> None:
    """So windows that are not measured yet have no more tasks than light work needs."""
    assert len(groups({"one": [MIB] * 8, "two": [0]}, {})) == 2
    assert len(groups({"one": [MIB] * 8, "two": [0]}, {}, min_task_s=MIB / LIGHT_BYTES_PER_S)) == 8


def test_a_growing_cluster_sees_all_tasks_until_their_speed_is_known() -> None:
    """It starts executors for tasks that wait; of two stages one that is not known is enough."""
    sizes = {"one": [MIB] * 4, "two": [MIB] * 4}
    assert len(groups(sizes, {"one": 1e9}, may_grow=True)) == 8
    assert len(groups(sizes, {"one": 1e9, "two": 1e9}, may_grow=True)) == 2


def test_where_tasks_cost_nothing_each_partition_has_one() -> None:
    """Partitions without input go with the last one."""
    assert groups({"one": [9, 0, 9], "two": [9, 0]}, {}, min_task_s=0.0) == [[0], [2], [3, 1, 4]]


def test_partitions_that_all_got_nothing_run_side_by_side() -> None:
    """Operators that make something out of nothing keep their partitions."""
    assert groups({"one": [0, 0], "two": [0]}, {}) == [[0], [1], [2]]


def test_input_of_a_higher_level_takes_one_task() -> None:
    """It arrives with the first partition of the lowest level, and the others have nothing to do."""
    job = task_of({"one": [0, 0], "two": [0]})
    behind = replace(job, assigned={**job.assigned, "behind": [[(PORT, [TextSample("s", b"x")])]]})
    assert with_task_groups(two_readers(), behind, {}, parallelism=2, min_task_s=0.25).together == [[0, 1, 2]]


@given(
    one=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    two=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    speed=st.sampled_from([0.0, 10.0, 1e3]),
    may_grow=st.booleans(),
)
def test_each_partition_runs_once(one: list[int], two: list[int], speed: float, may_grow: bool) -> None:
    """No task is empty, and those with input keep their order."""
    tasks = groups({"one": one, "two": two}, {"one": speed, "two": speed} if speed else {}, may_grow=may_grow)
    order = [slot for task in tasks for slot in task]
    busy = [slot for slot, size in enumerate([*one, *two]) if size]
    assert sorted(order) == list(range(len(one) + len(two)))
    assert [slot for slot in order if slot in busy] == busy
    assert all(tasks)


@given(
    one=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    two=st.lists(st.integers(0, 50), min_size=1, max_size=12),
    parallelism=st.integers(1, 8),
)
def test_what_runs_at_once_has_the_rate_together_and_no_more(one: list[int], two: list[int], parallelism: int) -> None:
    """No more tasks than cores; the largest shares of all tasks are the rate; each slot runs once, in order."""
    sizes = {"one": one, "two": two}
    result = with_shared_rate(two_readers(), task_of(sizes), parallelism)
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
    result = with_shared_rate(two_readers(), task_of({"one": [0, 9, 0], "two": [0]}), 4)
    assert result.shares == {("one", partition): 1.0 for partition in range(3)}
    assert list(map(list, result.together)) == [[0, 1, 2, 3]]
