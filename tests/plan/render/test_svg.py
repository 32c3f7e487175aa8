"""Text is clipped and wrapped to the room that there is."""

from __future__ import annotations

from dagflow.plan.render.svg import clipped, text_width, wrapped


def test_a_text_that_is_too_wide_keeps_both_ends() -> None:
    """Names of one app often begin alike."""
    name = "orders_of_the_last_year_by_payment_and_country"
    shown = clipped(name, 14, 150)
    assert text_width(shown, 14) <= 150 < text_width(name, 14)
    begin, _, end = shown.partition("…")
    assert len(begin) > 4 and len(end) > 4 and name.startswith(begin) and name.endswith(end)
    assert clipped("short", 14, 150) == "short"


def test_a_line_is_broken_between_words() -> None:
    """A word that is too wide stands alone."""
    assert list(wrapped("once the stages have run", 12, 80)) == ["once the", "stages have", "run"]
    assert list(wrapped("a " + "w" * 40, 12, 80)) == ["a", "w" * 40]
    assert list(wrapped("", 12, 80)) == []
