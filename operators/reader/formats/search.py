"""Finding a delimiter in bytes, also one that overlaps itself, and the phase of such a one at any cut."""

from __future__ import annotations

import numpy as np

from operators.reader.formats.base import CHUNK_BYTES, ByteSource
from operators.reader.formats.framing import Positions
from operators.reader.formats.window import Bytes, read_exactly


def overlaps_itself(pattern: bytes) -> bool:
    """Whether two occurrences of pattern can share bytes, as those of `||` or `|+|` can."""
    return any(pattern.endswith(pattern[:length]) for length in range(1, len(pattern)))


def occurrences(data: Bytes, pattern: bytes) -> Positions:
    """Where pattern occurs in data, occurrences that share bytes included."""
    size = len(data) - len(pattern) + 1
    if size <= 0:
        return np.empty(0, np.int64)
    hits = data[:size] == pattern[0]
    # Two comparisons of the whole stretch cost less than looking up the few bytes that the first leaves, unless
    # these are few indeed; from the third byte on they are.
    if len(pattern) > 1:
        hits &= data[len(pattern) - 1 :] == pattern[-1]
    found = np.flatnonzero(hits)
    for index in range(1, len(pattern) - 1):
        found = found[data[found + index] == pattern[index]]
    return found


def without_overlaps(found: Positions, length: int) -> Positions:
    """The occurrences that a scan from left to right takes, each beginning where or after the last taken one ended.

    An occurrence that none begins less than length before is taken for certain. From these the others
    are reached by jumps to the next occurrence that does not overlap, doubled in each round.

    Args:
        found: Where a pattern occurs, ascending.
        length: Bytes in the pattern.
    """
    if len(found) < 2:
        return found
    is_taken = np.empty(len(found), bool)
    is_taken[0] = True
    np.greater_equal(np.diff(found), length, out=is_taken[1:])
    if is_taken.all():
        return found
    heads = np.flatnonzero(is_taken)
    longest = int(np.diff(np.append(heads, len(found))).max())
    jump = np.append(np.searchsorted(found, found + length), len(found))
    is_taken = np.append(is_taken, False)
    for _ in range(longest.bit_length()):
        is_taken[jump[np.flatnonzero(is_taken)]] = True
        jump = jump[jump]
    return found[is_taken[:-1]]


def anchor_of(source: ByteSource, position: int, floor: int, pattern: bytes, step: int = 64) -> int:
    """Where to begin the scan for a pattern that overlaps itself, so that it is right from position on.

    The scan may begin at any place that no occurrence begins less than the pattern's length before: what
    it takes before that place ends there at the latest. The nearest such place is looked for backwards, as far
    as occurrences that share bytes follow each other.

    Args:
        source: The file.
        position: Every occurrence that ends here or later must be right.
        floor: Where the file's first record begins.
        pattern: The pattern.
        step: How far to look back at first; it doubles.

    Returns:
        An offset at least len(pattern) before position, or floor.
    """
    length = len(pattern)
    place = position - length
    step = max(step, length)
    while place > floor:
        low = max(floor, place - step)
        before = occurrences(read_exactly(source, low, place + length - 1), pattern) + low
        places = np.append(before[before < place], place)
        apart = np.flatnonzero(np.diff(places) >= length)
        if len(apart):
            return int(places[apart[-1] + 1])
        first = int(places[0])
        if first - low >= length - 1 or low == floor:
            return first
        place = first
        step = min(2 * step, CHUNK_BYTES)
    return floor
