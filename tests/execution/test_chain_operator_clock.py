"""Seconds that operators work."""

from __future__ import annotations

from dagflow.execution.chain import OperatorClock


def test_time_goes_to_the_operator_that_works() -> None:
    """An operator is not charged for what the operators downstream do while it emits, nor for pauses."""
    now = [100.0]
    clock = OperatorClock(["reader", "filter"], lambda: now[0])

    def work(seconds: float) -> None:
        now[0] += seconds

    work(5)
    outside = clock.switch("reader")
    work(1)
    before = clock.switch("filter")
    assert before == "reader"
    work(2)
    clock.switch(before)
    work(4)
    clock.switch(outside)
    work(8)
    assert clock.busy_s == {"reader": 5.0, "filter": 2.0}
