"""Machine code that looks for bytes 32 at a time; needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types
from numba.extending import intrinsic

from operators.reader.columns.kernels import (
    BLOCK,
    BLOCK_BYTES,
    ONE,
    Bytes,
    Generated,
    Offsets,
    Words,
    compiled,
    loaded,
    lowest,
    matches,
    part,
)

_WORD_BYTES = 2 * BLOCK_BYTES
_LAST = np.uint64(_WORD_BYTES - 1)


_QUOTE, _BACKSLASH, _OPENING, _CLOSING, _OPENING_LIST, _CLOSING_LIST = b'"\\{}[]'
_LF, _CR = b"\n\r"


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def _copy(_: Any, address: Any, source: Any) -> Generated:
    """Copy a block."""

    def code(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        block = loaded(builder, arguments[1])
        builder.store(block, builder.inttoptr(arguments[0], BLOCK.as_pointer())).align = 1
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), code


@compiled(
    *(types.int64, types.intp, types.intp, types.uint8, types.uint8, types.uint8, types.intp),
    types.Array(types.int32, 1, "C"),
)
def _split(at: int, end: int, terminator: int, refused: int, also_refused: int, to: int, borders: Offsets) -> int:
    """Copy what is between terminators side by side; returns how many of them there are.

    Or 0, where there are more than borders, or where a refused byte occurs. The addresses are those of the bytes, of
    their end and of the copy: there is room for a block behind both.
    """
    count = 0
    begin = to
    borders[0] = 0
    while at < end:
        if matches(at, refused) | matches(at, also_refused):
            return 0
        _copy(to, at)
        found = matches(at, terminator)
        done: Any = 0
        while found:
            position = lowest(np.uint64(found))
            found &= found - np.uint32(1)
            to += position - done
            done = position + 1
            count += 1
            if count == len(borders):
                return 0
            borders[count] = to - begin
            # Up to as many bytes more, which the next piece overwrites.
            _copy(to, at + done)
        at += BLOCK_BYTES
        to += BLOCK_BYTES - done
    return count


def split(
    data: Bytes, terminator: int, refused: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], pa.BinaryArray] | None:
    """Where a byte is, and what lies before each and behind the one before it; up to 63 bytes at the end are left out.

    None where there is none, where more than about every eighth byte is one, or where there are refused bytes.
    """
    size = (len(data) // BLOCK_BYTES - 1) * BLOCK_BYTES
    borders = np.empty(len(data) // 8 + 1, np.int32)
    copied = np.empty(len(data) + BLOCK_BYTES, np.uint8)
    start = data.ctypes.data
    count = _split(start, start + size, terminator, *refused, copied.ctypes.data, borders)
    if not count:
        return None
    borders = borders[: count + 1].copy()
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(copied)]
    return borders[1:] + np.arange(count), pa.Array.from_buffers(pa.binary(), count, buffers)


@part
def _bits(at: int, byte: int) -> Any:
    return np.uint64(matches(at, byte)) | np.uint64(matches(at + BLOCK_BYTES, byte)) << np.uint64(BLOCK_BYTES)


@compiled(types.int64, types.intp, types.intp, types.uint8, types.uint8, types.Array(types.int64, 1, "C"))
def _find_pairs(at: int, end: int, first: int, second: int, places: npt.NDArray[np.int64]) -> int:
    count = place = 0
    while at < end:
        pairs = _bits(at, first) & _bits(at + 1, second)
        while pairs:
            places[count] = place + lowest(pairs)
            pairs &= pairs - ONE
            count += 1
        at += _WORD_BYTES
        place += _WORD_BYTES
    return count


def find_pairs(data: Bytes, first: int, second: int) -> npt.NDArray[np.int64]:
    """Where a byte is followed by another one, which differs from it."""
    size = (len(data) - 1) // _WORD_BYTES * _WORD_BYTES
    places, start = np.empty(len(data) // 2 + 1, np.int64), data.ctypes.data
    count = _find_pairs(start, start + size, first, second, places)
    rest = np.flatnonzero((data[size:-1] == first) & (data[size + 1 :] == second))
    return np.append(places[:count], rest + size)


@part
def _odd(bits: Any) -> Any:
    """For each place, whether the number of ones up to it is odd."""
    for power in range(6):
        bits ^= bits << (ONE << np.uint64(power))
    return bits


@part
def _escaped(slashes: Any, first: Any) -> tuple[Any, Any]:
    """The bytes behind backslashes that are not escaped themselves, and whether the one behind the word is such."""
    escaped, slashes, beyond = first, slashes & ~first, np.uint64(0)
    while slashes:
        place = np.uint64(lowest(slashes))
        slashes &= ~(np.uint64(3) << place)
        escaped |= ONE << place << ONE
        beyond = np.uint64(place == np.uint64(63))
    return escaped, beyond


@compiled(
    *(types.void, types.intp, types.intp, types.int64),
    *(types.Array(types.uint64, 1, "C"), types.Array(types.int64, 2, "C")),
)
def _follow(at: int, end: int, place: int, state: Any, levels: npt.NDArray[np.int64]) -> None:
    in_string, is_escaped = np.uint64(0) - state[0], state[1]
    while at < end:
        escaped, is_escaped = _escaped(_bits(at, _BACKSLASH), is_escaped)
        strings = _odd(_bits(at, _QUOTE) & ~escaped) ^ in_string
        in_string = np.uint64(0) - (strings >> _LAST)
        closing = _bits(at, _CLOSING) | _bits(at, _CLOSING_LIST)
        marks = closing | _bits(at, _OPENING) | _bits(at, _OPENING_LIST)
        while marks:
            bit = np.uint64(lowest(marks))
            marks &= marks - ONE
            side = np.intp(strings >> bit & ONE)
            levels[side, 0] += 1 - 2 * np.int64(closing >> bit & ONE)
            if levels[side, 0] < levels[side, 1]:
                levels[side, 1], levels[side, 2] = levels[side, 0], place + np.int64(bit)
        at += _WORD_BYTES
        place += _WORD_BYTES
    state[0], state[1] = in_string & ONE, is_escaped


def follow_json(data: Bytes, state: npt.NDArray[np.uint64], levels: npt.NDArray[np.int64]) -> None:
    """Follow quotes and brackets through some bytes of JSON, of which it is not known whether a string is open.

    Args:
        data: The bytes; 64 of them, or a multiple, if others follow.
        state: Whether they end in a string if they begin outside of one, and whether the byte behind them is escaped;
            takes in the new ones.
        levels: For both beginnings, outside of strings and in one, the level, the lowest one, and the position of the
            bracket that led there; takes in the new ones.
    """
    size = len(data) // _WORD_BYTES * _WORD_BYTES
    _follow(data.ctypes.data, data.ctypes.data + size, 0, state, levels)
    if size < len(data):
        rest = np.zeros(_WORD_BYTES, np.uint8)
        rest[: len(data) - size] = data[size:]
        _follow(rest.ctypes.data, rest.ctypes.data + _WORD_BYTES, size, state, levels)


@compiled(
    *(types.void, types.intp, types.intp, types.uint8, types.uint8, types.uint64),
    *(types.Array(types.uint64, 2, "A"), types.Array(types.uint64, 1, "C")),
)
def _mark(at: int, end: int, delimiter: int, quote: int, has_quotes: Any, marks: Any, state: Any) -> None:
    inside, opens, closed, wrong = state
    word = 0
    while at < end:
        quotes, delimiters, feeds = _bits(at, quote) & has_quotes, _bits(at, delimiter), _bits(at, _LF)
        returns = _bits(at, _CR)
        beside = quotes | delimiters | feeds | returns
        literal = _odd(quotes) ^ (np.uint64(0) - inside)
        closing = quotes & ~literal
        wrong |= (quotes & literal & ~(beside << ONE | opens)) | (closed & ~beside)
        wrong |= closing & ~(beside >> ONE | ONE << _LAST)
        inside, opens, closed = literal >> _LAST, beside >> _LAST, closing >> _LAST
        marks[0, word], marks[1, word], marks[2, word], marks[3, word] = literal, delimiters & ~literal, feeds, returns
        at += _WORD_BYTES
        word += 1
    state[0], state[1], state[2], state[3] = inside, opens, closed, wrong


def mark_rows(data: Bytes, delimiter: int, quote: int) -> Words | None:
    """The bytes of CSV that are inside of quotes, the delimiters outside, and each LF and CR, as four rows of bits.

    None where a quote is within the text of a field. The bytes begin a row; the quote is negative if there is none.
    """
    marks, state = np.zeros((4, max(1, -(-len(data) // _WORD_BYTES))), np.uint64), np.array([0, 1, 0, 0], np.uint64)
    size = len(data) // _WORD_BYTES * _WORD_BYTES
    meaning = delimiter, max(quote, 0), ~np.uint64(0) if quote >= 0 else np.uint64(0)
    _mark(data.ctypes.data, data.ctypes.data + size, *meaning, marks, state)
    if size < len(data):
        rest = np.full(_WORD_BYTES, _LF, np.uint8)
        rest[: len(data) - size] = data[size:]
        _mark(rest.ctypes.data, rest.ctypes.data + _WORD_BYTES, *meaning, marks[:, -1:], state)
        marks[2, -1] &= (ONE << np.uint64(len(data) - size)) - ONE
    return None if state[3] else marks
