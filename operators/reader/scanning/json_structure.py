"""Finds the members of a JSON array by quotes and brackets alone, also from the middle of a file.

A quote that no backslash escapes begins or ends a string. A bracket or brace outside of strings opens or closes a
level. The effect of a stretch of a file is a function from where it begins, in a string or not and at some level, to
where it ends. Such functions compose, and are found without the bytes before the stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dagflow.frozen import frozen
from operators.reader.byte_source import Bytes, ByteSource, read_exactly
from operators.reader.columns.machine_code import MachineCode
from operators.reader.scanning.search import (
    BackwardSearch,
    Bits,
    Positions,
    bits_of,
    contains,
    escaped_positions,
    odd_bits,
    positions_in,
)

WHITE = b" \t\r\n"
_QUOTE, _ESCAPE, _COMMA = b'"\\,'
_STEPS = np.zeros(256, np.int8)
_STEPS[[*b"{["]], _STEPS[[*b"}]"]] = 1, -1
"""By how many levels a byte leads into arrays and objects."""

_IS_WHITE = np.zeros(256, bool)
_IS_WHITE[[*WHITE]] = True

_FIRST_STEP = 4 << 10
_MOST_STEP = 512 << 10
"""Bytes that are looked at together: for the masks of more, the system gives fresh memory, which takes as long."""

FOLLOWER = MachineCode("operators.reader.columns.byte_kernels.follow_json")
"""Machine code for pre-scans; what is read afterwards is read by machine code, too."""

_INDENTATION = 24
"""Bytes of white space that are passed over for all members together; what is longer, for each by itself."""


@frozen
class JsonPiece:
    """Consecutive bytes of a file.

    Attributes:
        in_string: Whether each byte is in a string, or the quote that opens one.
        opening: Where brackets and braces open levels, also in strings.
        closing: Where they close levels.
        is_escaped: Whether the byte behind the stretch is escaped.
    """

    start: int
    data: Bytes
    in_string: Bits
    opening: Bits
    closing: Bits
    is_escaped: bool

    @classmethod
    def of(cls, data: Bytes, start: int = 0, *, in_string: bool = False, is_escaped: bool = False) -> JsonPiece:
        """Look at bytes of which it is known how they begin."""
        is_quote = data == _QUOTE
        escaped = np.zeros(int(is_escaped), np.int64)
        if contains(data, _ESCAPE):
            escaped = np.append(escaped, escaped_positions(data[int(is_escaped) :], _ESCAPE) + int(is_escaped))
        is_quote[escaped[escaped < len(data)]] = False
        odd = odd_bits(bits_of(is_quote))
        # Opening brackets and braces differ in one bit, and so do closing ones.
        folded = data | 0x20
        opening, closing = bits_of(folded == ord("{")), bits_of(folded == ord("}"))
        ends_escaped = bool(len(escaped)) and int(escaped[-1]) == len(data)
        return cls(start, data, ~odd if in_string else odd, opening, closing, ends_escaped)

    @property
    def ends_in_string(self) -> bool:
        """Whether the last byte is in a string."""
        last = len(self.data) - 1
        return bool(int(self.in_string[last >> 6]) >> (last & 63) & 1)

    def levels(self, marks: Bits, depth: int) -> tuple[Positions, Positions]:
        """The positions of some bytes, among which are all brackets outside of strings, and the level behind each."""
        places = positions_in(marks)
        return places, depth + np.cumsum(_STEPS[self.data[places]], dtype=np.int64)

    def separators(self, depth: int) -> tuple[Positions, bool]:
        """The commas at level 0 up to the bracket that closes it, and that bracket; whether it is there."""
        is_comma = self.data == _COMMA
        marks = (self.opening | self.closing | bits_of(is_comma)) & ~self.in_string
        places, levels = self.levels(marks, depth)
        closing = places[levels < 0][:1]
        commas = places[(levels == 0) & is_comma[places]]
        if not len(closing):
            return commas, False
        return np.append(commas[commas < closing], closing), True

    def trimmed(self, separators: Positions) -> tuple[Positions, Positions]:
        """Where the members before separators begin and end; a missing one is empty, at its separator."""
        starts, stops = _text_in(self.data, np.append(0, separators[:-1] + 1)), separators.copy()
        rows, size = np.flatnonzero(starts < stops), len(self.data)
        stops[rows] = size - _text_in(self.data[::-1], size - stops[rows])
        return starts, stops


@frozen
class Entry:
    """Where in the structure a position of a file is.

    Attributes:
        depth: Levels above the members of the array.
        phase: 0 in the array, 1 behind it, 2 behind the document, 3 where other text has followed the document.
    """

    depth: int = 0
    in_string: bool = False
    phase: int = 0

    @classmethod
    def of(cls, code: int) -> Entry:
        """The entry of a number."""
        return cls(code >> 3, bool(code & 4), code & 3)

    @property
    def code(self) -> int:
        """A number that stands for it, 0 where the array begins."""
        return self.depth << 3 | self.in_string << 2 | self.phase


@frozen
class Effect:
    """What a stretch does to where it begins.

    Attributes:
        in_string: Whether it ends in a string.
        change: How many levels it goes up or down.
        lowest: The lowest level on the way, relative to its beginning.
        is_followed: Whether text other than white space follows the first place with the lowest level.
        has_text: Whether it has such text.
    """

    in_string: bool
    change: int = 0
    lowest: int = 0
    is_followed: bool = False
    has_text: bool = False

    def then(self, stretch: JsonPiece, *, inverted: bool) -> Effect:
        """The effect of more bytes."""
        text = first_text(stretch.data)
        change, lowest, is_followed = self.change, self.lowest, self.is_followed or text >= 0
        outside = stretch.in_string if inverted else ~stretch.in_string
        opening, closing = stretch.opening & outside, stretch.closing & outside
        if (opening | closing).any():
            ups = np.bitwise_count(opening).view(np.int8)
            behind = change + np.cumsum(ups - np.bitwise_count(closing).view(np.int8), dtype=np.int64)
            # If all levels of 64 bytes are closed before others are opened, none is lower than this.
            if (behind - ups).min() < lowest:
                brackets, levels = stretch.levels(opening | closing, change)
                index = int(levels.argmin())
                if levels[index] < lowest:
                    lowest = int(levels[index])
                    is_followed = first_text(stretch.data[int(brackets[index]) + 1 :]) >= 0
            change = int(behind[-1])
        return Effect(stretch.ends_in_string != inverted, change, lowest, is_followed, self.has_text or text >= 0)


def stretches(source: ByteSource, start: int, end: int, entry: Entry, *, is_escaped: bool) -> Iterator[JsonPiece]:
    """The bytes of a range, or up to the end of the file, a short piece and then long ones."""
    in_string = entry.in_string
    for data in _pieces(source, start, end):
        stretch = JsonPiece.of(data, start, in_string=in_string, is_escaped=is_escaped)
        yield stretch
        in_string, is_escaped = stretch.ends_in_string, stretch.is_escaped
        start += len(data)


def _pieces(source: ByteSource, start: int, end: int) -> Iterator[Bytes]:
    step = _FIRST_STEP
    while start < min(end, source.size_bytes) and len(data := read_exactly(source, start, min(start + step, end))):
        yield data
        start, step = start + len(data), _MOST_STEP


def is_escaped_at(source: ByteSource, position: int, floor: int) -> bool:
    """Whether an odd number of backslashes is before a position."""
    return (position - BackwardSearch(source, floor).run_start(position, _ESCAPE)) % 2 == 1


def effects_of(source: ByteSource, start: int, end: int, floor: int) -> tuple[Effect, Effect]:
    """The effects of a range that begins outside of strings, and in one."""
    effects = Effect(False), Effect(True)
    is_escaped = start < end and is_escaped_at(source, start, floor)
    if follow := FOLLOWER.after(end - start):
        return _effects_by(follow, _pieces(source, start, end), is_escaped)
    for stretch in stretches(source, start, end, Entry(), is_escaped=is_escaped):
        effects = effects[0].then(stretch, inverted=False), effects[1].then(stretch, inverted=True)
    return effects


def _effects_by(follow: Callable[..., None], pieces: Iterable[Bytes], is_escaped: bool) -> tuple[Effect, Effect]:
    """The same by machine code, see follow_json()."""
    state, levels = np.array([False, is_escaped], np.uint64), np.zeros((2, 3), np.int64)
    are_followed, has_text = [False, False], False
    for data in pieces:
        before = levels[:, 1].tolist()
        follow(data, state, levels)
        for side, (_, lowest, place) in enumerate(levels.tolist()):
            behind = data[place + 1 :] if lowest < before[side] else data
            are_followed[side] = first_text(behind) >= 0 or (are_followed[side] and behind is data)
        has_text |= first_text(data) >= 0
    ends_in_string = bool(state[0])
    outside, inside = (
        Effect(ends_in_string != bool(side), change, lowest, are_followed[side], has_text)
        for side, (change, lowest, _) in enumerate(levels.tolist())
    )
    return outside, inside


def next_separator(
    source: ByteSource, start: int, floor: int, entry: Entry, limit: int | None = None
) -> tuple[int, bool]:
    """The first comma at level 0 from a position on, or the bracket that closes the level, and whether it is that.

    Where there is none, it is the limit, or the end of the file.
    """
    depth, limit = entry.depth, source.size_bytes if limit is None else limit
    is_escaped = is_escaped_at(source, start, floor)
    for stretch in stretches(source, start, limit, entry, is_escaped=is_escaped):
        separators, is_closed = stretch.separators(depth)
        if len(separators):
            return stretch.start + int(separators[0]), is_closed and len(separators) == 1
        depth += Effect(entry.in_string).then(stretch, inverted=False).change
    return min(limit, source.size_bytes), False


def first_text(data: Bytes) -> int:
    """The position of the first byte that is not white space; -1 if there is none."""
    for piece in (data[:64], data):
        if rest := len(piece.tobytes().lstrip(WHITE)):
            return len(piece) - rest
    return -1


def _text_in(data: Bytes, places: Positions) -> Positions:
    """The first position with text from each place on; there is text behind each."""
    places, rows = places.copy(), np.arange(len(places))
    for _ in range(_INDENTATION):
        rows = rows[_IS_WHITE[data[places[rows]]]]
        if not len(rows):
            break
        places[rows] += 1
    for row in rows.tolist():
        places[row] += first_text(data[places[row] :])
    return places


def text_from(source: ByteSource, position: int, limit: int) -> int:
    """The first position from the given one on, and up to limit, with text; limit or the end of the file otherwise."""
    while len(data := read_exactly(source, position, min(position + _FIRST_STEP, limit))):
        if (place := first_text(data)) >= 0:
            return position + place
        position += len(data)
    return min(limit, source.size_bytes)


def text_before(source: ByteSource, position: int, floor: int) -> int:
    """The end of the last text before a position; floor if there is none."""
    while position > floor:
        low = max(floor, position - _FIRST_STEP)
        if rest := len(read_exactly(source, low, position).tobytes().rstrip(WHITE)):
            return low + rest
        position = low
    return floor
