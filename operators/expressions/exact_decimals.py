"""Decimals rounded and divided without a wrong digit.

Arrow divides decimals by numbers of 32 bits exactly. By longer ones it errs for a few values of any width: one of its
guesses of a digit overflows where a part of the dividend begins as the divisor does.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.reader.columns.literals import WIDE_DIGITS

_STEP = 9
"""Digits of the longest power of ten that has 32 bits."""

_INT64_DIGITS = 19

_PYTHONS = Context(prec=200)
"""With room for the quotient of any two decimals."""


def rescaled(values: Any, target: pa.DataType) -> Any:
    """Decimals with another number of digits, rounded half away from zero; null for too many before the point."""
    source = values.type
    if source == target:
        return values
    if source.scale > target.scale:
        # The first digit that is cut off decides the rounding.
        values = _cut(values, target.scale + 1)
        values = pc.round(values, ndigits=target.scale, round_mode="half_towards_infinity")
        values = pc.cast(values, pa.decimal256(WIDE_DIGITS, target.scale))
    else:
        values = pc.cast(values, pa.decimal256(WIDE_DIGITS, source.scale))
    return fitted(values, target)


def fitted(values: Any, kind: pa.DataType) -> Any:
    """Numbers in another type, with null for those that it does not have.

    Args:
        values: Whole numbers, doubles without fractions, or decimals whose scale the type has room for.
        kind: A type of whole numbers, or of decimals.
    """
    try:
        return pc.cast(values, kind)
    except pa.ArrowInvalid:
        low, high = _limits(values.type, kind)
    fits = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
    return pc.cast(pc.if_else(fits, values, pa.scalar(None, values.type)), kind)


def _limits(source: pa.DataType, kind: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """The smallest and the largest number of a type that another type has as well."""
    if pa.types.is_decimal(kind):
        most = Decimal((0, (9,) * (kind.precision - kind.scale + source.scale), -source.scale))
        least = most.copy_negate()
    else:
        least, most = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_decimal(source):
        wide = pa.decimal256(WIDE_DIGITS, source.scale)
        return pa.scalar(Decimal(least), wide), pa.scalar(Decimal(most), wide)
    if pa.types.is_floating(source):
        number = source.to_pandas_dtype()
        least, most = number(least), np.nextafter(number(-least), number(0))
    return pa.scalar(least, source), pa.scalar(most, source)


def with_room(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel of whole numbers that gives null, and does not raise, where the result does not fit their type."""

    def compute(*values: Any) -> Any:
        try:
            return kernel(*values)
        except pa.ArrowInvalid:
            wide = [pc.cast(each, pa.decimal256(_INT64_DIGITS, 0)) for each in values]
        return fitted(kernel(*wide), values[0].type)

    return compute


def unless_zero(divisor: Any) -> Any:
    """A divisor, with null for 0."""
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)


def as_floating(values: Any, target: pa.DataType) -> Any:
    """The floating-point numbers that are nearest to decimals."""
    # By way of text: Arrow's own way is off by the last digit for many values.
    return pc.cast(pc.cast(values, pa.string()), target)


def whole_part(values: Any) -> Any:
    """Decimals without the digits behind the point."""
    kind = values.type
    return pc.cast(_cut(values, 0), pa.decimal256(max(kind.precision - kind.scale, 1), 0))


def floor(values: Any) -> Any:
    """The largest whole decimals that are not larger."""
    whole = whole_part(values)
    one, zero = (pa.scalar(Decimal(each), pa.decimal256(1, 0)) for each in (1, 0))
    return pc.subtract(whole, pc.if_else(pc.less(values, whole), one, zero))


def ceil(values: Any) -> Any:
    """The smallest whole decimals that are not smaller."""
    return pc.negate(floor(pc.negate(values)))


def _cut(values: Any, scale: int) -> Any:
    """Decimals of the widest type without the digits behind the first few after the point."""
    values = pc.cast(values, pa.decimal256(WIDE_DIGITS, values.type.scale))
    while values.type.scale > scale:
        fewer = max(scale, values.type.scale - _STEP)
        values = pc.cast(values, pa.decimal256(WIDE_DIGITS, fewer), safe=False)
    return values


def quotient(dividend: Any, divisor: Any, kind: pa.DataType) -> Any:
    """Dividend / divisor, rounded half away from zero.

    Args:
        dividend: With digits enough that Arrow's quotient has one more behind the point than kind.
        divisor: An array or a scalar, as the dividend is.
        kind: A decimal type.
    """
    divisor = unless_zero(divisor)
    if dividend.type.precision + 2 * divisor.type.precision + 3 <= WIDE_DIGITS:
        found = pc.divide_checked(dividend, divisor)
        if _is_exact(found, dividend, divisor):
            return rescaled(found, kind)
    return rescaled(_divided_in_python(dividend, divisor, kind.scale + 1), kind)


def _is_exact(found: Any, dividend: Any, divisor: Any) -> bool:
    """Whether the remainders of quotients are smaller than one more unit of them would take."""
    product = pc.abs(pc.multiply(found, divisor))
    rest = pc.subtract(pc.abs(dividend), product)
    unit = pa.scalar(Decimal((0, (1,), -found.type.scale)), pa.decimal256(1, found.type.scale))
    is_less = pc.less(rest, pc.multiply(pc.abs(divisor), unit))
    is_right = pc.and_(is_less, pc.greater_equal(rest, pa.scalar(Decimal(0), rest.type)))
    return bool(pc.all(is_right, min_count=0).as_py())


def _divided_in_python(dividend: Any, divisor: Any, scale: int) -> pa.Array:
    """Quotients cut off behind some digits, one by one; null where there is none."""
    count = next(len(each) for each in (dividend, divisor) if isinstance(each, pa.Array))
    tops, bottoms = (
        [each.as_py()] * count if isinstance(each, pa.Scalar) else each.to_pylist() for each in (dividend, divisor)
    )
    units = [
        _PYTHONS.divide_int(_PYTHONS.scaleb(top, scale), bottom) if top is not None and bottom else None
        for top, bottom in zip(tops, bottoms, strict=True)
    ]
    found = [None if each is None else _PYTHONS.scaleb(each, -scale) for each in units]
    return pa.array(found, pa.decimal256(WIDE_DIGITS, scale))


_MAX_DIGITS = 22
"""Powers of ten up to this one are doubles."""

_MAX_DIGITS_OF_REALS = 11
"""Up to here, no rounded number lies so near to the middle of two reals that its double is the middle."""

_UNITS = 1e14
"""Numbers of fewer units have 15 digits with the half of one: no two of them have the same double."""

_WHOLE_FROM = 2.0**53
"""Doubles from here on have no fraction."""

_OF_A_DOUBLE = Context(prec=28)


def rounded(values: Any, places: int) -> Any:
    """Doubles or reals with a number of digits behind the point; with a negative one, tens, hundreds and so on."""
    if isinstance(values, pa.Scalar):
        return rounded(pa.repeat(values, 1), places)[0]
    given = values.to_numpy(zero_copy_only=False)
    is_kept = ~np.isfinite(given)
    if places >= 0:
        is_kept |= np.abs(given) >= _WHOLE_FROM
    found, is_sure = given.copy(), is_kept
    if abs(places) <= (_MAX_DIGITS if pa.types.is_float64(values.type) else _MAX_DIGITS_OF_REALS):
        computed, is_exact = _computed(given, places)
        found, is_sure = np.where(is_kept, given, computed), is_kept | is_exact
    rows = np.flatnonzero(~is_sure)
    texts = [_rounded_text(number, places) for number in given[rows].tolist()]
    # A zero has no sign, as in Spark.
    found[rows] = pc.cast(pa.array(texts, pa.string()), values.type).to_numpy() + 0.0
    return pa.array(found, values.type, mask=values.is_null().to_numpy(zero_copy_only=False))


def _computed(given: npt.NDArray[Any], places: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Rounded numbers, and which of them equal the rounding of their text.

    A number is on the same side of a half as its text: the border is the text of the half, as a double.
    """
    unit, size = 10.0 ** abs(places), np.abs(given.astype(np.float64))
    with np.errstate(all="ignore"):
        units = size * unit if places >= 0 else size / unit
        below = np.floor(units)
        half = (below + 0.5) / unit if places >= 0 else (below + 0.5) * unit
        whole = below + (size >= half)
        found = np.copysign(whole / unit if places >= 0 else whole * unit, given).astype(given.dtype) + 0.0
    return found, units < _UNITS


def _rounded_text(number: float, places: int) -> str:
    exact = Decimal(repr(number))
    if not exact or exact.adjusted() < -places - 1:
        return "0"
    if -int(exact.as_tuple().exponent) <= places:
        return str(exact)
    return str(exact.quantize(Decimal((0, (1,), -places)), ROUND_HALF_UP, context=_OF_A_DOUBLE))
