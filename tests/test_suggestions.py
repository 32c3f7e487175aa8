"""What a misspelt name most likely means."""

from __future__ import annotations

import pytest

from dagflow.suggestions import did_you_mean, nearest

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
