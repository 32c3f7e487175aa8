"""The deadline autoscaler meets its target, ignores noise, never starves and takes bounded steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.partitioning import BacklogStats
from operators.deadline import DeadlinePartitioner, StatelessPartitioner

TICK_MILLIS = 500
RATE = 10_000.0


@dataclass
class SimulatedBacklog:
    """A backlog that partitions process at a steady speed, seen through a speed that trembles.

    Attributes:
        policy: Who decides.
        noise: The measured speed is off by up to this share.
        counts: The partitions at each tick.
        backlogs: The bytes that wait at each tick.
    """

    policy: DeadlinePartitioner
    noise: float = 0.0
    counts: list[int] = field(default_factory=list)
    backlogs: list[float] = field(default_factory=list)

    def run(self, arrivals: list[float], ticks: int, seed: int = 0) -> None:
        """Let bytes arrive, one amount each tick, and process them."""
        chance = random.Random(seed)
        current = self.policy.define_partitions(BacklogStats(0, 0, 0))
        backlog = processed = 0.0
        for tick in range(ticks):
            backlog += arrivals[tick] if tick < len(arrivals) else 0.0
            measured = RATE * (1 + chance.uniform(-self.noise, self.noise)) if tick else 0.0
            load = int(backlog > 0), int(backlog), measured
            stats = BacklogStats(tick * TICK_MILLIS, current, *load, processed_bytes=int(processed))
            if self.policy.process_stats(stats).repartition:
                current = self.policy.define_partitions(stats)
            self.counts.append(current)
            self.backlogs.append(backlog)
            done = min(backlog, current * RATE * TICK_MILLIS / 1000)
            backlog, processed = backlog - done, processed + done

    @property
    def changes(self) -> int:
        """How often the count changed."""
        return sum(one != other for one, other in pairwise(self.counts))


def deadline(**properties: object) -> DeadlinePartitioner:
    """A policy with a target of 20 s, which may change every second."""
    return DeadlinePartitioner(**{"target_millis": 20_000, "cool_down_millis": 1_000, **properties})


@given(st.integers(1, 14), st.floats(0, 0.1), st.integers(0, 5))
def test_a_backlog_is_worked_off_in_time(partitions: int, noise: float, seed: int) -> None:
    """A backlog that so many partitions can just process is processed within the target and the time to get going."""
    plant = SimulatedBacklog(deadline(), noise)
    plant.run([partitions * RATE * 20], ticks=120, seed=seed)
    emptied_at = next(tick for tick, backlog in enumerate(plant.backlogs) if tick and not backlog) * TICK_MILLIS
    ramp_up = 1_000 * partitions.bit_length() + 1_000
    assert emptied_at <= 20_000 + ramp_up
    assert plant.counts[-1] == 1


@given(st.integers(1, 12), st.integers(0, 20))
def test_figures_that_tremble_make_no_count_tremble(partitions: int, seed: int) -> None:
    """With a steady inflow between two counts they take turns slowly, although measured speeds are off by a tenth."""
    plant = SimulatedBacklog(deadline(), noise=0.1)
    plant.run([(partitions + 0.5) * RATE * TICK_MILLIS / 1000] * 400, ticks=400, seed=seed)
    changed = [(tick, after - before) for tick, (before, after) in enumerate(pairwise(plant.counts)) if after != before]
    back_and_forth = [later - tick for (tick, way), (later, back) in pairwise(changed) if way * back < 0]
    # A fifth of the target and more passes before a change is taken back; between one and two that is a great change.
    assert all(ticks * TICK_MILLIS >= 4_000 for ticks in back_and_forth)
    # The backlog stays below what arrives within the target.
    assert max(plant.backlogs) <= (partitions + 0.5) * RATE * 20 * 1.1
    assert set(plant.counts[200:]) <= {partitions, partitions + 1}


@given(
    st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 10**6)), min_size=1, max_size=60),
    st.integers(2, 4),
    st.integers(1, 4),
)
def test_changes_are_bounded_whatever_comes(samples: list[tuple[int, float]], max_step: int, least: int) -> None:
    """Within the limits, by no more than the step, and no two within the cool-down."""
    policy = deadline(max_step=max_step, min_partitions=least, max_partitions=40, cool_down_millis=1_200)
    current = policy.define_partitions(BacklogStats(0, 0, 0))
    assert current == least
    changed_at = None
    for tick, (size_bytes, rate) in enumerate(samples):
        stats = BacklogStats(tick * TICK_MILLIS, current, 1, size_bytes, rate)
        if not policy.process_stats(stats).repartition:
            continue
        after = policy.define_partitions(stats)
        assert least <= after <= 40 and after != current
        assert after <= current * max_step and after * max_step >= current
        assert changed_at is None or stats.now_millis - changed_at >= 1_200
        current, changed_at = after, stats.now_millis


def test_what_trickles_in_does_not_put_off_what_waits() -> None:
    """A byte each tick has its own time; what waited before is processed in its own."""
    plant = SimulatedBacklog(deadline())
    plant.run([8 * RATE * 20, *[1.0] * 60], ticks=60)
    assert max(plant.counts) >= 8
    assert plant.backlogs[2 * 25] <= 60


def test_time_begins_when_a_speed_is_known() -> None:
    """A first window that took longer than the target is no reason to hurry."""
    policy = deadline()
    assert not policy.process_stats(BacklogStats(0, 1, 1, 800_000, 0.0)).repartition
    asked = policy.process_stats(BacklogStats(30_000, 1, 1, 800_000, RATE))
    assert asked.reason.startswith("800000 bytes within 20000 ms")


def test_what_is_known_to_come_counts() -> None:
    """A backlog is bounded, what comes behind it is not."""
    policy = deadline()
    asked = policy.process_stats(BacklogStats(0, 1, 1, 100_000, RATE, unemitted_bytes=700_000))
    assert asked.reason.startswith("800000 bytes within 20000 ms")


def test_what_is_late_is_hurried_until_it_is_done() -> None:
    """A deadline that has passed does not begin anew."""
    policy = deadline(max_partitions=2)
    for now_millis in range(0, 60_000, 500):
        stats = BacklogStats(now_millis, 2, 1, 10**6 - now_millis, RATE, processed_bytes=now_millis)
        assert not policy.process_stats(stats).repartition
    assert "within 2000 ms" in policy.process_stats(stats).reason


def test_each_decision_says_why() -> None:
    """Backlog, time, speed and need; what holds a change back is said as well."""
    policy = deadline()
    assert policy.process_stats(BacklogStats(0, 1, 1, 100, 0.0)).reason == "no speed is known yet"
    asked = policy.process_stats(BacklogStats(500, 1, 1, 800_000, RATE))
    assert asked.repartition
    assert asked.reason == "800000 bytes within 20000 ms at 10000 bytes/s each take 4: 1 to 2"
    held = policy.process_stats(BacklogStats(1000, 2, 1, 800_000, RATE))
    assert not held.repartition and held.reason.endswith("4 wanted, but the last change is 500 ms old")


def test_its_arguments_are_checked() -> None:
    """Ranges are not empty, shares are shares."""
    with pytest.raises(ValueError, match="min_partitions, 5, is above max_partitions, 4"):
        DeadlinePartitioner(min_partitions=5, max_partitions=4)
    with pytest.raises(ValueError, match="slack"):
        DeadlinePartitioner(slack=1.0)


def test_a_fixed_count_stays() -> None:
    """Whatever waits."""
    policy = StatelessPartitioner(count=3)
    assert policy.define_partitions(BacklogStats(0, 0, 0)) == policy.define_partitions(BacklogStats(9, 1, 10**9)) == 3
    assert not policy.process_stats(BacklogStats(9, 3, 10**9)).repartition
