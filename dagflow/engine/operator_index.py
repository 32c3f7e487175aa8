"""Numbers that tell the operators of an app apart for as long as its checkpoint lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def index_operators(names: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each operator: the one that it had, or one that nobody had before.

    An operator that is put before others in the app takes no other's number: ids that were given out under it name
    files by now.

    Args:
        names: The operators, in the order of the app.
        known: What this said before, with operators that the app no longer has.

    Returns:
        The numbers, from 0 on, of all that were ever named.
    """
    ordinals = dict(known)
    for name in names:
        ordinals.setdefault(name, max(ordinals.values(), default=-1) + 1)
    return ordinals
