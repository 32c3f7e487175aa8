"""How fast figures grow."""

from __future__ import annotations

from dagflow.report.rates import RATE_WINDOW_S, Rate


def test_a_rate_covers_the_last_seconds_only() -> None:
    """What was fast long ago does not count, and nothing is known before two moments."""
    rate = Rate()
    assert rate.per_second == 0.0
    rate.update(0.0, 0)
    rate.update(1.0, 1000)
    assert rate.per_second == 1000.0
    for second in range(2, 20):
        rate.update(float(second), 1000 + second)
    assert rate.per_second == 1.0
    assert RATE_WINDOW_S < 18


def test_a_figure_that_goes_back_has_no_rate() -> None:
    """A window that is committed may hold less than its tasks had reported."""
    rate = Rate()
    rate.update(0.0, 10)
    rate.update(1.0, 5)
    assert rate.per_second == 0.0
