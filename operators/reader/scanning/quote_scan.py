"""Finds where the rows of a CSV file begin: a scan of its quotes and newlines, from any position of the file on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from operators.reader.byte_source import Bytes, ByteSource, FileView, read_exactly
from operators.reader.scanning.quoting import (
    INSIDE,
    OUTSIDE,
    Dialect,
    Quoting,
    Transition,
    quoting_of,
    undecided_from,
)
from operators.reader.scanning.search import (
    CR,
    LF,
    BackwardSearch,
    Terminators,
    contains,
    escaped_positions,
    find_newlines,
    positions_of,
)


def newlines_outside(data: Bytes, is_at_end: bool, quoting: Quoting, state: int) -> Terminators:
    """The newlines outside of quotes in a range."""
    if not (len(quoting.runs) or len(quoting.escaped) or state):
        return find_newlines(data, is_at_end)
    if not contains(data, CR):
        feeds = positions_of(data == LF)
        feeds = feeds[quoting.state_before(feeds, state) == OUTSIDE]
        if len(quoting.escaped):
            feeds = feeds[~np.isin(feeds, quoting.escaped, assume_unique=True)]
        return Terminators(feeds, feeds + 1)
    newlines = positions_of((data == LF) | (data == CR))
    inside = newlines[quoting.state_before(newlines, state) == INSIDE]
    return find_newlines(data, is_at_end, escaped=np.append(quoting.escaped, inside))


@dataclass(frozen=True, slots=True)
class RowEntry:
    """Where a scan may begin."""

    position: int  # behind a run of quotes if one is there
    may_begin: bool


@dataclass(frozen=True, slots=True)
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
            stops = newlines_outside(data, is_at_end, quoting, state).stops
            index = int(np.searchsorted(stops, start - place))
            if index < len(stops):
                return min(place + int(stops[index]), limit)
            state = quoting.transition(decided).applied(state)
        return limit

    def transition(self, entry: RowEntry, end: int) -> Transition:
        """The effect on the state of the quotes that begin between an entry and an end."""
        done = Transition()
        for place, _, _, quoting, decided in self._stretches(entry, end):
            done = done.then(quoting.transition(min(decided, end - place)))
        return done

    def state_at(self, place: int, floor: int, longest: int) -> int:
        """Whether a position is OUTSIDE or INSIDE of quotes, by the bytes before it, read backwards.

        A quote that no field can begin with leads outside, whatever the state before it; so a file with quoted fields
        is read back to the nearest of these, and not to its beginning.

        The bytes of a run of quotes before the place count as before it. So many bytes as are the longest row, without
        any quote, are outside of quotes.
        """
        effect = Transition()
        high, step, has_quotes = place, min(self.probe_bytes, self.chunk_bytes), False
        while high > floor:
            low = max(floor, high - step)
            if contains(read_exactly(self.source, low, high), self.dialect.quote):
                has_quotes = True
                effect = self.transition(self.entry(low, floor), high).then(effect)
            if effect.after_outside == effect.after_inside or (not has_quotes and place - low > longest):
                return effect.after_outside
            high, step = low, min(2 * step, self.chunk_bytes)
        return effect.after_outside

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
