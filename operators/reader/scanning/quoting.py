"""Finds which newlines of a CSV file are inside of quotes, without the bytes before a block.

A quote opens a field only where one begins: behind a delimiter or a newline. It closes the field
unless it is doubled. So a run of quotes, taken as a whole, does one of three things, whatever the state
it meets: an even number changes nothing; an odd number where a field may begin swaps inside and outside;
any other odd number leads outside. The effect of a stretch of the file is one of four functions from
state to state, which compose, and can be found without knowing the state at its beginning.

Source:
    The composition of transition functions over chunks follows data-parallel finite-state machines
    (Mytkowicz, Musuvathi, Schulte, 2014).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.reader.scanning.file_view import Bytes
from operators.reader.scanning.positions import Positions, positions_of
from operators.reader.scanning.search import CR, LF, NONE, escaped_positions

OUTSIDE, INSIDE = 0, 1


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of a stretch on the state.

    Attributes:
        after_outside: The state behind it when it begins outside of quotes.
        after_inside: The state behind it when it begins inside of quotes.
    """

    after_outside: int = OUTSIDE
    after_inside: int = INSIDE

    def applied(self, state: int) -> int:
        """The state behind the stretch."""
        return self.after_inside if state == INSIDE else self.after_outside

    def then(self, other: Transition) -> Transition:
        """The effect of this stretch and the next one together."""
        return Transition(other.applied(self.after_outside), other.applied(self.after_inside))


@dataclass(frozen=True, slots=True)
class Dialect:
    """The bytes with a meaning in CSV.

    Attributes:
        delimiter: The byte between fields.
        quote: The byte around fields.
        escape: Makes the next byte literal; -1 if there is none.
    """

    delimiter: int
    quote: int
    escape: int = -1

    def is_separator(self, data: Bytes) -> npt.NDArray[np.bool_]:
        """For each byte whether a field may begin behind it."""
        found: npt.NDArray[np.bool_] = (data == self.delimiter) | (data == LF) | (data == CR)
        return found


@dataclass(frozen=True, slots=True)
class Quoting:
    """The quotes of a stretch that does not begin within a run of them.

    Attributes:
        escaped: Positions at which no byte has a meaning.
        runs: Where each run of quotes begins.
        lengths: How many quotes it has.
        parities: For each run how often, modulo 2, the state has been swapped since it was last known.
        is_known: For each run whether the state behind it does not depend on the state before the stretch.
    """

    escaped: Positions
    runs: Positions
    lengths: Positions
    parities: npt.NDArray[np.int64]
    is_known: npt.NDArray[np.bool_]

    def state_before(self, positions: Positions, state: int) -> npt.NDArray[np.int64]:
        """The state at positions that are no quotes, when the stretch begins in a given state."""
        behind = np.where(self.is_known, self.parities, self.parities ^ state)
        return np.append(state, behind)[np.searchsorted(self.runs, positions)]

    def transition(self, end: int) -> Transition:
        """The effect of the runs that begin before end."""
        count = int(np.searchsorted(self.runs, end))
        if not count:
            return Transition()
        parity = int(self.parities[count - 1])
        return Transition(parity, parity if self.is_known[count - 1] else parity ^ 1)


def quoting_of(data: Bytes, dialect: Dialect, may_begin: bool) -> Quoting:
    """Find the quotes in a stretch.

    Args:
        data: The stretch; its first byte is not escaped, and no quote that belongs to one before it.
        dialect: The bytes with a meaning.
        may_begin: Whether a field may begin at its first byte.
    """
    escaped = escaped_positions(data, dialect.escape) if dialect.escape >= 0 else NONE
    quotes = positions_of(data == dialect.quote)
    if len(escaped) and len(quotes):
        quotes = quotes[~np.isin(quotes, escaped, assume_unique=True)]
    if not len(quotes):
        return Quoting(escaped, NONE, NONE, NONE, np.empty(0, bool))
    firsts = np.flatnonzero(np.append(True, np.diff(quotes) > 1))
    runs = quotes[firsts]
    lengths = np.diff(np.append(firsts, len(quotes)))
    follows = dialect.is_separator(data[runs - 1])
    if len(escaped):
        follows &= ~np.isin(runs - 1, escaped, assume_unique=True)
    if runs[0] == 0:
        follows[0] = may_begin
    is_odd = lengths % 2 == 1
    swaps = np.cumsum(is_odd & follows)
    resets = np.where(is_odd & ~follows, np.arange(len(runs)), -1)
    last = np.maximum.accumulate(resets)
    parities = (swaps - np.where(last >= 0, swaps[last], 0)) % 2
    return Quoting(escaped, runs, lengths, parities, last >= 0)


def undecided_from(data: Bytes, dialect: Dialect) -> int:
    """The start of the last bytes of a range whose meaning depends on later bytes, or on each other."""
    size = len(data)
    look = 64
    while True:
        tail = data[max(0, size - look) :]
        plain = np.flatnonzero((tail != dialect.quote) & (tail != CR) & (tail != dialect.escape))
        if len(plain):
            return size - len(tail) + int(plain[-1]) + 1
        if look >= size:
            return 0
        look *= 8
