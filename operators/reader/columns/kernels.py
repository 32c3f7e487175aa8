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
from numba import types

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.reader.byte_source import PADDING

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
"""The eight bytes from each byte on, the first one in the lowest position; they overlap."""

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OVERLAPPING = types.Array(types.uint64, 1, "A", readonly=True, aligned=False)
WRITTEN = types.Array(types.uint64, 1, "A", aligned=False)
_OFFSETS = types.Array(types.int32, 1, "C", readonly=True)

EACH = np.uint64(0x0101010101010101)
"""The lowest bit of each byte of a word."""

HIGHEST = EACH * np.uint64(0x80)
ONE = np.uint64(1)

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
    *(types.void, OVERLAPPING, _OFFSETS, _OFFSETS, types.int64, WRITTEN, types.Array(types.int32, 1, "C")),
)
def _copy_texts(
    words: Words, starts: Offsets, stops: Offsets, quote: int, copied_words: Words, borders: Offsets
) -> None:
    """Copy texts side by side.

    Both words are bytes as overlapping words. Those to copy to are PADDING bytes larger than the texts; borders takes
    in the start of each text in them, and the end of the last one. Where the stop is negative, quotes are doubled.
    """
    to = 0
    for row in range(len(starts)):
        borders[row] = to
        if stops[row] < 0:
            at = starts[row]
            while at < -stops[row]:
                word = words[np.uintp(at)]
                copied_words[np.uintp(to)] = word
                at += 2 if word & np.uint64(255) == np.uint64(quote) else 1
                to += 1
            continue
        size = stops[row] - starts[row]
        for done in range(0, size, 8):
            # Up to seven more bytes, which the next text overwrites.
            copied_words[np.uintp(to + done)] = words[np.uintp(starts[row] + done)]
        to += size
    borders[len(starts)] = to


def texts_of(
    words: Words,
    starts: Offsets,
    stops: Offsets,
    is_null: npt.NDArray[np.bool_] | None,
    type: pa.DataType,
    quote: int = 0,
) -> pa.Array:
    """Texts, or bytes, that begin and end at some places, and none where they are null.

    Where the stop is negative, quotes within the text are doubled.
    """
    borders = np.empty(len(starts) + 1, np.int32)
    copied = np.empty(int((np.abs(stops) - starts).sum()) + PADDING, np.uint8)
    _copy_texts(words, starts, stops, quote, words_of(copied), borders)
    buffers = [validity_of(is_null), pa.py_buffer(borders), pa.py_buffer(copied)]
    return pa.Array.from_buffers(type, len(starts), buffers)


def validity_of(is_null: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The bits of an array for values that are not null."""
    return None if is_null is None else pa.array(~is_null).buffers()[1]
