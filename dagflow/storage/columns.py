"""Arrow columns from Python's values and NumPy's, and back.

The same results as Arrow's own functions, without pandas: where pandas is installed, Arrow's functions import it. That
takes half a second and 36 MiB, which a driver, and each worker of a merge, would waste.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import compute as pc

_ARRAY_BYTES = (1 << 31) - 1
_PARTS = 16

_FEW = 1 << 10
"""Fewer values are looked up here: importing Arrow's functions takes a tenth of a run that finds nothing new."""


def parts_of(rows: Any) -> list[Any]:
    """A range or an array of more than one row in up to 16 parts, among which one is looked for that cannot be handled.

    With two parts, the levels above single rows would double the work where most rows cannot be handled.
    """
    size = -(-len(rows) // _PARTS)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def binary_column(values: Sequence[bytes]) -> pa.Array | pa.ChunkedArray:
    """A column of bytes; in several pieces above 2 GiB."""
    if sum(map(len, values)) > _ARRAY_BYTES:
        return pa.array(values, pa.binary())
    borders = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=borders[1:])
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(b"".join(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def int64_column(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))]
    return pa.Int64Array.from_buffers(pa.int64(), len(values), buffers)


def bool_column(values: npt.NDArray[np.bool_]) -> pa.BooleanArray:
    bits = np.packbits(values, bitorder="little")
    return pa.BooleanArray.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = np.from_dlpack(_in_one_piece(column))
    return numbers


def borders_of(values: pa.BinaryArray | pa.StringArray) -> npt.NDArray[np.int32]:
    """Where each value begins in the array's buffer, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int32)
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]


def bytes_of(values: pa.BinaryArray | pa.StringArray) -> npt.NDArray[np.uint8]:
    """The bytes of the values, one behind the other, as they are in the array's buffer from the first border on."""
    borders = borders_of(values)
    return np.frombuffer(values.buffers()[2] or b"", np.uint8)[borders[0] : borders[-1]]


def is_ascii(values: pa.BinaryArray | pa.StringArray) -> bool:
    """Whether all bytes of the values are ASCII, as far as their buffer shows, also those under a null."""
    return int(bytes_of(values).max(initial=0)) < 128


def flags_of(column: pa.BooleanArray | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    if not len(column):
        return np.empty(0, bool)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return _bits(column.buffers()[1], column.offset, len(column))


def positions_in(
    wanted: pa.Array | pa.ChunkedArray, column: pa.Array | pa.ChunkedArray
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
    """Look up values in a column.

    Returns:
        A mask over the wanted values, true for those that the column has; and for each of these, in order, the position
        of its first occurrence in the column.
    """
    if len(wanted) + len(column) < _FEW:
        first = {value: index for index, value in reversed([*enumerate(column.to_pylist())])}
        few = np.array([first.get(value, -1) for value in wanted.to_pylist()], np.int32)
        return few >= 0, few[few >= 0]
    indices = pc.index_in(wanted, value_set=column)
    if isinstance(indices, pa.ChunkedArray):
        indices = _in_one_piece(indices)
    validity, numbers = indices.buffers()
    positions = np.frombuffer(numbers, np.int32)[indices.offset : indices.offset + len(indices)]
    if validity is None:
        return np.ones(len(indices), bool), positions
    known = _bits(validity, indices.offset, len(indices))
    return known, positions[known]


def _in_one_piece(numbers: pa.ChunkedArray) -> pa.Array:
    if numbers.num_chunks:
        return numbers.combine_chunks()
    # For a column without pieces, Arrow makes one through pandas, if that is installed.
    return pa.Array.from_buffers(numbers.type, 0, [None, pa.py_buffer(b"")])


def _bits(buffer: pa.Buffer, start: int, count: int) -> npt.NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), count=start + count, bitorder="little")
    return bits[start:].astype(bool)
