"""Machine code that converts the numbers of JSON; needs numba.

compiled_objects calls the functions, for pieces of bytes that json_kernels has found to be numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from operators.reader.columns.machine_code import (
    BYTES,
    FLAG,
    LOWER,
    MINUS,
    OFFSETS,
    PLUS,
    POINT,
    SMALL_E,
    Bytes,
    Offsets,
    byte_at,
    compiled,
    digit_at,
    is_digit,
)

_POWERS_OF_TEN = np.array([float(10**power) for power in range(23)])
"""The powers of ten that a double holds exactly."""

_LARGEST_WHOLE = 1 << 53
"""Up to here a double holds every whole number."""

_DOUBLE_DIGITS, _WHOLE_DIGITS = 18, 19
"""The digits that always fit into 64 bits: of a number with a sign, and of one without."""

_ONE, _TEN = np.uint64(1), np.uint64(10)


@compiled(
    *(types.void, BYTES, OFFSETS, OFFSETS, types.uint64, types.uint64),
    *(types.Array(types.uint64, 1, "C"), types.Array(FLAG, 1, "C")),
)
def read_integers(
    data: Bytes,
    starts: Offsets,
    stops: Offsets,
    lowest: int,
    highest: int,
    values: npt.NDArray[np.uint64],
    is_read: npt.NDArray[np.bool_],
) -> None:
    """Convert whole numbers of JSON; an empty one becomes 0.

    The smallest number is given without its minus; 0 if none may have one. Numbers with a minus become the two's
    complement. is_read is made false for those that are not whole, not in the range, or have too many digits for this.
    """
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        is_negative = at < stop and byte_at(data, at) == MINUS
        if is_negative:
            at += 1
        value = np.uint64(0)
        is_right = stop - at <= _WHOLE_DIGITS and not (is_negative and lowest == 0)
        if is_right:
            for place in range(at, stop):
                is_right &= is_digit(data, place)
                value = _TEN * value + np.uint64(digit_at(data, place))
        values[row] = ~value + _ONE if is_negative else value
        is_read[row] &= is_right and value <= (lowest if is_negative else highest)


@compiled(FLAG, BYTES, OFFSETS, OFFSETS, types.Array(types.float64, 1, "C"))
def read_doubles(data: Bytes, starts: Offsets, stops: Offsets, values: npt.NDArray[np.float64]) -> bool:
    """Convert numbers of JSON to doubles; an empty one becomes 0.

    If a double holds the digits as a whole number, and the power of ten, then their product or quotient is rounded
    once, to the nearest double (W. D. Clinger, How to read floating point numbers accurately, 1990).

    Returns:
        False if a number needs more than that.
    """
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        is_negative = at < stop and byte_at(data, at) == MINUS
        if is_negative:
            at += 1
        value, power, digits, point = 0, 0, 0, -1
        while at < stop and byte_at(data, at) | LOWER != SMALL_E:
            if byte_at(data, at) == POINT:
                point = at
            else:
                digits += 1
                if digits > _DOUBLE_DIGITS:
                    return False
                value = 10 * value + digit_at(data, at)
            at += 1
        if point >= 0:
            power = point + 1 - at
        if at < stop:
            at += 1
            has_minus = byte_at(data, at) == MINUS
            if has_minus or byte_at(data, at) == PLUS:
                at += 1
            if stop - at > 3:
                return False
            exponent = 0
            for place in range(at, stop):
                exponent = 10 * exponent + digit_at(data, place)
            power += -exponent if has_minus else exponent
        if value > _LARGEST_WHOLE or not -len(_POWERS_OF_TEN) < power < len(_POWERS_OF_TEN):
            return False
        number = value / _POWERS_OF_TEN[-power] if power < 0 else value * _POWERS_OF_TEN[power]
        values[row] = -number if is_negative else number
    return True
