"""Reads flat JSON objects with machine code, whatever order their members have; needs numba.

Lines that are read have the values that a parser finds; other lines are left to a parser. That takes less than half of
the time that Arrow's parser takes. Machine code accepts only JSON as RFC 8259 defines it.

Its functions read bytes of which the last one is a control character, or is followed by one, and then PADDING more
bytes of any kind. No value has control characters in it, so that the functions need not check for the end of the bytes.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.found_values import is_number
from operators.reader.columns.kernels import (
    BYTES,
    EACH,
    HIGHEST,
    ONE,
    OVERLAPPING,
    Bytes,
    Offsets,
    Words,
    compiled,
    padded,
    part,
    texts_of,
    words_of,
)
from operators.reader.columns.literals import decimals_of
from operators.reader.columns.types import ColumnType
from operators.reader.columns.value_kernels import values_at

LEAST_LINES = 256
"""Number of lines that a batch must have: a parser is faster for fewer."""

_SAMPLED_LINES = 64
"""If fewer than half of this many lines, the first ones, can be read, all lines are left to a parser."""

_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')
"""Characters that JSON writes with escapes."""


ABSENT, NULL, TRUE, FALSE, NUMBER, TEXT = range(6)
"""Kinds of values; texts are those without escapes."""

_QUOTE, _BACKSLASH, _SPACE, _COMMA, _COLON, _OPENING, _CLOSING = b'"\\ ,:{}'
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _SMALL_E = b"09-+.e"
_LOWER = 0x20
"""The bit by which small letters differ from capital ones."""

_QUOTES, _BACKSLASHES, _SPACES = (EACH * np.uint64(byte) for byte in (_QUOTE, _BACKSLASH, _SPACE))
_TO_COUNT = np.uint64(56)

_WORDS = np.array([0, *(int.from_bytes(word, "little") for word in (b"null", b"true", b"false"))], np.uint64)
_WORD_SIZES = np.array([0, 4, 4, 5])
_WORD_MASKS = np.array([(1 << 8 * size) - 1 for size in (0, 4, 4, 5)], np.uint64)


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


_BORDERS = types.Array(types.int64, 1, "C", readonly=True)
_COLUMNS = types.NamedTuple(
    [types.Array(kind, 1, "C") for kind in (types.uint64, types.uint64, types.int32, types.int32, types.uint8)], Columns
)
_VALUES = types.NamedTuple([types.Array(kind, 2, "C") for kind in (types.uint8, types.int32, types.int32)], Values)


@part
def _byte_at(data: Bytes, at: int) -> int:
    """The byte at a position, which is not negative."""
    # An index that may be negative would be compared with zero, which takes as long as all other work.
    byte: int = data[np.uintp(at)]
    return byte


@part
def _is_digit(data: Bytes, at: int) -> bool:
    return _ZERO <= _byte_at(data, at) <= _NINE


@part
def _behind_spaces(data: Bytes, at: int) -> int:
    while _byte_at(data, at) == _SPACE:
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
        found = (quotes - EACH) & ~quotes | (backslashes - EACH) & ~backslashes | (word - _SPACES) & ~word
        found &= HIGHEST
        if found != 0:
            # The lowest bit of each byte up to the first one that was found; the product adds them.
            below = ((found & (~found + ONE)) - ONE) & EACH
            count: Any = np.int64(below * EACH >> _TO_COUNT)
            place: int = at + count - 1
            return place
        at += 8


@part
def _digits_end(data: Bytes, at: int) -> int:
    """The end of the digits that begin at a position; -1 if there is none."""
    start = at
    while _is_digit(data, at):
        at += 1
    return at if at > start else -1


@part
def _number_end(data: Bytes, at: int) -> int:
    """The end of the number that begins at a position; -1 if there is none. What follows it is not checked."""
    if _byte_at(data, at) == _MINUS:
        at += 1
    # Digits after a leading zero are no part of the number.
    at = at + 1 if _byte_at(data, at) == _ZERO else _digits_end(data, at)
    if at >= 0 and _byte_at(data, at) == _POINT:
        at = _digits_end(data, at + 1)
    if at >= 0 and _byte_at(data, at) | _LOWER == _SMALL_E:
        at += 1
        if _byte_at(data, at) == _PLUS or _byte_at(data, at) == _MINUS:
            at += 1
        at = _digits_end(data, at)
    return at


@part
def _value_at(data: Bytes, words: Words, at: int) -> tuple[int, int, int]:
    """Kind, start and end, without quotes, of the value that begins at a position; (-1, 0, 0) if none does.

    What follows the value is not checked.
    """
    if _byte_at(data, at) == _QUOTE:
        stop = _text_end(words, at + 1)
        return (TEXT, at + 1, stop) if _byte_at(data, stop) == _QUOTE else (-1, 0, 0)
    if _byte_at(data, at) == _MINUS or _is_digit(data, at):
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
    if _byte_at(data, at) != _OPENING:
        return False
    last = 0
    while True:
        # After an opening brace, or a comma.
        at = _behind_spaces(data, at + 1)
        if _byte_at(data, at) != _QUOTE:
            return False
        at += 1
        column = _column_at(words, at, columns, followers[last])
        if column >= 0:
            followers[last] = column
            last = column + 1
            at += columns.sizes[column]
        else:
            at = _text_end(words, at)
            if not takes_others or _byte_at(data, at) != _QUOTE:
                return False
        at = _behind_spaces(data, at + 1)
        if _byte_at(data, at) != _COLON:
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
        if _byte_at(data, at) == _CLOSING:
            return at < end <= _behind_spaces(data, at + 1)
        if _byte_at(data, at) != _COMMA:
            return False


@compiled(
    *(types.void, BYTES, OVERLAPPING, _BORDERS, _BORDERS),
    *(_COLUMNS, types.boolean, types.Array(types.int32, 1, "C"), _VALUES, types.Array(types.boolean, 1, "C")),
)
def find_values(
    data: Bytes,
    words: Words,
    line_starts: npt.NDArray[np.int64],
    line_stops: npt.NDArray[np.int64],
    columns: Columns,
    takes_others: bool,
    followers: Offsets,
    values: Values,
    is_read: npt.NDArray[np.bool_],
) -> None:
    """Find the values of lines that are flat objects without tabs, escapes and columns that are there twice.

    The words are the data, as overlapping words; lines end before their delimiters. Followers take in the column behind
    each column, and the first one: most lines have the order of those before them. Values of lines that are not read
    must not be used.
    """
    for row in range(len(line_starts)):
        is_read[row] = _read_object(
            data, words, row, line_starts[row], line_stops[row], columns, takes_others, followers, values
        )


def read_compiled(
    batch: RecordBatch, schema: pa.Schema, *, takes_others: bool
) -> tuple[pa.Table, npt.NDArray[np.bool_]] | None:
    """Read the lines that are flat objects without tabs and escapes.

    Args:
        batch: Lines in valid UTF-8, with ends of lines as delimiters.
        schema: The columns. Lines in which those of other types than text, booleans, numbers, dates and times are not
            null are left.
        takes_others: Whether objects may have members that are no columns; they are left out.

    Returns:
        The columns of all lines, and which of the lines were read: others have any values. Times of day are text, and
        so are dates and timestamps unless all lines were read, and all values are written in the usual way. None if
        there are few lines, or fewer than half were read.

    Raises:
        pyarrow.ArrowInvalid: A number does not fit into its type.
    """
    if len(batch) < LEAST_LINES or not len(schema):
        return None
    objects = _Objects(batch, schema, takes_others)
    for count in (_SAMPLED_LINES, len(batch)):
        objects.find(count)
        if 2 * np.count_nonzero(objects.is_read) < count:
            return None
    return pa.table(objects.columns(schema), schema.names), objects.is_read


class _Objects:
    def __init__(self, batch: RecordBatch, schema: pa.Schema, takes_others: bool) -> None:
        borders = borders_of(batch.framed()).astype(np.int64)
        self._data = padded(batch)
        borders -= borders[0]
        self._line_starts, self._line_stops = borders[:-1], borders[1:] - batch.delimiters.lengths()
        self._words = words_of(self._data)
        self._columns = _columns(schema)
        self._takes_others = takes_others
        shape = len(schema), len(batch)
        self._values = Values(np.zeros(shape, np.uint8), np.zeros(shape, np.int32), np.zeros(shape, np.int32))
        self.is_read = np.zeros(len(batch), np.bool_)

    def find(self, count: int) -> None:
        self._values.kinds[:, :count] = ABSENT
        starts, stops = self._line_starts[:count], self._line_stops[:count]
        followers = np.arange(len(self._columns.borders), dtype=np.int32)
        find_values(
            *(self._data, self._words, starts, stops, self._columns, self._takes_others, followers),
            *(self._values, self.is_read),
        )

    def columns(self, schema: pa.Schema) -> list[pa.Array]:
        """The values of columns in all lines; lines that are left have any value."""
        kinds, starts, stops = self._values
        # Numbers of a line that is left need not be numbers.
        is_null = (kinds <= NULL) | ~self.is_read
        has_dates = self.is_read.all()
        are_values = [is_number(kind) or (has_dates and pa.types.is_temporal(kind)) for kind in schema.types]
        wanted = [kind if is_value else pa.string() for kind, is_value in zip(schema.types, are_values, strict=True)]
        columns = values_at(self._data, starts, stops, is_null, [ColumnType("", kind) for kind in wanted])
        for number, kind in enumerate(schema.types):
            if is_null[number].all():
                columns[number] = pa.nulls(len(self.is_read), kind)
            elif pa.types.is_boolean(kind):
                columns[number] = pa.array(kinds[number] == TRUE, mask=is_null[number])
        left = [number for number, column in enumerate(columns) if column is None]
        texts = texts_of(self._words, starts[left], stops[left], is_null[left])
        for number, column in zip(left, texts, strict=True):
            columns[number] = _converted(column, schema.types[number])
        return columns


def _converted(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers of texts; other texts stay."""
    if not is_number(kind):
        return texts
    return decimals_of(texts, kind) if pa.types.is_decimal(kind) else texts.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_temporal(kind))


def _columns(schema: pa.Schema) -> Columns:
    # A name that a file writes with escapes cannot be found: no text in UTF-8 has this byte.
    names = [b"\xff" if _ESCAPED.search(name) else name for name in map(str.encode, schema.names)]
    quoted = [name + b'"' for name in names]
    pieces = b"".join(name + bytes(-len(name) % 8) for name in quoted)
    masks = b"".join(b"\xff" * len(name) + bytes(-len(name) % 8) for name in quoted)
    return Columns(
        np.frombuffer(pieces, np.uint64).copy(),
        np.frombuffer(masks, np.uint64).copy(),
        np.cumsum([0, *((len(name) + 7) // 8 for name in quoted)], dtype=np.int32),
        np.array(list(map(len, names)), np.int32),
        np.array(list(map(_taken, schema.types)), np.uint8),
    )


def _taken(kind: pa.DataType) -> int:
    """The kinds of values that a column of a type takes, a bit for each."""
    if pa.types.is_boolean(kind):
        return 1 << NULL | 1 << TRUE | 1 << FALSE
    if _is_text(kind):
        return 1 << NULL | 1 << TEXT
    return 1 << NULL | 1 << NUMBER if is_number(kind) else 1 << NULL
