"""What errors suggest."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dagflow.suggestions import did_you_mean, nearest, window_options

CHOICES = ("json_lines", "lines", "Parquet", "path", "paths_of")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("line", "lines"),
        ("PARQET", "Parquet"),
        ("json", "json_lines"),
        ("p", None),
        ("", None),
        ("xyz", None),
        ("lines" * 1_000_000, None),
    ],
    ids=["misspelt", "in other case", "shortened", "short for several", "empty", "like none", "megabytes"],
)
def test_the_nearest_choice_is_found(name: str, meant: str | None) -> None:
    """By its letters, or as the only one that begins so; as it is written."""
    assert nearest(name, CHOICES) == meant
    assert did_you_mean(name, CHOICES) == (f"; did you mean '{meant}'?" if meant else "")


@pytest.mark.parametrize(
    ("window_ids", "options"),
    [
        ([], ""),
        ([4], "--window 4"),
        ([3, 4], "--window 3-4"),
        ([9, 1, 3, 2, 7], "--window 1-3 --window 7 --window 9"),
        (range(5, 905), "--window 5-904"),
    ],
)
def test_windows_in_a_row_are_one_option(window_ids: Iterable[int], options: str) -> None:
    """Hundreds of them would not fit into an error."""
    assert window_options(window_ids) == options
