"""Machine code that reads values with types at places where others have found them; needs numba.

Only plain values are read, as most programs write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from dagflow.storage.columns import bool_column
from operators.reader.byte_source import PADDING
from operators.reader.columns.kernels import (
    BYTES,
    HIGHEST,
    ONE,
    OVERLAPPING,
    PLACES,
    TILE_ROWS,
    WRITTEN,
    Bytes,
    Offsets,
    Words,
    compiled,
    lowest,
    part,
    validity_of,
    words_of,
)
from operators.reader.columns.literals import FRACTION_DIGITS
from operators.reader.columns.types import ColumnType

SKIPPED, INTEGER, DECIMAL, FLOAT, BOOL, DATE, TIMESTAMP, INSTANT = range(8)
"""How the values of a column are read; SKIPPED where they are not."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Plan(NamedTuple):
    """How a column is read.

    Attributes:
        kind: One of those above.
        low: The least number, without a point; or the first year.
        high: The greatest number, without a point; or the last year.
        scale: Digits behind the point, of floating-point numbers and times at most.
        width: Bytes of a value.
    """

    kind: int
    low: int = 0
    high: int = 0
    scale: int = 0
    width: int = 0


def _plan_of(kind: ColumnType) -> Plan:
    if kind.pattern is not None:
        return Plan(SKIPPED)
    arrow = kind.arrow
    if pa.types.is_integer(arrow):
        low, bits = (-1, arrow.bit_width - 1) if pa.types.is_signed_integer(arrow) else (0, min(arrow.bit_width, 63))
        return Plan(INTEGER, low << bits, (1 << bits) - 1, 0, arrow.bit_width // 8)
    if pa.types.is_decimal(arrow):
        high = 10 ** min(arrow.precision, 18) - 1
        return Plan(DECIMAL, -high, high, arrow.scale, 16)
    if pa.types.is_floating(arrow):
        # Such a number, and such a power of ten, have no more digits than the type; dividing rounds once.
        high, scale = (1 << 53, 22) if arrow == pa.float64() else (1 << 24, 10)
        return Plan(FLOAT, -high, high, scale, 8)
    if pa.types.is_boolean(arrow):
        return Plan(BOOL, width=1)
    if pa.types.is_date(arrow):
        return Plan(DATE, 1, 9999, 0, 4)
    if pa.types.is_timestamp(arrow):
        # The first and the last year of a unit, or of a calendar, are left out: in other zones they are no whole ones.
        years = (1679, 2260) if arrow.unit == "ns" else (2, 9998)
        return Plan(INSTANT if kind.has_zone else TIMESTAMP, *years, FRACTION_DIGITS[arrow.unit], 8)
    return Plan(SKIPPED)


def values_at(
    data: Bytes, starts: Offsets, stops: Offsets, is_null: Mask, kinds: Sequence[ColumnType]
) -> list[Any | None]:
    """Columns of values that are written at places, by column and row, and null where they are null.

    None in the place of text, and of columns with values that are not plain, as where the stop is negative. The bytes
    are followed by PADDING more.
    """
    plans = [*map(_plan_of, kinds)]
    sizes = np.array([plan.width * starts.shape[1] + 15 & -8 for plan in plans])
    targets = np.cumsum(sizes) - sizes
    written = np.frombuffer(pa.allocate_buffer(int(sizes.sum()) + PADDING), np.uint8)
    columns = np.array([*zip(*plans, strict=True), targets], np.int64)
    _read_values(data, words_of(data), starts, stops, is_null, columns, words_of(written))
    return [
        _array_of(written[start:], plan, kind.arrow, nulls) if was_read else None
        for start, plan, kind, nulls, was_read in zip(targets, plans, kinds, is_null, columns[0], strict=True)
    ]


def _array_of(written: Bytes, plan: Plan, kind: pa.DataType, is_null: Mask) -> Any:
    written = written[: plan.width * len(is_null)]
    nulls = [validity_of(is_null if is_null.any() else None)]
    if plan.kind == BOOL:
        return pa.Array.from_buffers(kind, len(is_null), nulls + bool_column(written.view(np.bool_)).buffers()[1:])
    if kind == pa.float32():
        written = written.view(np.float64).astype(np.float32)
    return pa.Array.from_buffers(kind, len(is_null), [*nulls, pa.py_buffer(written)])


_LOW_HALF = np.uint64(15)


def _word(text: bytes) -> Any:
    return np.uint64(int.from_bytes(text, "little"))


def _limits(text: bytes) -> Any:
    """What leads each byte of a word to its highest bit if it is greater than 9; or than 0 where the text has no 0."""
    return _word(bytes(0x76 if letter == ord("0") else 0x7F for letter in text))


_DIGITS, _DAY_HEAD, _CLOCK = map(_word, (b"00000000", b"0000-00-", b"00:00:00"))
_DIGIT_LIMITS, _DAY_LIMITS, _CLOCK_LIMITS = map(_limits, (b"00000000", b"0000-00-", b"00:00:00"))
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BY_PAIRS, _BY_FOURS, _BY_EIGHTS = (np.uint64((base << bits) + 1) for base, bits in ((10, 8), (100, 16), (10000, 32)))
_TEN_TO = np.array([10**power if power < 20 else 0 for power in range(25)], np.uint64)
_FLOAT_TEN_TO = 10.0 ** np.arange(23)
_MOST_DIGITS = 19
_MINUS, _SPACE, _T, _Z = map(np.uint64, b"- TZ")
_POINT = np.uint64(ord(".") ^ ord("0"))
_TRUE, _FALSE = _word(b"true"), _word(b"false")
_LOWER_4, _LOWER_5 = _word(b"\x20" * 4), _word(b"\x20" * 5)
_FOUR, _FIVE = np.uint64((1 << 32) - 1), np.uint64((1 << 40) - 1)
_DAYS_BEFORE = np.cumsum([0, 0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAYS_TO_1970 = 719_162


@part
def _eight_digits(word: Any) -> Any:
    """The number of eight digits: pairs of them, fours and eight are made by one product each (D. Lemire, 2022)."""
    word = word * _BY_PAIRS >> np.uint64(8) & _PAIRS
    word = word * _BY_FOURS >> np.uint64(16) & _FOURS
    return word * _BY_EIGHTS >> np.uint64(32)


@part
def _digits_at(words: Words, at: int, end: int) -> tuple[Any, int]:
    """The number of the digits from a place on, and how many there are; of more than 19 it is any number."""
    number, start = np.uint64(0), at
    while at < end:
        word = words[np.uintp(at)] ^ _DIGITS
        others = ((word + _DIGIT_LIMITS) | word) & HIGHEST
        size = min(8 if others == 0 else lowest(others) >> 3, end - at)
        if size == 0:
            break
        number = number * _TEN_TO[size] + _eight_digits(word << np.uint64(64 - 8 * size))
        at += size
        if size < 8:
            break
    return number, at - start


@part
def _number_at(words: Words, at: int, end: int, kind: int, low: int, high: int, scale: int) -> tuple[Any, int]:
    word = words[np.uintp(at)]
    is_negative = word & np.uint64(255) == _MINUS
    if is_negative:
        at += 1
        word >>= np.uint64(8)
    count, size = end - at, 0
    if 0 < count <= 8 - is_negative:
        word ^= _DIGITS
        others = ((word + _DIGIT_LIMITS) | word) & HIGHEST
        digits = 8 if others == 0 else lowest(others) >> 3
        if digits < count and kind != INTEGER:
            # The digits behind the point move to its place.
            shift = np.uint64(8 * digits)
            if digits == 0 or digits == count - 1 or word >> shift & np.uint64(255) != _POINT:
                return np.int64(0), -1
            size = count - 1 - digits
            count -= 1
            head = (ONE << shift) - ONE
            word = word & head | word >> np.uint64(8) & ~head
        word <<= np.uint64(64 - 8 * count)
        if (word | (word + _DIGIT_LIMITS)) & HIGHEST != 0:
            return np.int64(0), -1
        number = _eight_digits(word)
    else:
        number, count = _digits_at(words, at, end)
        at += count
        if at < end and kind != INTEGER and count > 0 and (words[np.uintp(at)] ^ _DIGITS) & np.uint64(255) == _POINT:
            behind, size = _digits_at(words, at + 1, end)
            at += 1 + size
            number = number * _TEN_TO[min(size, 20)] + behind
            count = count + size if size > 0 else 0
        if at < end or count == 0 or count > _MOST_DIGITS:
            return np.int64(0), -1
    if size > scale or (kind == DECIMAL and count + scale - size > _MOST_DIGITS):
        return np.int64(0), -1
    if kind == DECIMAL:
        number *= _TEN_TO[scale - size]
    if number > np.uint64(-low if is_negative else high) or (is_negative and low == 0):
        return np.int64(0), -1
    if kind == FLOAT:
        fraction = np.float64(number) / _FLOAT_TEN_TO[size]
        return np.float64(-fraction if is_negative else fraction).view(np.int64), end
    return -np.int64(number) if is_negative else np.int64(number), end


@part
def _flag_at(words: Words, at: int) -> tuple[Any, int]:
    word = words[np.uintp(at)]
    if (word | _LOWER_4) & _FOUR == _TRUE:
        return np.int64(1), at + 4
    if (word | _LOWER_5) & _FIVE == _FALSE:
        return np.int64(0), at + 5
    digit = np.int64((word ^ _DIGITS) & np.uint64(255))
    return digit, at + 1 if digit <= 1 else -1


@part
def _digit(word: Any, place: int) -> int:
    number: Any = np.int64(word >> np.uint64(8 * place) & _LOW_HALF)
    digit: int = number
    return digit


@part
def _day_at(words: Words, at: int, low: int, high: int) -> tuple[Any, int]:
    """The day that is written at a place, from 1970 on."""
    word, last = words[np.uintp(at)] ^ _DAY_HEAD, (words[np.uintp(at + 8)] ^ _DIGITS) & np.uint64(0xFFFF)
    if (word | (word + _DAY_LIMITS) | last | (last + _DIGIT_LIMITS)) & HIGHEST != 0:
        return np.int64(0), -1
    year = 1000 * _digit(word, 0) + 100 * _digit(word, 1) + 10 * _digit(word, 2) + _digit(word, 3)
    month, day = 10 * _digit(word, 5) + _digit(word, 6), 10 * _digit(last, 0) + _digit(last, 1)
    if year < low or year > high or month < 1 or month > 12:
        return np.int64(0), -1
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    before = _DAYS_BEFORE[month] + (is_leap and month > 2)
    if day < 1 or day > _DAYS_BEFORE[month + 1] - _DAYS_BEFORE[month] + (is_leap and month == 2):
        return np.int64(0), -1
    years = year - 1
    days = 365 * years + years // 4 - years // 100 + years // 400 + before + day - 1 - _DAYS_TO_1970
    return np.int64(days), at + 10


@part
def _moment_at(
    data: Bytes, words: Words, at: int, end: int, kind: int, low: int, high: int, scale: int
) -> tuple[Any, int]:
    unit = np.int64(_TEN_TO[scale])
    value, at = _day_at(words, at, low, high)
    value *= 86_400 * unit
    if at < 0 or (at >= end and kind == TIMESTAMP):
        return value, at
    between, word = data[np.uintp(at)], words[np.uintp(at + 1)] ^ _CLOCK
    hour, minute = 10 * _digit(word, 0) + _digit(word, 1), 10 * _digit(word, 3) + _digit(word, 4)
    second = 10 * _digit(word, 6) + _digit(word, 7)
    is_clock = (word | (word + _CLOCK_LIMITS)) & HIGHEST == 0 and hour < 24 and minute < 60 and second < 60
    if not is_clock or (between != _SPACE and between != _T):
        return value, -1
    value += (3600 * hour + 60 * minute + second) * unit
    at += 9
    if at < end and data[np.uintp(at)] == ord("."):
        behind, size = _digits_at(words, at + 1, end)
        if size == 0 or size > scale:
            return value, -1
        value += np.int64(behind * _TEN_TO[scale - size])
        at += 1 + size
    if kind == INSTANT:
        at = at + 1 if data[np.uintp(at)] == _Z else -1
    return value, at


@part
def _value_at(
    data: Bytes, words: Words, at: int, stop: int, kind: int, low: int, high: int, scale: int
) -> tuple[Any, int]:
    """The value that is written at a place, and where it ends; -1 if it is not plain."""
    if kind <= FLOAT:
        return _number_at(words, at, stop, kind, low, high, scale)
    if kind == BOOL:
        return _flag_at(words, at)
    if kind == DATE:
        return _day_at(words, at, low, high)
    return _moment_at(data, words, at, stop, kind, low, high, scale)


@compiled(
    *(types.void, BYTES, OVERLAPPING, PLACES, PLACES, types.Array(types.boolean, 2, "C", readonly=True)),
    *(types.Array(types.int64, 2, "C"), WRITTEN),
)
def _read_values(
    data: Bytes, words: Words, starts: Offsets, stops: Offsets, is_null: Mask, columns: Numbers, written: Words
) -> None:
    """Read the values of columns, 0 where they are null.

    Columns are the plan of each, and where its values are written; its kind becomes SKIPPED where one is not plain.
    """
    kinds, lows, highs, scales, widths, targets = columns
    for first in range(0, starts.shape[1], TILE_ROWS):
        for column in range(len(kinds)):
            kind, low, high, scale = kinds[column], lows[column], highs[column], scales[column]
            if kind == SKIPPED:
                continue
            to = targets[column] + widths[column] * first
            for row in range(first, min(first + TILE_ROWS, starts.shape[1])):
                value = np.int64(0)
                if not is_null[column, row]:
                    stop = stops[column, row]
                    value, end = _value_at(data, words, starts[column, row], stop, kind, low, high, scale)
                    if end != stop:
                        kinds[column] = SKIPPED
                        break
                written[np.uintp(to)] = np.uint64(value)
                if kind == DECIMAL:
                    written[np.uintp(to + 8)] = np.uint64(value >> 63)
                to += widths[column]
