from __future__ import annotations

import threading

from tests.manual_clock import ManualClock


def test_time_stands_still_until_it_is_advanced() -> None:
    """Both readings move together, and by nothing else."""
    clock = ManualClock(now_millis=5000)
    assert (clock.now_millis(), clock.elapsed_s()) == (5000, 0.0)
    clock.advance(1500)
    assert (clock.now_millis(), clock.elapsed_s()) == (6500, 1.5)


def test_a_thread_that_waits_wakes_when_the_deadline_is_reached() -> None:
    """Whether it began to wait before or after the clock was advanced."""
    clock = ManualClock()
    condition = threading.Condition()
    woken: list[float] = []

    def wait() -> None:
        with condition:
            while clock.elapsed_s() < 3:
                clock.wait_until(condition, 3.0)
            woken.append(clock.elapsed_s())

    for _ in range(50):
        clock = ManualClock()
        thread = threading.Thread(target=wait)
        thread.start()
        clock.advance(1000)
        assert woken == []
        clock.advance(2000)
        thread.join(30)
        assert not thread.is_alive()
        assert woken.pop() == 3.0
