"""Arrow columns from Python's values and NumPy's, and back.

What Arrow's own functions give, without pandas: where that is installed they begin with its import, half a second that
a rescan, and each worker of a merge, has no other use for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_ARRAY_BYTES = (1 << 31) - 1


def binary_column(values: Sequence[bytes]) -> pa.Array | pa.ChunkedArray:
    """A column of bytes; in several pieces above 2 GiB."""
    if sum(map(len, values)) > _ARRAY_BYTES:
        return pa.array(values, pa.binary())
    borders = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=borders[1:])
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(b"".join(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def int64_column(values: npt.NDArray[np.int64]) -> pa.Int64Array:
    """A column of numbers."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))]
    return pa.Int64Array.from_buffers(pa.int64(), len(values), buffers)


def numbers_of(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """The numbers of a column without nulls."""
    numbers: npt.NDArray[Any] = np.from_dlpack(column.combine_chunks())
    return numbers
