"""What a misspelt name most likely means."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_COMPARED_CHARACTERS = 60
"""How much of a name is compared: a scalar of YAML may be megabytes long."""


def nearest(name: str, choices: Collection[str]) -> str | None:
    """The choice that a misspelt or shortened name most likely means, or None where none is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    compared = name[:_COMPARED_CHARACTERS].lower()
    close = difflib.get_close_matches(compared, by_lower, n=1, cutoff=0.6)
    if not close and name:
        longer = [choice for choice in by_lower if choice.startswith(compared)]
        close = longer if len(longer) == 1 else []
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, choices: Collection[str]) -> str:
    """The clause that suggests the nearest choice, or "" where none is close."""
    close = nearest(name, choices)
    return f"; did you mean '{close}'?" if close else ""
