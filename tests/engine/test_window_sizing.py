"""How fast partitions are measured to be, and how large that makes windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.control import InputEstimate, WindowLimits
from dagflow.engine.window_sizing import (
    FIRST_BYTES_BY_SPEED,
    FIRST_WINDOW_BYTES,
    FIRST_WINDOW_TUPLES,
    LEAST_BYTES_WRITTEN_AGAIN,
    MAX_GROWTH,
    MAX_WINDOW_BYTES,
    MAX_WINDOW_TUPLES,
    MEASURED_WINDOWS,
    MIN_MEASURED_S,
    MIN_WINDOW_S,
    TUPLES_PER_TASK,
    WINDOW_TARGET_S,
    Load,
    PartitionSpeeds,
    WindowSizing,
    budget_by_speed,
    budget_by_throughput,
    counted_s,
    first_windows,
    max_tuples,
    working_s,
)

RATES = st.floats(0.0, 1e15)
TASKS = st.integers(1, 5000)
LARGEST = st.integers(0, 10**7)
WINDOWS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**13), st.floats(0.0, 1e5)), max_size=30)


def load(tuples: int, size_bytes: int, head: str = "reader") -> Load:
    """A window's load of one stage."""
    return Load({head: tuples}, {head: size_bytes})


def measured(windows: list[tuple[int, int, float]]) -> PartitionSpeeds:
    """Speeds after windows of so many tuples, bytes and seconds of work."""
    speeds = PartitionSpeeds()
    for tuples, size_bytes, busy_s in windows:
        speeds.add(load(tuples, size_bytes), {"reader": busy_s})
    return speeds


def test_a_speed_is_bytes_over_the_time_that_tasks_worked() -> None:
    """It does not depend on how many partitions there were, nor on other time that passed; each stage has its own."""
    speeds = PartitionSpeeds()
    speeds.add(Load({"a": 4, "b": 1}, {"a": 800, "b": 60}), {"a": 4.0, "b": 0.5, "c": 9.0})
    speeds.add(load(2, 400, "a"), {"a": 2.0, "b": 0.0})
    assert speeds.bytes_per_s == {"a": pytest.approx(200), "b": pytest.approx(120)}
    assert speeds.processed_bytes == {"a": 1200, "b": 60}


def test_too_little_work_gives_no_speed() -> None:
    """Three milliseconds only show what a task costs."""
    speeds = measured([(1, 100, 0.003)])
    assert speeds.bytes_per_s == {}
    assert budget_by_speed(speeds, {"reader": 2}).size_bytes == 2 * FIRST_BYTES_BY_SPEED


def test_old_windows_are_forgotten() -> None:
    """A reader that has become slower is known to be slow."""
    speeds = measured([(1, 10**9, 1.0), *[(1, 1000, 1.0)] * MEASURED_WINDOWS])
    assert speeds.bytes_per_s == {"reader": pytest.approx(1000)}


def test_a_window_by_speed_has_a_block_for_each_partition() -> None:
    """A second of the partitions' work, or a block for each of them if that is more; the first window is small."""
    assert budget_by_speed(PartitionSpeeds(), {"reader": 1}).size_bytes == FIRST_BYTES_BY_SPEED
    speeds = measured([(10, 10_000, 2.0)])
    assert budget_by_speed(speeds, {"reader": 3}).size_bytes == 3 * 5000
    speeds.add(load(1, 10_000), {"reader": 18.0})
    assert budget_by_speed(speeds, {"reader": 3}).size_bytes == 3 * (20_000 // 11)
    assert budget_by_speed(speeds, {"reader": 1}).tuples == FIRST_WINDOW_TUPLES


def test_a_window_by_speed_holds_a_second_of_small_files() -> None:
    """As many as were measured, and not only as many as a first window."""
    speeds = measured([(1000, 100_000, 0.25)])
    assert budget_by_speed(speeds, {"reader": 2}).tuples == 2 * 4000
    assert budget_by_speed(speeds, {"reader": 40}).tuples == max_tuples(40)


def test_a_large_cluster_gets_larger_windows() -> None:
    """A second of a thousand tasks is more than a second of two; both rules have the same bound."""
    speeds = measured([(10, 10_000, 2.0)])
    for tasks, tuples in ((100, MAX_WINDOW_TUPLES), (1000, 1000 * TUPLES_PER_TASK)):
        by_throughput = budget_by_throughput(1e9, 1e9, tasks, 10**6)
        assert by_throughput.tuples == budget_by_speed(speeds, {"reader": tasks}).tuples == tuples


def test_windows_are_sized_by_speed_only_for_policies_that_need_it() -> None:
    """The first window shows which rule holds."""
    sizing = WindowSizing(2)
    assert sizing.budget().size_bytes == 2 * FIRST_WINDOW_BYTES
    sizing.size_by_speed(lambda: {"reader": 3})
    assert sizing.budget().size_bytes == 3 * FIRST_BYTES_BY_SPEED
    sizing.committed(load(10, 100_000_000), {"reader": 1.0}, {"reader": 1.0})
    assert sizing.budget().size_bytes == 300_000_000


def test_windows_are_shorter_where_a_target_writes_rows_again() -> None:
    """Before anything is measured: what it writes of the last window, no tasks run beside."""
    assert WindowSizing(2, writes_again=True).budget().size_bytes == 2 * LEAST_BYTES_WRITTEN_AGAIN
    assert 0 < LEAST_BYTES_WRITTEN_AGAIN < FIRST_WINDOW_BYTES


@given(RATES, RATES, TASKS, LARGEST)
def test_a_budget_by_throughput_is_positive_and_bounded(
    tuples_per_s: float, bytes_per_s: float, tasks: int, largest: int
) -> None:
    """Whatever was measured: never less than the first window, unless the bound is less, and never more than it."""
    budget = budget_by_throughput(tuples_per_s, bytes_per_s, tasks, largest)
    assert budget.tuples <= max(MAX_GROWTH * largest, FIRST_WINDOW_TUPLES * tasks)
    assert 0 < min(FIRST_WINDOW_TUPLES * tasks, max_tuples(tasks)) <= budget.tuples <= max_tuples(tasks)
    assert 0 < min(FIRST_WINDOW_BYTES * tasks, MAX_WINDOW_BYTES) <= budget.size_bytes <= MAX_WINDOW_BYTES


@given(st.tuples(RATES, RATES), st.tuples(RATES, RATES), TASKS, TASKS, LARGEST)
def test_a_budget_grows_with_throughput_and_tasks(
    slow: tuple[float, float], fast: tuple[float, float], few: int, many: int, largest: int
) -> None:
    """A faster or a larger cluster never gets a smaller window."""
    low, high = (min(slow[0], fast[0]), min(slow[1], fast[1])), (max(slow[0], fast[0]), max(slow[1], fast[1]))
    smaller = budget_by_throughput(*low, min(few, many), largest)
    larger = budget_by_throughput(*high, max(few, many), largest)
    assert smaller.tuples <= larger.tuples
    assert smaller.size_bytes <= larger.size_bytes


@given(WINDOWS, TASKS)
def test_a_budget_by_speed_is_positive_and_bounded(windows: list[tuple[int, int, float]], partitions: int) -> None:
    """Whatever was measured, and also before anything was."""
    budget = budget_by_speed(measured(windows), {"reader": partitions})
    assert 0 < budget.tuples <= max_tuples(partitions)
    assert 0 < budget.size_bytes <= MAX_WINDOW_BYTES
    if not windows:
        assert budget.size_bytes == min(partitions * FIRST_BYTES_BY_SPEED, MAX_WINDOW_BYTES)


@given(st.integers(1, 10**12), st.floats(MIN_MEASURED_S, 1e4), TASKS, TASKS)
def test_a_budget_by_speed_grows_with_partitions(size_bytes: int, busy_s: float, few: int, many: int) -> None:
    """It lasts about the target however many partitions there are."""
    speeds = measured([(10**9, size_bytes, busy_s)])
    small, large = (budget_by_speed(speeds, {"reader": n}) for n in sorted((few, many)))
    assert small.size_bytes <= large.size_bytes
    per_partition = max(int(size_bytes / busy_s * WINDOW_TARGET_S), size_bytes // 10**9, 1)
    assert large.size_bytes == min(max(few, many) * per_partition, MAX_WINDOW_BYTES)


@given(WINDOWS)
def test_a_measured_window_never_leaves_a_useless_budget(windows: list[tuple[int, int, float]]) -> None:
    """A run may measure anything; the driver can always emit a tuple."""
    sizing = WindowSizing(2)
    for tuples, size_bytes, busy_s in windows:
        sizing.emitted(load(tuples, size_bytes))
        sizing.committed(load(tuples, size_bytes), {"reader": busy_s}, {"reader": busy_s})
        assert sizing.budget().tuples >= 2 * FIRST_WINDOW_TUPLES
        assert sizing.budget().size_bytes >= 2 * FIRST_WINDOW_BYTES


def test_a_fast_run_grows_to_the_largest_windows_in_few_steps() -> None:
    """Each window is at most so many times as large as the largest before it, whether that is committed or not."""
    sizing, sizes = WindowSizing(1), []
    for _ in range(4):
        sizes.append(sizing.budget().tuples)
        sizing.emitted(load(sizes[-1], 10))
        sizing.committed(load(10**9, 10), {"reader": 0.1}, {"reader": 0.1})
    first = FIRST_WINDOW_TUPLES
    assert sizes == [first, MAX_GROWTH * first, MAX_WINDOW_TUPLES, MAX_WINDOW_TUPLES]


def test_tasks_take_as_long_as_the_slots_for_them_let_them() -> None:
    """Sixteen tasks of a second take eight on two cores, and one if all run at the same time; stages follow another."""
    busy_s, longest_s = {"reader": 16.0, "writer": 1.0}, {"reader": 1.0, "writer": 1.0}
    assert working_s(busy_s, longest_s, 2) == 9.0
    assert working_s(busy_s, longest_s, 16) == working_s(busy_s, longest_s, 1000) == 2.0


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_what_a_window_costs_beside_its_tasks_makes_no_smaller_ones(elapsed_s: float, tasks_s: float) -> None:
    """A slow journal, or a job of Spark's, costs a window of ten files as much as one of ten thousand."""
    seconds = counted_s(elapsed_s, tasks_s)
    assert MIN_WINDOW_S <= seconds <= max(tasks_s, MIN_WINDOW_S)
    assert seconds <= max(elapsed_s, MIN_WINDOW_S), "windows that overlap are faster than each of them"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**13), TASKS)
def test_limits_make_more_windows(blocks: int, files: int, size_bytes: int, tasks: int) -> None:
    """Limits of files and bytes only make windows smaller; an input without blocks and files takes no window."""
    found = InputEstimate(files, blocks, size_bytes)
    without = first_windows(found, WindowLimits(), tasks)
    assert first_windows(InputEstimate(), WindowLimits(1, 1, 1), tasks) == 0
    for limits in (WindowLimits(files=7), WindowLimits(size_bytes=1000)):
        assert first_windows(found, limits, tasks) >= without
    assert first_windows(found, WindowLimits(blocks=1), tasks) >= blocks
