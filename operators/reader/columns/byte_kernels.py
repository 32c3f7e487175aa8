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

from operators.reader.columns.kernels import ONE, Bytes, Offsets, compiled, lowest, part

BLOCK_BYTES = 32
"""Bytes that are compared, or copied, by one instruction where the processor has such."""

_INT32 = ir.IntType(32)
_BLOCK = ir.VectorType(ir.IntType(8), BLOCK_BYTES)

_WORD_BYTES = 2 * BLOCK_BYTES

_QUOTE, _BACKSLASH, _OPENING, _CLOSING, _OPENING_LIST, _CLOSING_LIST = b'"\\{}[]'

_Generated = tuple[Any, Callable[..., Any]]


def _loaded(builder: Any, address: Any) -> Any:
    block = builder.load(builder.inttoptr(address, _BLOCK.as_pointer()))
    block.align = 1
    return block


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def _matches(_: Any, address: Any, byte: Any) -> _Generated:
    """A bit for each byte of a block, the first one the lowest: whether it is this byte."""

    def code(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        unset = ir.Constant(_BLOCK, ir.Undefined)
        one = builder.insert_element(unset, arguments[1], ir.Constant(_INT32, 0))
        each = builder.shuffle_vector(one, unset, ir.Constant(ir.VectorType(_INT32, BLOCK_BYTES), [0] * BLOCK_BYTES))
        is_equal = builder.icmp_unsigned("==", _loaded(builder, arguments[0]), each)
        return builder.bitcast(is_equal, ir.IntType(BLOCK_BYTES))

    return types.uint32(types.intp, types.uint8), code


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
        strings = _bits(at, _QUOTE) & ~escaped
        for power in range(6):
            strings ^= strings << (ONE << np.uint64(power))
        strings ^= in_string
        in_string = np.uint64(0) - (strings >> np.uint64(63))
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
