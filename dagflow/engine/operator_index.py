"""Numbers that tell the operators of an app apart for as long as its checkpoint lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def index_operators(names: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each operator: the number that it had in earlier runs, or a new one.

    An operator that is put before others in the app does not take their numbers: block ids that were given out under
    a number are part of the names of published files.

    Args:
        names: The operators, in the order of the app.
        known: The numbers of earlier runs, also of operators that the app no longer has.

    Returns:
        The numbers, counted from 0, of all operators that ever had one.
    """
    index = dict(known)
    for name in names:
        index.setdefault(name, max(index.values(), default=-1) + 1)
    return index
