"""Compiles functions of this package to machine code, and holds the parts that they share; needs numba.

numba compiles a function when its module is first imported on a machine, which takes some seconds, and keeps the code
beside the module, or in the cache directory of the user. It compiles again only when that module changes, so all parts
of a function are in one module, except those here. After a change of these, remove `__pycache__/*.nb*`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import types

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]

INT, FLAG = types.int64, types.boolean
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)

ZERO, NINE, MINUS, PLUS, POINT, SMALL_E = b"09-+.e"
LOWER = 0x20
"""The bit by which small letters differ from capital ones."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(result: Any, *arguments: Any) -> Callable[[_Function], _Function]:
    """Compile a function for arguments of these types; Python calls it."""
    compile: Callable[[_Function], _Function] = numba.njit(
        result(*arguments), cache=True, nogil=True, no_cfunc_wrapper=True
    )
    return compile


def part(function: _Function) -> _Function:
    """Compile a part of other functions: it is inlined, because passing arrays takes seven values for each of them.

    Only compiled functions can call it. Making functions callable takes two fifths of the time to compile them.
    """
    part: _Function = numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return part


@part
def byte_at(data: Bytes, at: int) -> int:
    """The byte at a position, which is not negative."""
    # An index that may be negative would be compared with zero, which takes as long as all other work.
    byte: int = data[np.uintp(at)]
    return byte


@part
def is_digit(data: Bytes, at: int) -> bool:
    """Whether a digit is at a position."""
    return ZERO <= byte_at(data, at) <= NINE


@part
def digit_at(data: Bytes, at: int) -> int:
    """The digit at a position as a number."""
    return byte_at(data, at) - ZERO
