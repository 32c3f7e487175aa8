"""Finds the elements of a name in a stretch of XML, all at once."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from operators.reader.scanning.search import NONE, Positions, contains, positions_of

ASIDES = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
"""How what hides text begins, and how it ends."""

REST_OF_TAG = re.compile(rb"""(?:[^>"']|"[^"]*"|'[^']*')*>""")

_LESS, _GREATER, _SLASH = b"<>/"
_QUOTES = b"\"'"


def plain_elements(data: bytes, tag: bytes) -> tuple[Positions, Positions]:
    """The first elements of a stretch that begins outside of them, up to something that needs a closer look.

    That is an element or an aside that does not end in the stretch, a document type, a tag with `<` in its attributes,
    or an end without a beginning.

    Returns:
        Where each begins, and where each ends.
    """
    units = np.frombuffer(data, np.uint8)
    marks = np.flatnonzero((units == _LESS) | (units == _GREATER))
    openings = np.flatnonzero(units[marks] == _LESS)
    brackets, following = marks[openings], np.append(marks, len(data))[openings + 1]
    # The name of a tag, and the byte behind it, lie in the stretch.
    brackets = brackets[: int(np.searchsorted(brackets, len(data) - len(tag) - 2))]
    if not len(brackets):
        return NONE, NONE
    steps, known = _steps(data, units, brackets, tag)
    tags = np.flatnonzero(steps[:known])
    ends = _ends(data, units, brackets, following, tags)
    stops = np.flatnonzero(ends < 0)
    tags, ends = (tags[: stops[0]], ends[: stops[0]]) if len(stops) else (tags, ends)
    if not len(tags):
        return NONE, NONE
    changes = steps[tags]
    changes[(changes > 0) & (units[ends - 2] == _SLASH)] = 0
    depths = np.cumsum(changes, dtype=np.int32)
    if (negative := np.flatnonzero(depths < 0)).size:
        tags, ends, depths = tags[: negative[0]], ends[: negative[0]], depths[: negative[0]]
    closes = depths == 0
    stops = ends[closes]
    opens = np.append(True, closes[:-1])[: len(tags)]
    return brackets[tags[opens]][: len(stops)], stops


def _steps(
    data: bytes, units: npt.NDArray[np.uint8], brackets: Positions, tag: bytes
) -> tuple[npt.NDArray[np.int8], int]:
    """For each bracket 1 where it begins an element of the name, -1 where it ends one; and how many are known."""
    steps = np.zeros(len(brackets), np.int8)
    second = units[brackets + 1]
    for step, begin, last in ((1, tag, b" \t\r\n/>"), (-1, b"/" + tag, b" \t\r\n>")):
        rows = np.flatnonzero(second == begin[0])
        for index, byte in enumerate(begin[1:], 2):
            rows = rows[units[brackets[rows] + index] == byte]
        may_follow = np.isin(np.arange(256), list(last))
        steps[rows[may_follow[units[brackets[rows] + len(begin) + 1]]]] = step
    hidden = 0
    for row in np.flatnonzero((second == ord("!")) | (second == ord("?"))).tolist():
        start = int(brackets[row])
        aside = next((begin for begin in ASIDES if data.startswith(begin, start)), None)
        if start >= hidden and aside is not None:
            end = data.find(ASIDES[aside], start + len(aside))
            if end < 0:
                return steps, row
            hidden = end + len(ASIDES[aside])
            steps[row : np.searchsorted(brackets, hidden)] = 0
        elif start >= hidden and data.startswith(b"<!DOCTYPE", start):
            return steps, row
    return steps, len(steps)


def _ends(
    data: bytes, units: npt.NDArray[np.uint8], brackets: Positions, following: Positions, tags: Positions
) -> Positions:
    """Where each tag ends, by the next bracket of any kind; -1 where it does not, or has the beginning of one in it."""
    starts, ends = brackets[tags], following[tags]
    is_open, kinds = np.zeros(len(tags), bool), np.zeros(len(tags), np.int8)
    for quote in _QUOTES:
        if contains(units, quote):
            quotes = positions_of(units == quote)
            counts = np.searchsorted(quotes, ends) - np.searchsorted(quotes, starts)
            is_open |= (counts & 1).astype(bool)
            kinds += counts > 0
    ends = np.where(units[np.minimum(ends, len(data) - 1)] == _GREATER, ends + 1, -1)
    # The end of others may be in quotes.
    rows = np.flatnonzero((is_open | (kinds > 1)) & (ends > 0))
    latest = np.append(brackets, len(data))[tags[rows] + 1]
    for row, start, most in zip(rows.tolist(), starts[rows].tolist(), latest.tolist(), strict=True):
        rest = REST_OF_TAG.match(data, start + 1)
        ends[row] = rest.end() if rest and rest.end() <= most else -1
    return ends
