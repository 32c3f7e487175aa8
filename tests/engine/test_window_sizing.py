"""How fast partitions are found to be, and how large that makes windows."""

from __future__ import annotations

import pytest

from dagflow.engine.window_codec import Load
from dagflow.engine.window_sizing import (
    FIRST_STEERED_BYTES,
    FIRST_WINDOW_TUPLES,
    MAX_WINDOW_TUPLES,
    MEASURED_WINDOWS,
    TUPLES_OF_A_TASK,
    Speeds,
    Throughput,
)


def load(tuples: int, size_bytes: int, head: str = "reader") -> Load:
    """A window's load of one stage."""
    return Load({head: tuples}, {head: size_bytes})


def test_a_speed_is_bytes_over_the_time_that_tasks_worked() -> None:
    """However many partitions shared it, and whatever time passed beside; each stage has its own."""
    speeds = Speeds()
    speeds.committed(Load({"a": 4, "b": 1}, {"a": 800, "b": 60}), {"a": 4.0, "b": 0.5, "c": 9.0})
    speeds.committed(load(2, 400, "a"), {"a": 2.0, "b": 0.0})
    assert speeds.of_partitions == {"a": pytest.approx(200), "b": pytest.approx(120)}
    assert speeds.processed_bytes == {"a": 1200, "b": 60}


def test_moments_of_work_tell_no_speed() -> None:
    """Three milliseconds tell what a task costs."""
    speeds = Speeds()
    speeds.committed(load(1, 100), {"reader": 0.003})
    assert speeds.of_partitions == {}
    assert speeds.budget({"reader": 2}).size_bytes == 2 * FIRST_STEERED_BYTES


def test_old_windows_are_forgotten() -> None:
    """A reader that has become slower is known to be."""
    speeds = Speeds()
    speeds.committed(load(1, 10**9), {"reader": 1.0})
    for _ in range(MEASURED_WINDOWS):
        speeds.committed(load(1, 1000), {"reader": 1.0})
    assert speeds.of_partitions == {"reader": pytest.approx(1000)}


def test_a_window_is_a_second_of_its_partitions_and_a_block_for_each() -> None:
    """The larger of both; the first one is small."""
    speeds = Speeds()
    assert speeds.budget({"reader": 1}).size_bytes == FIRST_STEERED_BYTES
    speeds.committed(load(10, 10_000), {"reader": 2.0})
    assert speeds.budget({"reader": 3}).size_bytes == 3 * 5000
    speeds.committed(load(1, 10_000), {"reader": 18.0})
    assert speeds.budget({"reader": 3}).size_bytes == 3 * (20_000 // 11)
    assert speeds.budget({"reader": 1}).tuples == FIRST_WINDOW_TUPLES


def test_a_window_is_bounded_by_what_the_driver_holds_and_a_large_cluster_gets_more() -> None:
    """A second of a thousand tasks is more than one of two, and who has so many has memory for their plan."""
    speeds, throughput = Speeds(), Throughput(2)
    speeds.committed(load(10, 10_000), {"reader": 2.0})
    throughput.committed(10**9, 10**9)
    for tasks, tuples in ((100, MAX_WINDOW_TUPLES), (1000, 1000 * TUPLES_OF_A_TASK)):
        throughput.parallelism = tasks
        assert throughput.budget().tuples == speeds.budget({"reader": tasks}).tuples == tuples
