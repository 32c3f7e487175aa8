"""Machine code that finds the values of flat JSON objects, and copies their texts; needs numba.

compiled_objects calls the functions. They accept only JSON as RFC 8259 defines it.

All functions read bytes of which the last one is a control character, or is followed by one, and then PADDING more
bytes of any kind. No value has control characters in it, so that the functions need not check for the end of the bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from operators.reader.columns.machine_code import (
    BYTES,
    FLAG,
    LOWER,
    MINUS,
    OFFSETS,
    PLUS,
    POINT,
    SMALL_E,
    ZERO,
    Bytes,
    Offsets,
    byte_at,
    compiled,
    digit_at,
    is_digit,
    part,
)

Words = npt.NDArray[np.uint64]
"""The eight bytes from each byte on, the first one in the lowest position; they overlap."""

PADDING = 16
"""Bytes that must follow those to read: words extend beyond their end."""

ABSENT, NULL, TRUE, FALSE, NUMBER, TEXT, ESCAPED = range(7)
"""Kinds of values; the last one is text with escapes in it."""

_QUOTE, _BACKSLASH, _SPACE, _COMMA, _COLON, _OPENING, _CLOSING = b'"\\ ,:{}'
_SMALL_A, _SMALL_F, _SMALL_U = b"afu"
_EACH = np.uint64(0x0101010101010101)
_HIGHEST = _EACH * np.uint64(0x80)
_QUOTES, _BACKSLASHES, _SPACES = (_EACH * np.uint64(byte) for byte in (_QUOTE, _BACKSLASH, _SPACE))
_ONE = np.uint64(1)
_TO_COUNT = np.uint64(56)

_WORDS = np.array([0, *(int.from_bytes(word, "little") for word in (b"null", b"true", b"false"))], np.uint64)
_WORD_SIZES = np.array([0, 4, 4, 5])
_WORD_MASKS = np.array([(1 << 8 * size) - 1 for size in (0, 4, 4, 5)], np.uint64)

_ESCAPES = np.zeros(256, np.uint8)
"""The byte that an escape stands for, by the byte behind the backslash; 0 where it is no escape of one byte."""
for _escape, _meant in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPES[_escape] = _meant

_FIRST_HALVES, _SECOND_HALVES, _NO_HALVES = 0xD800, 0xDC00, 0xE000
"""Code units of UTF-16 from the first on are first halves of characters, then second halves, and then none."""


class Columns(NamedTuple):
    """The columns to look for.

    Attributes:
        pieces: The name of each column with the quote behind it, in pieces of eight bytes.
        masks: The bits of each piece that belong to the name.
        borders: Index of the first piece of each column, and one past the last piece.
        sizes: Bytes of each name, without the quote.
        taken: For each column the kinds that it takes, a bit for each.
    """

    pieces: Words
    masks: Words
    borders: Offsets
    sizes: Offsets
    taken: Bytes


class Values(NamedTuple):
    """The values that were found, each by column and line.

    Attributes:
        kinds: Their kinds; ABSENT before they are looked for.
        starts: Where each number and text begins, texts without their quotes; else 0.
        stops: Where it ends; else 0.
    """

    kinds: Bytes
    starts: Offsets
    stops: Offsets


_OVERLAPPING = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
_BORDERS = types.Array(types.int64, 1, "C", readonly=True)
_COLUMNS = types.NamedTuple(
    [types.Array(kind, 1, "C") for kind in (types.uint64, types.uint64, types.int32, types.int32, types.uint8)], Columns
)
_VALUES = types.NamedTuple([types.Array(kind, 2, "C") for kind in (types.uint8, types.int32, types.int32)], Values)


@part
def _behind_spaces(data: Bytes, at: int) -> int:
    while byte_at(data, at) == _SPACE:
        at += 1
    return at


@part
def _text_end(words: Words, at: int) -> int:
    """The next position of a byte that no text holds unescaped: a quote, a backslash or a control character.

    Checks eight bytes at a time. When one is subtracted, only bytes that were 0 borrow; the highest bit of each byte
    then shows whether it was (H. S. Warren, Hacker's Delight, 6-1). Those above the first such byte may be wrong.
    """
    while True:
        word = words[np.uintp(at)]
        quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
        found = (quotes - _EACH) & ~quotes | (backslashes - _EACH) & ~backslashes | (word - _SPACES) & ~word
        found &= _HIGHEST
        if found != 0:
            # The lowest bit of each byte up to the first one that was found; the product adds them.
            below = ((found & (~found + _ONE)) - _ONE) & _EACH
            count: Any = np.int64(below * _EACH >> _TO_COUNT)
            place: int = at + count - 1
            return place
        at += 8


@part
def _digits_end(data: Bytes, at: int) -> int:
    """The end of the digits that begin at a position; -1 if there is none."""
    start = at
    while is_digit(data, at):
        at += 1
    return at if at > start else -1


@part
def _number_end(data: Bytes, at: int) -> int:
    """The end of the number that begins at a position; -1 if there is none. What follows it is not checked."""
    if byte_at(data, at) == MINUS:
        at += 1
    # Digits after a leading zero are no part of the number.
    at = at + 1 if byte_at(data, at) == ZERO else _digits_end(data, at)
    if at >= 0 and byte_at(data, at) == POINT:
        at = _digits_end(data, at + 1)
    if at >= 0 and byte_at(data, at) | LOWER == SMALL_E:
        at += 1
        if byte_at(data, at) == PLUS or byte_at(data, at) == MINUS:
            at += 1
        at = _digits_end(data, at)
    return at


@part
def _unit_at(data: Bytes, at: int) -> int:
    """The code unit of UTF-16 whose four hexadecimal digits begin at a place; -1 if it has others."""
    unit = 0
    for place in range(at, at + 4):
        letter = (byte_at(data, place) | LOWER) - _SMALL_A
        if is_digit(data, place):
            unit = 16 * unit + digit_at(data, place)
        elif 0 <= letter <= _SMALL_F - _SMALL_A:
            unit = 16 * unit + 10 + letter
        else:
            return -1
    return unit


@part
def _character_at(data: Bytes, at: int) -> tuple[int, int]:
    """The character of the escape that begins at a position, and its end; (-1, 0) if there is none.

    Half of a surrogate pair is no character.
    """
    if byte_at(data, at + 1) != _SMALL_U:
        meant: int = _ESCAPES[byte_at(data, at + 1)]
        return (meant, at + 2) if meant else (-1, 0)
    unit = _unit_at(data, at + 2)
    if unit < 0 or not _FIRST_HALVES <= unit < _NO_HALVES:
        return unit, at + 6
    if byte_at(data, at + 6) != _BACKSLASH or byte_at(data, at + 7) != _SMALL_U:
        return -1, 0
    second = _unit_at(data, at + 8)
    if unit >= _SECOND_HALVES or not _SECOND_HALVES <= second < _NO_HALVES:
        return -1, 0
    return 0x10000 + ((unit - _FIRST_HALVES) << 10) + second - _SECOND_HALVES, at + 12


@part
def _text_at(data: Bytes, words: Words, start: int) -> tuple[int, int, int]:
    """As _value_at, for the text that begins at a place behind its quote."""
    stop = _text_end(words, start)
    if byte_at(data, stop) == _QUOTE:
        return TEXT, start, stop
    while byte_at(data, stop) == _BACKSLASH:
        character, behind = _character_at(data, stop)
        if character < 0:
            return -1, 0, 0
        stop = _text_end(words, behind)
    return (ESCAPED, start, stop) if byte_at(data, stop) == _QUOTE else (-1, 0, 0)


@part
def _value_at(data: Bytes, words: Words, at: int) -> tuple[int, int, int]:
    """Kind, start and end, without quotes, of the value that begins at a position; (-1, 0, 0) if none does.

    What follows the value is not checked.
    """
    if byte_at(data, at) == _QUOTE:
        return _text_at(data, words, at + 1)
    if byte_at(data, at) == MINUS or is_digit(data, at):
        stop = _number_end(data, at)
        return (NUMBER, at, stop) if stop >= 0 else (-1, 0, 0)
    word = words[np.uintp(at)]
    for kind in (NULL, TRUE, FALSE):
        if word & _WORD_MASKS[kind] == _WORDS[kind]:
            return kind, at, at + _WORD_SIZES[kind]
    return -1, 0, 0


@part
def _is_name(words: Words, at: int, columns: Columns, column: int) -> bool:
    for piece in range(columns.borders[column], columns.borders[column + 1]):
        if (words[np.uintp(at)] & columns.masks[piece]) != columns.pieces[piece]:
            return False
        at += 8
    return True


@part
def _column_at(words: Words, at: int, columns: Columns, likely: int) -> int:
    """The column whose name is at a position; -1 if it is none of them."""
    if likely < len(columns.sizes) and _is_name(words, at, columns, likely):
        return likely
    for column in range(len(columns.sizes)):
        if _is_name(words, at, columns, column):
            return column
    return -1


@part
def _read_object(
    data: Bytes,
    words: Words,
    row: int,
    at: int,
    end: int,
    columns: Columns,
    takes_others: bool,
    followers: Offsets,
    values: Values,
) -> bool:
    """Find the values of a line, as find_values does; return whether it is an object that is read."""
    at = _behind_spaces(data, at)
    if byte_at(data, at) != _OPENING:
        return False
    last = 0
    while True:
        # After an opening brace, or a comma.
        at = _behind_spaces(data, at + 1)
        if byte_at(data, at) != _QUOTE:
            return False
        at += 1
        column = _column_at(words, at, columns, followers[last])
        if column >= 0:
            followers[last] = column
            last = column + 1
            at += columns.sizes[column]
        else:
            at = _text_end(words, at)
            if not takes_others or byte_at(data, at) != _QUOTE:
                return False
        at = _behind_spaces(data, at + 1)
        if byte_at(data, at) != _COLON:
            return False
        kind, start, stop = _value_at(data, words, _behind_spaces(data, at + 1))
        if kind < 0:
            return False
        if column >= 0:
            if values.kinds[column, row] != ABSENT or columns.taken[column] >> kind & 1 == 0:
                return False
            values.kinds[column, row] = kind
            if kind >= NUMBER:
                values.starts[column, row], values.stops[column, row] = start, stop
        at = _behind_spaces(data, stop + 1 if kind >= TEXT else stop)
        if byte_at(data, at) == _CLOSING:
            return at < end <= _behind_spaces(data, at + 1)
        if byte_at(data, at) != _COMMA:
            return False


@compiled(
    *(types.void, BYTES, _OVERLAPPING, _BORDERS, _BORDERS),
    *(_COLUMNS, FLAG, _VALUES, types.Array(FLAG, 1, "C")),
)
def find_values(
    data: Bytes,
    words: Words,
    line_starts: npt.NDArray[np.int64],
    line_stops: npt.NDArray[np.int64],
    columns: Columns,
    takes_others: bool,
    values: Values,
    is_read: npt.NDArray[np.bool_],
) -> None:
    """Find the values of lines that are flat objects without tabs, escapes in names, and columns that are there twice.

    The words are the data, as overlapping words; lines end before their delimiters. Values of lines that are not read
    must not be used.
    """
    # The column that followed each column, and the first one: most lines have the order of those before them.
    followers = np.arange(len(columns.borders)).astype(np.int32)
    for row in range(len(line_starts)):
        is_read[row] = _read_object(
            data, words, row, line_starts[row], line_stops[row], columns, takes_others, followers, values
        )


@part
def _put_character(copied: Bytes, to: int, character: int) -> int:
    if character < 0x80:
        copied[to] = character
        return to + 1
    size = 2 + (character >= 0x800) + (character >= 0x10000)
    # The first byte begins with as many ones as there are bytes, and a zero; the others begin with a one and a zero.
    copied[to] = (0xF00 >> size & 0xFF) | character >> 6 * (size - 1)
    for place in range(1, size):
        copied[to + place] = 0x80 | character >> 6 * (size - 1 - place) & 0x3F
    return to + size


@part
def _put_unescaped(data: Bytes, at: int, stop: int, copied: Bytes, to: int) -> int:
    """Write a text without its escapes at a position; return the position behind it."""
    while at < stop:
        if byte_at(data, at) == _BACKSLASH:
            character, at = _character_at(data, at)
            to = _put_character(copied, to, character)
        else:
            copied[to] = byte_at(data, at)
            at, to = at + 1, to + 1
    return to


@compiled(
    *(types.void, BYTES, _OVERLAPPING, BYTES, OFFSETS, OFFSETS),
    *(types.Array(types.uint8, 1, "C"), types.Array(types.uint64, 1, "A", aligned=False)),
    types.Array(types.int32, 1, "C"),
)
def copy_texts(
    data: Bytes,
    words: Words,
    kinds: Bytes,
    starts: Offsets,
    stops: Offsets,
    copied: Bytes,
    copied_words: Words,
    borders: Offsets,
) -> None:
    """Copy texts side by side, without their escapes.

    Both words are bytes as overlapping words. copied is PADDING bytes larger than the texts with their escapes; borders
    takes in the start of each text in it, and the end of the last one.
    """
    to = 0
    for row in range(len(starts)):
        borders[row] = to
        if kinds[row] == ESCAPED:
            to = _put_unescaped(data, starts[row], stops[row], copied, to)
        else:
            size = stops[row] - starts[row]
            for done in range(0, size, 8):
                # Up to seven more bytes, which the next text overwrites.
                copied_words[np.uintp(to + done)] = words[np.uintp(starts[row] + done)]
            to += size
    borders[len(starts)] = to
