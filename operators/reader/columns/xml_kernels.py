"""Machine code that finds elements of XML, and the texts in them; needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from operators.reader.columns.kernels import (
    BLOCK_BYTES,
    BYTES,
    Bytes,
    Places,
    below,
    compiled,
    lowest,
    matches,
    part,
)

_LESS, _GREATER, _SLASH, _QUESTION, _EXCLAMATION, _DASH, _BRACKET, _QUOTE, _APOSTROPHE = b"<>/?!-]\"'"
_AND, _HASH, _X, _END, _SPACE, _TAB, _LF, _CR = b"&#x; \t\n\r"

_LT, _GT, _AMP, _QUOT, _APOS = (
    np.uint64(int.from_bytes(b, "little")) for b in (b"lt;", b"gt;", b"amp;", b"quot;", b"apos;")
)
"""The names of references, with the byte behind them."""


@part
def _next(data: Bytes, at: int, place: int, byte: int) -> Any:
    """The first place of a byte from a place on, or the length of the data, which begins at an address."""
    while place + BLOCK_BYTES <= len(data):
        found = matches(at + place, byte)
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
        least, mark = place + 11, _BRACKET
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
def _digit(byte: int) -> int:
    """The value of a hexadecimal digit; 16 where it is none."""
    letter = byte | 0x20
    return byte - 48 if 48 <= byte <= 57 else letter - 87 if 97 <= letter <= 102 else 16


@part
def _reference(data: Bytes, place: int) -> tuple[Any, Any]:
    """The character that a reference means, by its number, and its end; -1 where it is none of XML's own."""
    if place + 6 > len(data):
        return -1, place
    word = np.uint64(0)
    for index in range(5):
        word |= np.uint64(data[place + 1 + index]) << np.uint64(8 * index)
    short, middle = word & np.uint64(0xFFFFFF), word & np.uint64(0xFFFFFFFF)
    if short in (_LT, _GT):
        return _LESS if short == _LT else _GREATER, place + 4
    if middle == _AMP:
        return _AND, place + 5
    if word in (_QUOT, _APOS):
        return _QUOTE if word == _QUOT else _APOSTROPHE, place + 6
    if data[place + 1] != _HASH:
        return -1, place
    base = 16 if data[place + 2] == _X else 10
    begin = end = place + (3 if base == 16 else 2)
    code = 0
    while end < len(data) and _digit(data[end]) < base and code <= 0x10FFFF:
        code = code * base + _digit(data[end])
        end += 1
    is_character = code in (_TAB, _LF, _CR) or _SPACE <= code < 0xD800 or 0xE000 <= code <= 0x10FFFF
    is_character &= code not in (0xFFFE, 0xFFFF) and begin < end < len(data) and data[min(end, len(data) - 1)] == _END
    return (code if is_character else -1), end + 1


@compiled(
    types.int64,
    BYTES,
    *[types.Array(types.int64, 1, "C", readonly=True)] * 2,
    types.Array(types.uint8, 1, "C"),
    types.Array(types.int32, 1, "C"),
)
def _copy_unescaped(data: Bytes, starts: Places, stops: Places, copied: Any, borders: Any) -> Any:
    to: Any = 0
    for row in range(len(starts)):
        place: Any = starts[row]
        while place < stops[row]:
            code: Any = np.int64(data[place])
            if code != _AND:
                copied[to] = data[place]
                to, place = to + 1, place + 1
                continue
            code, place = _reference(data, place)
            if code < 0x80:
                copied[to] = code
                to += 1
                continue
            rest = 1 + (code >= 0x800) + (code >= 0x10000)
            copied[to] = (0xF00 >> (rest + 1) & 0xFF) | code >> 6 * rest
            for index in range(1, rest + 1):
                copied[to + index] = 0x80 | (code >> 6 * (rest - index) & 0x3F)
            to += rest + 1
        borders[row + 1] = to
    return to


@part
def _is_unusual(data: Bytes, place: int) -> Any:
    """Whether a byte of a text means more than itself, and is no blank, line feed or reference to a character."""
    byte = data[place]
    if byte == _AND:
        return _reference(data, place)[0] < 0
    return byte == _GREATER or (byte < _SPACE and byte not in (_TAB, _LF))


@part
def _end_of_text(data: Bytes, at: int, place: int) -> Any:
    """The next `<`, or the end of the data; -1 where something unusual is before it, as a CR."""
    while place + BLOCK_BYTES <= len(data):
        found = matches(at + place, _LESS) | matches(at + place, _GREATER) | matches(at + place, _AND)
        found |= below(at + place, _SPACE)
        while found:
            byte = data[place + lowest(np.uint64(found))]
            if byte == _LESS:
                return place + lowest(np.uint64(found))
            if _is_unusual(data, place + lowest(np.uint64(found))):
                return -1
            found &= found - np.uint32(1)
        place += BLOCK_BYTES
    while place < len(data) and data[place] != _LESS:
        if _is_unusual(data, place):
            return -1
        place += 1
    return place


@part
def _end_of_value(data: Bytes, place: int, end: int, quote: int) -> int:
    """Where the value of an attribute ends; -1 where something unusual is in it, as a line break."""
    while place < end and data[place] != quote:
        if data[place] in (_LESS, _TAB, _LF) or (data[place] != _GREATER and _is_unusual(data, place)):
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
    *(types.int64, BYTES, types.intp, types.Array(types.int64, 1, "C", readonly=True)),
    *(types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")),
    *(types.Array(types.uint8, 1, "C"), types.Array(types.int32, 1, "C")),
)
def _find_markup(data: Bytes, at: int, borders: Places, pieces: Any, firsts: Places, copied: Any, ends: Any) -> Any:
    count, to = 0, np.int64(0)
    for row in range(len(borders) - 1):
        place, end = borders[row], borders[row + 1]
        while 0 <= place < end:
            stop = _end_of_piece(data, place + 1, end)
            if stop < 0:
                place = stop
                break
            for index in range(place, stop):
                copied[to] = data[index]
                to += 1
            pieces[0, count], pieces[1, count] = place, stop
            count += 1
            last = data[stop - 1]
            if last != _GREATER:
                place = _end_of_value(data, stop, end, last)
            else:
                place = _end_of_text(data, at, stop) if stop < end else end
        if place < 0:
            count, to = firsts[row], np.int64(ends[row])
        firsts[row + 1], ends[row + 1] = count, to
    return to


class Markup:
    """The pieces of markup of elements of XML; behind each but the last of an element is a text.

    Args:
        data: The bytes of elements that are side by side.
        borders: Where each begins, and the last ends.

    Attributes:
        firsts: The first piece of each element, and one past the last of all; an element with anything unusual has
            none.
        written: The pieces of each element, side by side; each ends at the first `>` or quote behind its first byte.
    """

    def __init__(self, data: Bytes, borders: Places) -> None:
        pieces, self.firsts = np.empty((2, len(data) // 2 + 1), np.int64), np.zeros(len(borders), np.int64)
        copied, ends = np.empty(len(data), np.uint8), np.zeros(len(borders), np.int32)
        size = _find_markup(data, data.ctypes.data, borders, pieces, self.firsts, copied, ends)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(copied[:size])]
        self.written = pa.Array.from_buffers(pa.binary(), len(borders) - 1, buffers)
        self._data, self._pieces = data, pieces[:, : self.firsts[-1]].copy()

    def texts(self, rows: Places, index: int) -> tuple[Places, Places]:
        """Where the texts with an index begin and end in some elements."""
        places = self.firsts[rows] + index
        return self._pieces[1, places], self._pieces[0, places + 1]

    def copied(self, starts: Places, stops: Places) -> pa.StringArray:
        """Texts, with the characters that their references mean."""
        borders = np.zeros(len(starts) + 1, np.int32)
        copied = np.empty(int((stops - starts).sum()), np.uint8)
        size = _copy_unescaped(self._data, starts, stops, copied, borders)
        return pa.StringArray.from_buffers(len(starts), pa.py_buffer(borders), pa.py_buffer(copied[:size]))
