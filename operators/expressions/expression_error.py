"""Mistakes in expressions."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from dagflow.api.properties import PropertyTextError


class ExpressionError(PropertyTextError):
    """An expression is wrong, or does not fit the columns that it is computed of."""


def did_you_mean(name: str, choices: Collection[str]) -> str:
    """The clause that suggests the nearest choice, or "" where none is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), by_lower, 1)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""
