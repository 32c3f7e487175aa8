"""Suggestions in errors: the name that a misspelt one most likely means, and options that name many windows."""

from __future__ import annotations

import difflib
import itertools
import shlex
from collections.abc import Collection, Iterable

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


def window_options(window_ids: Iterable[int]) -> str:
    """The options by which `dagflow replay` takes windows, as few as possible: "--window 3 --window 7-12"."""
    # Windows in a row have the same distance from their positions.
    rows = itertools.groupby(enumerate(sorted(window_ids)), lambda each: each[1] - each[0])
    ranges = [[window_id for _, window_id in row] for _, row in rows]
    return " ".join(f"--window {own[0]}" if own[0] == own[-1] else f"--window {own[0]}-{own[-1]}" for own in ranges)


def command_to_run(app: str, *, is_local: bool) -> str:
    """The command line that runs an app as before: on this machine, where the run before was there."""
    return f"dagflow run {shlex.quote(app or 'APP')}{' --local' if is_local else ''}"


def command_to_replay(checkpoint: str, window_ids: Iterable[int], *, is_local: bool) -> str:
    """The command line that runs windows again, likewise; the checkpoint without its secrets."""
    return f"dagflow replay {shlex.quote(checkpoint)} {window_options(window_ids)}{' --local' if is_local else ''}"
