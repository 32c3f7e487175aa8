"""Distinguishes separators between pairs of key and value from those inside of quoted values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.storage.columns import borders_of
from operators.reader.scanning.positions import Positions, contains
from operators.reader.scanning.search import NONE, occurrences

MARK = r"\xff"
"""An expression for the byte that replaces the bytes of separators."""


def with_marks(texts: pa.StringArray, separator: str, assignment: str) -> pa.BinaryArray | None:
    r"""Texts in which separators outside of quotes are replaced, byte by byte, by \xff, which is in no text.

    A value is in quotes if one follows the first assignment of its pair, and the next quote ends the pair.

    Args:
        texts: Pairs of key and value, without nulls.
        separator: The character between pairs.
        assignment: The text between key and value.

    Returns:
        None if no separator is inside of quotes.
    """
    borders = borders_of(texts).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[borders[0] : borders[-1]]
    borders -= borders[0]
    if not contains(data, ord('"')):
        return None
    width = len(separator.encode())
    separators = occurrences(data, _bytes(separator))
    opened, closed = _quoted_values(data, borders, separators, width, _bytes(assignment))
    if not len(opened):
        return None
    before = np.searchsorted(opened, separators) - 1
    outside = separators[(before < 0) | (closed[before] <= separators)]
    if len(outside) == len(separators):
        return None
    marked = data.copy()
    for index in range(width):
        marked[outside + index] = 0xFF
    buffers = [None, pa.py_buffer(borders.astype(np.int32)), pa.py_buffer(marked)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(texts), buffers)


def _quoted_values(
    data: npt.NDArray[np.uint8],
    borders: Positions,
    separators: Positions,
    width: int,
    assignment: npt.NDArray[np.uint8],
) -> tuple[Positions, Positions]:
    """Where values with a separator in quotes are: the quotes that open them, and those that close them."""
    quotes = occurrences(data, _bytes('"'))
    # Most quotes are recognised by the byte before them, which is cheaper than a search.
    numbers = np.flatnonzero(data[quotes[:-1] - 1] == assignment[-1])
    opening, closing = quotes[numbers], quotes[numbers + 1]
    before, until = np.searchsorted(separators, opening), np.searchsorted(separators, closing)
    has_separator = before < until
    if not has_separator.any():
        return NONE, NONE
    opening, closing, numbers, before, until = (
        each[has_separator] for each in (opening, closing, numbers, before, until)
    )
    rows = np.searchsorted(borders, opening, "right")
    # With an added separator and assignment, so that there is one before and after each quote.
    pairs = np.maximum(np.append(separators, -width)[before - 1] + width, borders[rows - 1])
    assignments = occurrences(data, assignment)
    first = np.append(assignments, len(data))[np.searchsorted(assignments, pairs)]
    ends = np.minimum(np.append(separators, len(data))[until], borders[rows])
    is_value = (first + len(assignment) == opening) & (closing + 1 == ends)
    numbers = numbers[is_value]
    # A quote that closes one value opens no other.
    is_head = np.diff(numbers, prepend=-2) > 1
    heads = np.flatnonzero(is_head)
    is_taken = (np.arange(len(numbers)) - heads[np.cumsum(is_head) - 1]) % 2 == 0
    return opening[is_value][is_taken], closing[is_value][is_taken]


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)
