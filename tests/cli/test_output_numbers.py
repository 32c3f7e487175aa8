"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.cli.output import brief, count, duration, size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024 * 1024 - 1, "1.0 MiB"),
        (150 * 1024, "150 KiB"),
        (64 << 20, "64.0 MiB"),
        (10 << 40, "10.0 TiB"),
        (1 << 70, "1024 EiB"),
    ],
)
def test_a_size_is_given_in_the_largest_unit_that_it_fills(size_bytes: int, text: str) -> None:
    """Sizes read as people write them in an app, with units of 1024."""
    assert size(size_bytes) == text


@given(st.integers(min_value=0, max_value=(1 << 69)))
def test_a_size_is_never_longer_than_a_column(size_bytes: int) -> None:
    """Whatever the size, a column of eight characters holds it."""
    assert len(size(size_bytes)) <= 8


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1000, "1.0 k"), (4_100_000, "4.1 M"), (999_600, "1.0 M")]
)
def test_a_brief_count_keeps_two_or_three_digits(number: float, text: str) -> None:
    """Rates are read at a glance, hence without all their digits."""
    assert brief(number) == text


def test_a_count_agrees_with_its_noun() -> None:
    """One file, two files, no files; an irregular plural is given."""
    assert [count(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert count(1234567) == "1,234,567"
    assert count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (59.96, "1:00"), (62, "1:02"), (3602, "1:00:02")]
)
def test_a_duration_never_shows_sixty_seconds(seconds: float, text: str) -> None:
    """Seconds below a minute, then clock notation."""
    assert duration(seconds) == text
