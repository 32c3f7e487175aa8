"""Machine code that numbers the groups of rows; needs numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from operators.reader.columns.kernels import compiled

_WORDS = types.Array(types.uint64, 1, "C", readonly=True)
_NUMBERS = types.Array(types.int64, 1, "C")

Numbers = npt.NDArray[np.int64]


@compiled(types.int64, _WORDS, _NUMBERS, _NUMBERS, types.Array(types.int32, 1, "C"))
def _number(keys: npt.NDArray[np.uint64], numbers: Numbers, firsts: Numbers, slots: npt.NDArray[np.int32]) -> int:
    """Give each row the number of its group, and each group its first row; returns how many groups there are.

    A slot holds the number of a group, or -1; there are more slots than rows, and a power of two of them. The slot of a
    key is the first that is free, from the one of its hash on.
    """
    count = 0
    mask = np.uint64(len(slots) - 1)
    for row in range(len(keys)):
        key = keys[row]
        # All bits of a key are in the lower ones of its hash: those of doubles that are whole numbers are upper ones.
        place = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        place = (place ^ (place >> np.uint64(32))) & mask
        while True:
            number = slots[place]
            if number < 0:
                slots[place] = count
                firsts[count] = row
                numbers[row] = count
                count += 1
                break
            if keys[firsts[number]] == key:
                numbers[row] = number
                break
            place = (place + np.uint64(1)) & mask
    return count


def numbered(keys: npt.NDArray[np.uint64]) -> tuple[Numbers, Numbers]:
    """The number of each row's group, in the order of their first rows, and these rows."""
    numbers, firsts = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    slots = np.full(1 << (len(keys) * 4 // 3).bit_length(), -1, np.int32)
    return numbers, firsts[: _number(keys, numbers, firsts, slots)]
