"""Machine code that looks for bytes 32 at a time; needs numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from operators.reader.columns.kernels import BYTES, ONE, Bytes, Offsets, Places, Words, compiled, lowest, part

BLOCK_BYTES = 32
"""Bytes that are compared, or copied, by one instruction where the processor has such."""

_INT32 = ir.IntType(32)
_BLOCK = ir.VectorType(ir.IntType(8), BLOCK_BYTES)

_WORD_BYTES = 2 * BLOCK_BYTES
_LAST = np.uint64(_WORD_BYTES - 1)

_MIXING = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples differ in all bits."""

_QUOTE, _BACKSLASH, _OPENING, _CLOSING, _OPENING_LIST, _CLOSING_LIST = b'"\\{}[]'
_LF, _CR = b"\n\r"
_LESS, _GREATER, _SLASH, _QUESTION, _EXCLAMATION, _DASH, _APOSTROPHE, _SPACE, _TAB, _AND = b"<>/?!-' \t&"

_Generated = tuple[Any, Callable[..., Any]]


def _loaded(builder: Any, address: Any) -> Any:
    block = builder.load(builder.inttoptr(address, _BLOCK.as_pointer()))
    block.align = 1
    return block


def _comparison(operator: str) -> _Generated:
    def code(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        unset = ir.Constant(_BLOCK, ir.Undefined)
        one = builder.insert_element(unset, arguments[1], ir.Constant(_INT32, 0))
        each = builder.shuffle_vector(one, unset, ir.Constant(ir.VectorType(_INT32, BLOCK_BYTES), [0] * BLOCK_BYTES))
        holds = builder.icmp_unsigned(operator, _loaded(builder, arguments[0]), each)
        return builder.bitcast(holds, ir.IntType(BLOCK_BYTES))

    return types.uint32(types.intp, types.uint8), code


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def _matches(_: Any, address: Any, byte: Any) -> _Generated:
    """A bit for each byte of a block, the first one the lowest: whether it is this byte."""
    return _comparison("==")


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def _below(_: Any, address: Any, byte: Any) -> _Generated:
    """A bit for each byte of a block, the first one the lowest: whether it is lower than this byte."""
    return _comparison("<")


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def _copy(_: Any, address: Any, source: Any) -> _Generated:
    """Copy a block."""

    def code(context: Any, builder: Any, __: Any, arguments: Any) -> Any:
        block = _loaded(builder, arguments[1])
        builder.store(block, builder.inttoptr(arguments[0], _BLOCK.as_pointer())).align = 1
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
        if _matches(at, refused) | _matches(at, also_refused):
            return 0
        _copy(to, at)
        found = _matches(at, terminator)
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
    return np.uint64(_matches(at, byte)) | np.uint64(_matches(at + BLOCK_BYTES, byte)) << np.uint64(BLOCK_BYTES)


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


@part
def _next(data: Bytes, at: int, place: int, byte: int) -> Any:
    """The first place of a byte from a place on, or the length of the data, which begins at an address."""
    while place + BLOCK_BYTES <= len(data):
        found = _matches(at + place, byte)
        if found:
            return place + lowest(np.uint64(found))
        place += BLOCK_BYTES
    while place < len(data) and data[place] != byte:
        place += 1
    return place


@part
def _begins(data: Bytes, place: int, text: Bytes) -> bool:
    """Whether a text is at a place; it would end within the data."""
    index = 0
    while index < len(text) and data[place + index] == text[index]:
        index += 1
    return index == len(text)


@part
def _end_of_aside(data: Bytes, at: int, place: int, cdata: Bytes) -> int:
    """The end of a comment, CDATA section or instruction; -1 where another thing begins, or it does not end."""
    if data[place + 1] == _QUESTION:
        least, mark = place + 3, _QUESTION
    elif data[place + 2] == _DASH and data[place + 3] == _DASH:
        least, mark = place + 6, _DASH
    elif place + len(cdata) <= len(data) and _begins(data, place, cdata):
        least, mark = place + 11, _CLOSING_LIST
    else:
        return -1
    end = _next(data, at, least, _GREATER)
    while end < len(data) and (data[end - 1] != mark or (mark != _QUESTION and data[end - 2] != mark)):
        end = _next(data, at, end + 1, _GREATER)
    return end + 1 if end < len(data) else -1


@part
def _end_of_tag(data: Bytes, place: int) -> int:
    """The end of a tag, from a place in it; -1 where it does not end, or has the beginning of one in it."""
    quote = np.uint8(0)
    while place < len(data) and data[place] != _LESS:
        byte = data[place]
        place += 1
        if quote:
            quote = np.uint8(0) if byte == quote else quote
        elif byte == _GREATER:
            return place
        elif byte in (_QUOTE, _APOSTROPHE):
            quote = byte
    return -1


@compiled(types.int64, BYTES, types.intp, BYTES, BYTES, types.Array(types.int64, 2, "C"))
def _find_elements(data: Bytes, at: int, tag: Bytes, cdata: Bytes, found: npt.NDArray[np.int64]) -> int:
    count = depth = begin = 0
    place = _next(data, at, 0, _LESS)
    # The name of a tag, and the byte behind it, lie in the data.
    while place < len(data) - len(tag) - 2:
        second = data[place + 1]
        if second in (_EXCLAMATION, _QUESTION):
            end = _end_of_aside(data, at, place, cdata)
            if end < 0:
                break
            place = _next(data, at, end, _LESS)
            continue
        is_end = second == _SLASH
        name = place + 1 + is_end
        behind = data[name + len(tag)]
        is_name = behind in (_GREATER, _SPACE, _LF, _CR, _TAB)
        if not (is_name or (behind == _SLASH and not is_end)) or not _begins(data, name, tag):
            place = _next(data, at, place + 1, _LESS)
            continue
        end = _end_of_tag(data, name)
        if end < 0 or depth < is_end:
            break
        if is_end:
            depth -= 1
        else:
            begin = begin if depth else place
            depth += data[end - 2] != _SLASH
        if not depth:
            found[0, count], found[1, count] = begin, end
            count += 1
        place = _next(data, at, end, _LESS)
    return count


def plain_elements(content: bytes, tag: bytes) -> npt.NDArray[np.int64]:
    """Where the first elements of XML begin and end, in two rows, up to something that needs a closer look.

    That is an element or an aside that does not end in the content, a document type, a tag with `<` in its attributes,
    or an end without a beginning. The content begins outside of elements.
    """
    data = np.frombuffer(content, np.uint8)
    found = np.empty((2, len(data) // (len(tag) + 3) + 1), np.int64)
    names = np.frombuffer(tag, np.uint8), np.frombuffer(b"<![CDATA[", np.uint8)
    return found[:, : _find_elements(data, data.ctypes.data, *names, found)]


@part
def _end_of_text(data: Bytes, at: int, place: int) -> Any:
    """The next `<`, or the end of the data; -1 where something unusual is before it, as a reference or a CR."""
    while place + BLOCK_BYTES <= len(data):
        found = _matches(at + place, _LESS) | _matches(at + place, _GREATER) | _matches(at + place, _AND)
        found |= _below(at + place, _SPACE)
        while found:
            byte = data[place + lowest(np.uint64(found))]
            if byte == _LESS:
                return place + lowest(np.uint64(found))
            if byte not in (_TAB, _LF):
                return -1
            found &= found - np.uint32(1)
        place += BLOCK_BYTES
    while place < len(data) and data[place] != _LESS:
        byte = data[place]
        if byte in (_GREATER, _AND) or (byte < _SPACE and byte not in (_TAB, _LF)):
            return -1
        place += 1
    return place


@part
def _end_of_value(data: Bytes, place: int, end: int, quote: int) -> int:
    """Where the value of an attribute ends; -1 where something unusual is in it, as a reference or a line break."""
    while place < end and data[place] != quote:
        if data[place] in (_LESS, _AND) or data[place] < _SPACE:
            return -1
        place += 1
    return place if place < end else -1


@part
def _end_of_piece(data: Bytes, place: int, end: int) -> int:
    """The end of a piece of markup; -1 where something unusual is in it."""
    while place < end:
        byte = data[place]
        place += 1
        if byte in (_GREATER, _QUOTE, _APOSTROPHE):
            return place
        if byte in (_LESS, _AND) or (byte < _SPACE and byte not in (_TAB, _LF)):
            return -1
    return -1


@compiled(
    *(types.void, BYTES, types.intp, types.Array(types.int64, 1, "C", readonly=True)),
    *(types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C"), types.Array(types.uint64, 1, "C")),
)
def _find_markup(data: Bytes, at: int, borders: Places, pieces: Any, firsts: Places, hashes: Words) -> None:
    count = 0
    for row in range(len(hashes)):
        place, end, mixed = borders[row], borders[row + 1], _MIXING
        while 0 <= place < end:
            stop = _end_of_piece(data, place + 1, end)
            if stop < 0:
                place = stop
                break
            for index in range(place + 1, stop):
                mixed = (mixed ^ np.uint64(data[index])) * _MIXING
            pieces[0, count], pieces[1, count] = place, stop
            count += 1
            last = data[stop - 1]
            if last != _GREATER:
                place = _end_of_value(data, stop, end, last)
            else:
                place = _end_of_text(data, at, stop) if stop < end else end
        if place < 0:
            count, mixed = firsts[row], np.uint64(0)
        firsts[row + 1], hashes[row] = count, mixed


@compiled(
    *(types.void, BYTES, types.Array(types.int64, 2, "C"), *[types.Array(types.int64, 1, "C")] * 3),
    types.Array(types.bool_, 1, "C"),
)
def _compare_markup(data: Bytes, pieces: Any, firsts: Places, rows: Places, others: Places, is_same: Any) -> None:
    for index in range(len(rows)):
        first, other = firsts[rows[index]], firsts[others[index]]
        count, piece = firsts[rows[index] + 1] - first, 0
        if count != firsts[others[index] + 1] - other:
            continue
        while piece < count:
            place, stop, like = pieces[0, first + piece], pieces[1, first + piece], pieces[0, other + piece]
            if stop - place != pieces[1, other + piece] - like:
                break
            while place < stop and data[place] == data[like]:
                place, like = place + 1, like + 1
            if place < stop:
                break
            piece += 1
        is_same[index] = piece == count


class Markup:
    """The pieces of markup of elements of XML; behind each but the last of an element is a text.

    Args:
        data: The bytes of elements that are side by side.
        borders: Where each begins, and the last ends.

    Attributes:
        firsts: The first piece of each element, and one past the last of all; an element with anything unusual, as a
            reference, has none.
        hashes: A hash of the markup of each element.
    """

    def __init__(self, data: Bytes, borders: Places) -> None:
        pieces, self.firsts = np.empty((2, len(data) // 2 + 1), np.int64), np.zeros(len(borders), np.int64)
        self.hashes = np.empty(len(borders) - 1, np.uint64)
        _find_markup(data, data.ctypes.data, borders, pieces, self.firsts, self.hashes)
        self._data, self._pieces = data, pieces[:, : self.firsts[-1]].copy()

    def texts(self, rows: Places, index: int) -> tuple[Places, Places]:
        """Where the texts with an index begin and end in some elements."""
        places = self.firsts[rows] + index
        return self._pieces[1, places], self._pieces[0, places + 1]

    def pieces_of(self, row: int) -> tuple[bytes, ...]:
        """The markup of an element."""
        places = self._pieces[:, self.firsts[row] : self.firsts[row + 1]].T.tolist()
        return tuple(self._data[start:stop].tobytes() for start, stop in places)

    def are_like(self, rows: Places, others: Places) -> npt.NDArray[np.bool_]:
        """For each of some elements whether its markup is that of another one."""
        are_like = np.zeros(len(rows), bool)
        _compare_markup(self._data, self._pieces, self.firsts, rows, others, are_like)
        return are_like
