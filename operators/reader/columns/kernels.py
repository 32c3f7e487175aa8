"""Machine code that copies texts, and what is needed to compile that of formats; needs numba.

numba compiles a function when its module is first imported on a machine, which takes some seconds, and keeps the code
beside the module, or in the cache directory of the user. It compiles again only when the module changes, so all parts
of a function are in one module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.reader.byte_source import PADDING

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
"""The eight bytes from each byte on, the first one in the lowest position; they overlap."""

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OVERLAPPING = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
WRITTEN = types.Array(types.uint64, 1, "A", aligned=False)
PLACES = types.Array(types.int32, 2, "C", readonly=True)

EACH = np.uint64(0x0101010101010101)
"""The lowest bit of each byte of a word."""

HIGHEST = EACH * np.uint64(0x80)
ONE = np.uint64(1)

TILE_ROWS = 256
"""Rows of which all columns are copied before those of others: their bytes stay in the cache of the core."""

_FIRST_IN_TEXT = ord(" ")
"""Lower bytes are control characters."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


_OPTIONS: dict[str, Any] = {"no_cfunc_wrapper": True, "_nrt": False}
"""No function makes objects. Otherwise each array that is passed to a part is counted, which takes most of the time."""


def compiled(result: Any, *arguments: Any) -> Callable[[_Function], _Function]:
    """Compile a function for arguments of these types; Python calls it."""
    compile: Callable[[_Function], _Function] = numba.njit(result(*arguments), cache=True, nogil=True, **_OPTIONS)
    return compile


def part(function: _Function) -> _Function:
    """Compile a part of other functions: it is inlined, because passing arrays takes seven values for each of them.

    Only compiled functions can call it. Making functions callable takes two fifths of the time to compile them.
    """
    inlined: _Function = numba.njit(forceinline=True, no_cpython_wrapper=True, **_OPTIONS)(function)
    return inlined


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def lowest(context: Any, bits: Any) -> Any:
    """The place of the lowest bit of a word that is set; there is one."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), code


BLOCK_BYTES = 32
"""Bytes that are compared, or copied, by one instruction where the processor has such."""

BLOCK = ir.VectorType(ir.IntType(8), BLOCK_BYTES)

Generated = tuple[Any, Callable[..., Any]]
"""The type of an intrinsic function, and the function that makes its code."""


def loaded(builder: Any, address: Any) -> Any:
    """The block at an address."""
    block = builder.load(builder.inttoptr(address, BLOCK.as_pointer()))
    block.align = 1
    return block


def _comparison(operator: str) -> Generated:
    def code(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        unset = ir.Constant(BLOCK, ir.Undefined)
        one = builder.insert_element(unset, arguments[1], ir.Constant(ir.IntType(32), 0))
        each = builder.shuffle_vector(
            one, unset, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK_BYTES), [0] * BLOCK_BYTES)
        )
        holds = builder.icmp_unsigned(operator, loaded(builder, arguments[0]), each)
        return builder.bitcast(holds, ir.IntType(BLOCK_BYTES))

    return types.uint32(types.intp, types.uint8), code


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def matches(_: Any, address: Any, byte: Any) -> Generated:
    """A bit for each byte of a block, the first one the lowest: whether it is this byte."""
    return _comparison("==")


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types for it
def below(_: Any, address: Any, byte: Any) -> Generated:
    """A bit for each byte of a block, the first one the lowest: whether it is lower than this byte."""
    return _comparison("<")


def words_of(data: Bytes) -> Words:
    """The eight bytes from each byte on; they overlap."""
    return np.ndarray((len(data) - 7,), np.uint64, data, strides=(1,))


def padded(batch: RecordBatch) -> Bytes:
    """The bytes of a raw batch and its delimiters, followed by PADDING; copied unless they have it."""
    borders = borders_of(batch.framed())
    data, start, stop = np.frombuffer(batch.framed().buffers()[2], np.uint8), int(borders[0]), int(borders[-1])
    if stop + PADDING <= len(data) and start < stop and data[stop - 1] < _FIRST_IN_TEXT:
        return data[start : stop + PADDING]
    copied = np.zeros(stop - start + PADDING, np.uint8)
    copied[: stop - start] = data[start:stop]
    return copied


@compiled(
    *(types.void, OVERLAPPING, PLACES, PLACES, types.int64, WRITTEN),
    *(types.Array(types.int64, 1, "C", readonly=True), types.Array(types.int32, 2, "C")),
)
def _copy_texts(
    words: Words, starts: Offsets, stops: Offsets, quote: int, copied_words: Words, bases: Places, borders: Offsets
) -> None:
    """Copy the texts of each column side by side.

    Both words are bytes as overlapping words. Those to copy to are PADDING bytes larger than the texts; bases say where
    those of each column begin, and borders take in where each text begins behind that, and where the last one ends.
    Where the stop is negative, quotes are doubled.
    """
    columns, rows = starts.shape
    for first in range(0, rows, TILE_ROWS):
        for column in range(columns):
            to = bases[column] + borders[column, first]
            for row in range(first, min(first + TILE_ROWS, rows)):
                at, stop = starts[column, row], stops[column, row]
                if stop < 0:
                    while at < -stop:
                        word = words[np.uintp(at)]
                        copied_words[np.uintp(to)] = word
                        at += 2 if word & np.uint64(255) == np.uint64(quote) else 1
                        to += 1
                else:
                    end = to + stop - at
                    # Up to fifteen more bytes, which the next text overwrites. Most texts take one step.
                    while to < end:
                        copied_words[np.uintp(to)] = words[np.uintp(at)]
                        copied_words[np.uintp(to + 8)] = words[np.uintp(at + 8)]
                        at, to = at + 16, to + 16
                    to = end
                borders[column, row + 1] = to - bases[column]


def texts_of(
    words: Words, starts: Offsets, stops: Offsets, is_null: npt.NDArray[np.bool_] | None = None, quote: int = 0
) -> list[pa.Array]:
    """Columns of texts that begin and end at some places, by column and row, and none where they are null.

    Where the stop is negative, quotes within the text are doubled.
    """
    columns, rows = starts.shape
    sizes = (np.abs(stops) - starts).sum(axis=1, dtype=np.int64) + PADDING
    bases = np.cumsum(sizes) - sizes
    borders = np.zeros((columns, rows + 1), np.int32)
    copied = np.empty(int(sizes.sum()) + PADDING, np.uint8)
    _copy_texts(words, starts, stops, quote, words_of(copied), bases, borders)
    texts = []
    for column, (base, size) in enumerate(zip(bases, sizes, strict=True)):
        nulls = None if is_null is None or not is_null[column].any() else is_null[column]
        buffers = [validity_of(nulls), pa.py_buffer(borders[column]), pa.py_buffer(copied[base : base + size])]
        texts.append(pa.Array.from_buffers(pa.string(), rows, buffers))
    return texts


def validity_of(is_null: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The bits of an array for values that are not null."""
    return None if is_null is None else pa.array(~is_null).buffers()[1]
