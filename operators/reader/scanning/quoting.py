"""Finds which newlines of a CSV file are inside of quotes, without the bytes before a block.

A quote opens a field only where one begins: behind a delimiter or a newline. It closes the field unless it is doubled.
So a run of quotes, taken as a whole, does one of three things, whatever the state it meets: an even number changes
nothing; an odd number where a field may begin swaps inside and outside; behind an odd number anywhere else, the text is
outside. The effect of a stretch of the file is one of four functions from state to state, which compose, and can be
found without knowing the state at its beginning.

Source:
    The composition of transition functions over chunks follows data-parallel finite-state machines
    (Mytkowicz, Musuvathi, Schulte, 2014).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.frozen import frozen
from operators.reader.byte_source import Bytes, ByteSource, FileView, read_exactly
from operators.reader.columns.machine_code import MachineCode
from operators.reader.scanning.search import (
    CR,
    LF,
    NONE,
    BackwardSearch,
    Bits,
    Positions,
    Terminators,
    bits_of,
    contains,
    escaped_positions,
    newlines_of,
    odd_bits,
    positions_of,
)

MARKER = MachineCode("operators.reader.columns.byte_kernels.mark_rows")
"""Machine code that finds the bytes with a meaning in rows of CSV."""


class RowMarks:
    """Where the bytes with a meaning are, from the beginning of a row on.

    Attributes:
        literal: The bytes inside of quotes, or escaped, whose delimiters and newlines mean nothing.
        quoting: The quotes; None where each opens a field where it begins, closes it where it ends, or is doubled
            inside: then the bytes inside are those behind an odd number of quotes.
        delimiters: The delimiters between fields.
    """

    def __init__(self, data: Bytes, dialect: Dialect) -> None:
        self._data, self._dialect = data, dialect
        self._none = np.zeros(max(1, -(-len(data) // 64)), np.uint64)
        self._bits = {-1: self._none}
        self.quoting: Quoting | None = None
        code = MARKER.after(len(data)) if self._at(dialect.escape) is self._none else None
        marked = None if code is None else code(data, dialect.delimiter, dialect.quote)
        if marked is None:
            self.literal = self._literal()
            self.delimiters = self._at(dialect.delimiter) & ~self.literal
        else:
            self.literal, self.delimiters, self._bits[LF], self._bits[CR] = marked

    def _at(self, value: int) -> Bits:
        if value not in self._bits:
            self._bits[value] = bits_of(self._data == value) if contains(self._data, value) else self._none
        return self._bits[value]

    def _literal(self) -> Bits:
        quotes = self._at(self._dialect.quote)
        if self._at(self._dialect.escape) is self._none:
            if quotes is self._none:
                return quotes
            inside, beside = odd_bits(quotes), quotes | self._at(self._dialect.delimiter) | self._at(LF) | self._at(CR)
            follows, precedes, last = beside << _ONE, beside >> _ONE, len(self._data) - 1
            follows[1:] |= beside[:-1] >> _HIGHEST
            precedes[:-1] |= beside[1:] << _HIGHEST
            follows[0] |= _ONE
            precedes[last >> 6] |= _ONE << np.uint64(last & 63)
            if not (quotes & ((inside & ~follows) | ~(inside | precedes))).any():
                return inside
        self.quoting = quoting_of(self._data, self._dialect, True)
        return self.quoting.literal(len(self._data), OUTSIDE)

    def are_of(self, buffer: pa.Buffer, size: int) -> bool:
        """Whether the first bytes of a buffer are among those that were marked; no buffer changes what it holds."""
        return buffer.address == self._data.ctypes.data and size <= len(self._data)

    def newlines(self, is_at_end: bool) -> Terminators:
        """The newlines that end rows."""
        others = ~self.literal
        return newlines_of(self._at(LF) & others, self._at(CR) & others, len(self._data), is_at_end)

    def is_literal(self, position: int) -> bool:
        """Whether a byte is inside of quotes, or escaped."""
        return bool(int(self.literal[position >> 6]) >> (position & 63) & 1)

    def field_counts(self, borders: Positions) -> Positions:
        """The number of fields of each row; the rows lie side by side, between these borders."""
        ends = np.append(self.delimiters, np.uint64(0))
        before = np.append(0, np.cumsum(np.bitwise_count(ends), dtype=np.int64))
        words, rest = borders >> 6, (borders & 63).astype(np.uint64)
        counts: Positions = before[words] + np.bitwise_count(ends[words] & ((_ONE << rest) - _ONE))
        return np.diff(counts) + 1


@frozen
class RowEntry:
    """Where a scan may begin."""

    position: int  # behind a run of quotes if one is there
    may_begin: bool


@frozen
class QuoteScan:
    """Scans a file for quotes and the newlines outside of them."""

    source: ByteSource
    dialect: Dialect
    probe_bytes: int
    chunk_bytes: int

    def entry(self, start: int, floor: int) -> RowEntry:
        """The position at or behind start where a scan may begin."""
        if start <= floor:
            return RowEntry(floor, True)
        dialect = self.dialect
        low = start - 1
        if dialect.escape >= 0:
            low = BackwardSearch(self.source, floor, step=min(64, self.chunk_bytes)).run_start(low, dialect.escape)
        before = read_exactly(self.source, low, start)
        escaped = escaped_positions(before, dialect.escape) + low if dialect.escape >= 0 else np.empty(0, np.int64)
        if start in escaped:
            return RowEntry(start + 1, False)
        if start - 1 in escaped:
            return RowEntry(start, False)
        if before[-1] != dialect.quote:
            return RowEntry(start, bool(dialect.is_separator(before[-1:])[0]))
        while start < self.source.size_bytes:
            data = read_exactly(self.source, start, start + self.probe_bytes)
            others = np.flatnonzero(data != dialect.quote)
            if len(others):
                return RowEntry(start + int(others[0]), False)
            start += len(data)
        return RowEntry(start, False)

    def next_row(self, entry: RowEntry, state: int, start: int, limit: int) -> int:
        """The first position from start on where a row begins, or limit."""
        for place, data, is_at_end, quoting, decided in self._stretches(entry, limit):
            others = ~quoting.literal(len(data), state)
            feeds, returns = bits_of(data == LF) & others, bits_of(data == CR) & others
            stops = newlines_of(feeds, returns, len(data), is_at_end).stops
            index = int(np.searchsorted(stops, start - place))
            if index < len(stops):
                return min(place + int(stops[index]), limit)
            state = quoting.transition(decided).applied(state)
        return limit

    def transition(self, start: int, end: int, floor: int, longest: int = sys.maxsize) -> Transition:
        """The effect on the state of the quotes that begin between two positions, read backwards.

        A quote that no field can begin with leads outside, whatever the state before it; so a range with quoted fields
        is read back to the last of these, and not to its beginning. Nor is one whose last bytes, as many as the longest
        row has, have quotes in pairs alone: they are outside, as a row that has all of them is too long.

        The bytes of a run of quotes before the start count as before it.
        """
        effect, may_change = Transition(), False
        high, step = end, self.probe_bytes
        while high > start and effect.after_outside != effect.after_inside:
            low, before = max(start, high - step, start if may_change else end - longest - 1), Transition()
            for place, _, _, quoting, decided in self._stretches(self.entry(low, floor), high):
                border = min(decided, high - place)
                may_change |= bool(quoting.is_odd[: np.searchsorted(quoting.runs, border)].any())
                before = before.then(quoting.transition(border))
            effect = before.then(effect)
            if not may_change and end - low > longest:
                return Transition(OUTSIDE, OUTSIDE)
            high, step = low, 4 * step
        return effect

    def _stretches(self, entry: RowEntry, end: int) -> Iterator[tuple[int, Bytes, bool, Quoting, int]]:
        """Position, bytes, whether the file ends there, quotes, and length that is decided, up to end at least."""
        view = FileView(self.source)
        position, may_begin = entry.position, entry.may_begin
        held, needed = self.probe_bytes, 0
        while position < end:
            data = view.move(position, position + max(needed, min(held, end + self.probe_bytes - position)))
            quoting = quoting_of(data, self.dialect, may_begin)
            decided = len(data) if view.is_at_end else undecided_from(data, self.dialect)
            if not len(data):
                return
            if not decided:
                needed = 2 * len(data)
                continue
            yield position, data, view.is_at_end, quoting, decided
            if view.is_at_end:
                return
            is_escaped = len(quoting.escaped) and bool(np.isin(decided - 1, quoting.escaped))
            may_begin = bool(self.dialect.is_separator(data[decided - 1 : decided])[0]) and not is_escaped
            position, needed, held = position + decided, 0, min(2 * held, self.chunk_bytes)


OUTSIDE, INSIDE = 0, 1

_ONE, _HIGHEST = np.uint64(1), np.uint64(63)

_NO_FLAGS = np.empty(0, bool)


@frozen
class Transition:
    """The effect of a stretch on the state."""

    after_outside: int = OUTSIDE
    after_inside: int = INSIDE

    def applied(self, state: int) -> int:
        """The state behind the stretch."""
        return self.after_inside if state == INSIDE else self.after_outside

    def then(self, other: Transition) -> Transition:
        """The effect of this stretch and the next one together."""
        return Transition(other.applied(self.after_outside), other.applied(self.after_inside))


@frozen
class Dialect:
    """The bytes with a meaning in CSV."""

    delimiter: int
    quote: int  # -1 if there is none
    escape: int = -1  # makes the next byte literal

    def is_separator(self, data: Bytes) -> npt.NDArray[np.bool_]:
        """For each byte whether a field may begin behind it."""
        found: npt.NDArray[np.bool_] = (data == self.delimiter) | (data == LF) | (data == CR)
        return found


@frozen
class Quoting:
    """The quotes of a stretch that does not begin within a run of them.

    Attributes:
        escaped: Positions at which no byte has a meaning.
        runs: Where each run of quotes begins.
        lengths: How many quotes it has.
        is_odd: Whether it has an odd number of them.
        may_open: For each run whether a field may begin there, unless it is inside of quotes.
        parities: For each run how often, modulo 2, the state has been swapped since it was last known; the state behind
            it, when the stretch begins OUTSIDE.
        is_known: For each run whether the state behind it does not depend on the state before the stretch.
    """

    escaped: Positions
    runs: Positions
    lengths: Positions
    is_odd: npt.NDArray[np.bool_]
    may_open: npt.NDArray[np.bool_]
    parities: npt.NDArray[np.uint8]
    is_known: npt.NDArray[np.bool_]

    def literal(self, size: int, state: int) -> Bits:
        """The bytes inside of quotes, or escaped, when a stretch of a size begins in a given state."""
        behind = np.where(self.is_known, self.parities, self.parities ^ state)
        changes, is_escaped = np.zeros(size, bool), np.zeros(size, bool)
        changes[self.runs[behind != np.append(np.uint8(state), behind[:-1])]] = True
        is_escaped[self.escaped[self.escaped < size]] = True
        inside = odd_bits(bits_of(changes))
        return (~inside if state == INSIDE else inside) | bits_of(is_escaped)

    def opens_and_closes(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which runs open a field, and which close one, when the stretch begins OUTSIDE; some do both."""
        is_open = np.append(np.uint8(OUTSIDE), self.parities[:-1]) == INSIDE
        opens = ~is_open & self.may_open
        return opens, (is_open & self.is_odd) | (opens & ~self.is_odd)

    def transition(self, end: int) -> Transition:
        """The effect of the runs that begin before end."""
        count = int(np.searchsorted(self.runs, end))
        if not count:
            return Transition()
        parity = int(self.parities[count - 1])
        return Transition(parity, parity if self.is_known[count - 1] else parity ^ 1)


def quoting_of(data: Bytes, dialect: Dialect, may_begin: bool) -> Quoting:
    """Find the quotes in a stretch.

    The first byte is not escaped, and no quote that belongs to one before it; may_begin says whether a field may begin
    there.
    """
    escaped = escaped_positions(data, dialect.escape) if dialect.escape >= 0 else NONE
    has_quotes = dialect.quote >= 0 and contains(data, dialect.quote)
    quotes = positions_of(data == dialect.quote) if has_quotes else NONE
    if len(escaped) and len(quotes):
        quotes = quotes[~np.isin(quotes, escaped, assume_unique=True)]
    if not len(quotes):
        return Quoting(escaped, NONE, NONE, _NO_FLAGS, _NO_FLAGS, np.empty(0, np.uint8), _NO_FLAGS)
    is_first = np.append(True, np.diff(quotes) > 1)
    if is_first.all():
        runs, lengths = quotes, np.ones(len(quotes), np.int64)
    else:
        firsts = np.flatnonzero(is_first)
        runs, lengths = quotes[firsts], np.diff(firsts, append=len(quotes))
    is_odd = (lengths & 1).astype(bool)
    follows = dialect.is_separator(data.take(runs - 1, mode="wrap"))
    if len(escaped):
        follows &= ~np.isin(runs - 1, escaped, assume_unique=True)
    if runs[0] == 0:
        follows[0] = may_begin
    parities = np.bitwise_xor.accumulate((is_odd & follows).view(np.uint8))
    is_reset = is_odd & ~follows
    if not is_reset.any():
        return Quoting(escaped, runs, lengths, is_odd, follows, parities, np.zeros(len(runs), bool))
    last = np.maximum.accumulate(np.where(is_reset, np.arange(len(runs)), -1))
    is_known = last >= 0
    parities ^= parities[last] & is_known.view(np.uint8)
    return Quoting(escaped, runs, lengths, is_odd, follows, parities, is_known)


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


_SHOWN_BYTES = 20
ADVICE = "if quotes are plain text in these files, set quote: none"


def stray_quotes(data: Bytes, dialect: Dialect, quoting: Quoting) -> tuple[Positions, Positions]:
    """The positions of quotes that close a field with text behind them, and of the quotes that open these fields."""
    opens, closes = quoting.opens_and_closes()
    behind = (quoting.runs + quoting.lengths)[closes]
    if len(behind) and behind[-1] == len(data):
        behind = behind[:-1]
    behind = behind[~dialect.is_separator(data[behind])]
    if not len(behind):
        return behind, behind
    opening = quoting.runs[opens]
    return behind - 1, opening[np.searchsorted(opening, behind) - 1]


def rows_with_strays(data: Bytes, borders: Positions, dialect: Dialect) -> Iterator[tuple[int, str]]:
    """The rows with text behind a closing quote, ascending, each with the reason to refuse it."""
    closing, opening = stray_quotes(data, dialect, quoting_of(data, dialect, True))
    rows, firsts = np.unique(np.searchsorted(borders, closing, "right") - 1, return_index=True)
    for row, first in zip(rows.tolist(), firsts.tolist(), strict=True):
        start, end = borders[row : row + 2].tolist()
        closed, opened = int(closing[first]), int(opening[first])
        text = data[closed + 1 : min(closed + 1 + _SHOWN_BYTES, end)].tobytes().splitlines()[0]
        yield (
            row,
            f"the quote at byte {closed - start} of the row closes the field that the quote at byte {opened - start} "
            f"opens, and text follows it: {text.decode(errors='replace')!r}; {ADVICE}; to keep such text as part of "
            "the field, set stray_quotes: keep",
        )


def unclosed_quote(data: Bytes, dialect: Dialect) -> int | None:
    """Where the quote stands that a row leaves open; None if it leaves none open."""
    quoting = quoting_of(data, dialect, True)
    if quoting.transition(len(data)).applied(OUTSIDE) == OUTSIDE:
        return None
    return int(quoting.runs[quoting.opens_and_closes()[0]][-1])
