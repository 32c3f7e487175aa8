"""Finds delimiters in code units, including delimiters that overlap themselves, at any cut of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import CHUNK_BYTES
from operators.reader.scanning.file_view import Bytes, read_exactly
from operators.reader.scanning.positions import Positions, contains, positions_of
from operators.reader.scanning.terminated import Terminators

CodeUnits = npt.NDArray[Any]
"""Code units: bytes, or the 2 or 4 bytes that UTF-16 and UTF-32 are made of."""

NONE = np.empty(0, np.int64)

LF, CR = b"\n\r"

NEWLINES = ("\n", "\r\n", "\r")
"""The terminators of lines, in the order of the codes that find_newlines gives."""


@dataclass(frozen=True, slots=True)
class CodeUnit:
    """The unit that a text is encoded in: a byte, or the 2 or 4 bytes of UTF-16 and UTF-32.

    Attributes:
        dtype: The numpy type of a code unit, with its byte order.
    """

    dtype: str = "u1"

    @property
    def size(self) -> int:
        """Bytes in a code unit."""
        return int(self.dtype[-1])

    def view(self, data: Bytes) -> CodeUnits:
        """Bytes as code units, without a torn unit at the end; the first byte begins a unit."""
        return data if self.size == 1 else data[: len(data) // self.size * self.size].view(self.dtype)


BYTE = CodeUnit()


def overlaps_itself(pattern: bytes, unit: CodeUnit = BYTE) -> bool:
    """Whether two occurrences of pattern can share code units, as those of `||` or `|+|` can."""
    return any(pattern.endswith(pattern[:length]) for length in range(unit.size, len(pattern), unit.size))


def occurrences(units: CodeUnits, pattern: CodeUnits) -> Positions:
    """Positions of a pattern, also of occurrences that share code units."""
    size = len(units) - len(pattern) + 1
    if size <= 0:
        return NONE
    hits = units[:size] == pattern[0]
    # Two comparisons of the whole range leave so few positions that looking these up costs next to nothing.
    if len(pattern) > 1:
        hits &= units[len(pattern) - 1 :] == pattern[-1]
    found = positions_of(hits)
    for index in range(1, len(pattern) - 1):
        found = found[units[found + index] == pattern[index]]
    return found


def without_overlaps(found: Positions, length: int) -> Positions:
    """The occurrences that a scan from left to right takes: each begins where the last taken one ended, or later.

    An occurrence is certainly taken if no other begins less than length before it. From these the others
    are reached by jumps to the next occurrence that does not overlap, doubled in each round.

    Args:
        found: Where a pattern occurs, ascending.
        length: Code units in the pattern.
    """
    if len(found) < 2:
        return found
    is_taken = np.empty(len(found) + 1, bool)
    is_taken[0], is_taken[-1] = True, False
    np.greater_equal(np.diff(found), length, out=is_taken[1:-1])
    heads = np.flatnonzero(is_taken)
    if len(heads) == len(found):
        return found
    longest = int(np.diff(np.append(heads, len(found))).max())
    jump = np.append(np.searchsorted(found, found + length), len(found))
    for _ in range(longest.bit_length()):
        is_taken[jump[np.flatnonzero(is_taken)]] = True
        jump = jump[jump]
    return found[is_taken[:-1]]


def escaped_positions(units: CodeUnits, escape: int) -> Positions:
    """Positions behind runs of an odd number of escapes, which are literal; runs must begin within units."""
    found = positions_of(units == escape)
    if not len(found):
        return NONE
    is_last = np.append(np.diff(found) > 1, True)
    lasts = np.flatnonzero(is_last)
    lengths = np.diff(lasts, prepend=-1)
    positions: Positions = found[lasts[lengths % 2 == 1]] + 1
    return positions


def active_escapes(units: CodeUnits, escape: int) -> Positions:
    """Positions of the escapes that make the next code unit literal: every other one in a run."""
    found = positions_of(units == escape)
    if not len(found):
        return found
    is_first = np.append(True, np.diff(found) > 1)
    first = found[is_first][np.cumsum(is_first) - 1]
    active: Positions = found[(found - first) % 2 == 0]
    return active


def find_newlines(
    units: CodeUnits, is_at_end: bool, line_feed: int = LF, carriage_return: int = CR, escaped: Positions | None = None
) -> Terminators:
    """Find LF, CR LF and CR, as Hadoop's line reader does; codes are indices into NEWLINES.

    A CR that ends the stretch is left out unless the file ends there, because an LF may follow.

    Args:
        units: Code units.
        is_at_end: Whether the file ends where they do.
        line_feed: The code unit of LF.
        carriage_return: The code unit of CR.
        escaped: Positions at which neither counts.
    """
    if escaped is None and not contains(units, carriage_return):
        starts = positions_of(units == line_feed)
        return Terminators(starts, starts + 1)
    is_return = units == carriage_return
    is_feed = units == line_feed
    if escaped is not None:
        escaped = escaped[escaped < len(units)]
        is_return[escaped] = is_feed[escaped] = False
    ends_line = is_feed.copy()
    ends_line |= is_return
    ends_line[:-1] ^= is_return[:-1] & is_feed[1:]
    if len(units) and not is_at_end and is_return[-1]:
        ends_line[-1] = False
    last = positions_of(ends_line)
    codes = np.where(is_return[last], 2, is_return[last - 1] & (last > 0)).astype(np.uint8)
    return Terminators(last - (codes == 1), last + 1, codes)


@dataclass(frozen=True, slots=True)
class BackwardSearch:
    """Searches a file backwards from a position.

    Attributes:
        source: The file.
        floor: Where its first record begins; bytes before it are not read.
        unit: The code unit of its text; positions are examined in steps of it from floor on.
        step: Number of bytes that are examined first; it doubles.
    """

    source: ByteSource
    floor: int
    unit: CodeUnit = BYTE
    step: int = 64

    def aligned(self, position: int) -> int:
        """The last border of a code unit that is not behind position; at least floor."""
        return max(self.floor, position - (position - self.floor) % self.unit.size)

    def units(self, start: int, end: int) -> CodeUnits:
        """The code units between two borders."""
        return self.unit.view(read_exactly(self.source, start, end))

    def run_start(self, position: int, value: int) -> int:
        """The start of the run of equal code units that ends at position; position if there is none."""
        step = self.step
        while position > self.floor:
            low = self.aligned(position - max(step, self.unit.size))
            others = np.flatnonzero(self.units(low, position) != value)
            if len(others):
                return low + (int(others[-1]) + 1) * self.unit.size
            position, step = low, min(2 * step, CHUNK_BYTES)
        return position

    def before_overlaps(self, place: int, pattern: CodeUnits, escape: int | None = None) -> int:
        """The position from which a scan for a pattern that overlaps itself is correct from place on.

        The scan may begin at any position that no occurrence begins less than the pattern's length before: occurrences
        that the scan takes before it end there at the latest. The nearest such position is searched backwards, as far
        as occurrences that share code units follow each other.

        Args:
            place: A border of a code unit; every occurrence that begins here or later must be correct.
            pattern: The pattern's code units.
            escape: The code unit that makes the next one literal, or None; not in pattern.
        """
        size, step = self.unit.size, self.step
        length = len(pattern) * size
        while place > self.floor:
            low = self.aligned(place - max(step, length))
            if escape is not None:
                low = self.run_start(low, escape)
            units = self.units(low, place + length - size)
            before = occurrences(units, pattern)
            if escape is not None:
                before = np.setdiff1d(before, escaped_positions(units, escape), assume_unique=True)
            before = before * size + low
            positions = np.append(before[before < place], place)
            apart = np.flatnonzero(np.diff(positions) >= length)
            if len(apart):
                return int(positions[apart[-1] + 1])
            first = int(positions[0])
            if first - low >= length - size or low == self.floor:
                return first
            place, step = first, min(2 * step, CHUNK_BYTES)
        return place
