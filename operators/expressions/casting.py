"""Changes of type, as the ANSI mode of Spark makes them, and decimals rounded and divided without a wrong digit.

Arrow divides decimals by numbers of 32 bits exactly. By longer ones it errs for a few values of any width: one of its
guesses of a digit overflows where a part of the dividend begins as the divisor does. Doubles are rounded by their
shortest text, half away from zero.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import compute as pc
from operators.expressions.sql_types import BOOLEAN, DATE, DOUBLE, TEXT, as_decimal, is_number, is_whole, name_of
from operators.expressions.vectors import Bound, CallSite, Rows, Vector, applied, attempted, shared, typed
from operators.reader.columns.literals import WIDE_DIGITS, decimals_of, reason_by_text, values_of
from operators.reader.columns.types import ColumnType

_WIDE_SCALE = 37
"""Digits behind the point that are read of a text before they are rounded; most texts have no more."""

_LARGEST = 1e38
"""No decimal has so many digits before the point."""


def cast(site: CallSite, value: Bound, kind: pa.DataType) -> Bound:
    """The value in another type; a value that cannot be converted fails."""
    if value.type == kind:
        return value
    if pa.types.is_null(value.type):
        return typed(value, kind)
    kernel = _kernel(value.type, kind)
    if kernel is None:
        reason = f"{name_of(value.type)} cannot become {name_of(kind)}{_hint(value.type)}"
        raise site.error(reason, value)
    if _holds_all(value.type, kind):
        return applied(site, kind, kernel, value)
    if value.type == TEXT:
        return attempted(site, kind, kernel, _why_no(kind), value)
    return attempted(site, kind, kernel, lambda given: f"{_shown(given)} does not fit {name_of(kind)}", value)


def lenient_cast(site: CallSite, value: Bound, kind: pa.DataType) -> Bound:
    """The value in another type, or null where it cannot be converted."""
    value = shared(value)
    strict = cast(site, value, kind)

    def compute(rows: Rows) -> Vector:
        given = value.compute(rows)
        found = strict.compute(rows)
        # Values that failed before the cast keep their failure.
        return Vector(found.values, given.failures)

    return Bound(site.node, kind, compute)


def _why_no(kind: pa.DataType) -> Callable[[str], str]:
    column = ColumnType(name_of(kind), kind)
    why = reason_by_text(column, f"does not fit {column.name}" if pa.types.is_decimal(kind) else None)
    return lambda text: f"{_shown(text)} {why(text.strip())}"


def _hint(source: pa.DataType) -> str:
    if pa.types.is_timestamp(source) and source.tz is not None:
        return "; say which zone's clock is meant, as in ts at time zone 'UTC'"
    return ""


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _holds_all(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether no value of a type is lost or refused in another one."""
    if target in (TEXT, BOOLEAN):
        return bool(source != TEXT and not pa.types.is_binary(source))
    if target == DOUBLE:
        return bool(source != TEXT)
    if target == DATE:
        return bool(pa.types.is_timestamp(source))
    if is_whole(source) and is_whole(target):
        return bool(source.bit_width <= target.bit_width)
    return False


def _kernel(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    """The function that converts values; None if the types cannot be converted."""
    if source == TEXT:
        return _from_text(target)
    if target == TEXT:
        return _to_text(source)
    if source == BOOLEAN:
        return _plain(target) if is_number(target) and not pa.types.is_decimal(target) else _decimal_of_bool(target)
    if is_number(source):
        return _from_number(source, target)
    if pa.types.is_date(source):
        return _plain(target) if pa.types.is_timestamp(target) and target.tz is None else None
    if pa.types.is_timestamp(source) and source.tz is None:
        return _plain(target) if pa.types.is_date(target) or _is_naive(target) else None
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target) and target.tz is not None:
        return _plain(target)
    return None


def _is_naive(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _fitted(kind: pa.DataType) -> Callable[[Any], Any]:
    return lambda values: fitted(values, kind)


def _plain(kind: pa.DataType) -> Callable[[Any], Any]:
    return lambda values: pc.cast(values, kind)


def _decimal_of_bool(target: pa.DataType) -> Callable[[Any], Any] | None:
    if not pa.types.is_decimal(target):
        return None
    return lambda values: rescaled(pc.cast(pc.cast(values, pa.int8()), pa.decimal128(3, 0)), target)


def _from_number(source: pa.DataType, target: pa.DataType) -> Callable[[Any], Any] | None:
    if target == BOOLEAN:
        zero = pa.scalar(0, source)
        return lambda values: pc.not_equal(values, zero)
    if pa.types.is_decimal(target):
        if pa.types.is_floating(source):
            return lambda values: _decimal_of_double(values, target)
        return lambda values: rescaled(pc.cast(values, as_decimal(source)), target)
    if pa.types.is_floating(target):
        if pa.types.is_decimal(source):
            return lambda values: as_floating(values, target)
        return lambda values: pc.cast(values, target, safe=False)
    if is_whole(target):
        if is_whole(source):
            return _fitted(target)
        if pa.types.is_decimal(source):
            return lambda values: fitted(whole_part(values), target)
        return lambda values: _whole_of_double(pc.trunc(values), target)
    return None


def _whole_of_double(values: Any, target: pa.DataType) -> Any:
    """Whole numbers; the double that the largest one of 64 bits becomes is that number again, as in Spark."""
    largest = 2 ** (target.bit_width - 1) - 1
    if float(largest) == largest:
        return fitted(values, target)
    return pc.if_else(pc.equal(values, float(largest)), pa.scalar(largest, target), fitted(values, target))


def _decimal_of_double(values: Any, target: pa.DataType) -> Any:
    """Round the shortest text of a number, half away from zero, as Spark does."""
    sizes = pc.abs(values)
    # Most small numbers have an exponent, with which decimals_of is slow.
    large = pc.if_else(pc.less(sizes, 10.0 ** -(target.scale + 1)), 0.0, values)
    fitting = pc.if_else(pc.greater_equal(sizes, _LARGEST), None, large)
    return rescaled(decimals_of(pc.cast(fitting, TEXT), _wide(target), cuts=True), target)


def _from_text(target: pa.DataType) -> Callable[[Any], Any] | None:
    if not (is_number(target) or target in (BOOLEAN, DATE) or _is_naive(target)):
        return None
    if pa.types.is_decimal(target):
        return lambda texts: rescaled(_read(texts, ColumnType("decimal", _wide(target)), cuts=True), target)
    column = ColumnType(name_of(target), target)
    return lambda texts: _read(texts, column)


def _wide(target: pa.DataType) -> pa.DataType:
    """A type with room for all digits before the point of a decimal, and more than those behind it."""
    return pa.decimal256(WIDE_DIGITS, max(_WIDE_SCALE, target.scale + 1))


def _read(texts: Any, column: ColumnType, *, cuts: bool = False) -> Any:
    return values_of(pc.utf8_trim_whitespace(texts), column, cuts=cuts)


def _to_text(source: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_floating(source):
        return _text_of_double
    if pa.types.is_decimal(source):
        return _text_of_decimal
    if _is_naive(source):
        return lambda values: without_zeros(pc.cast(values, TEXT))
    if is_whole(source) or source in (BOOLEAN, DATE) or pa.types.is_binary(source) or pa.types.is_time(source):
        return _plain(TEXT)
    return None


def without_zeros(texts: Any) -> Any:
    """Clock times without zeros at the end of their fractions."""
    return pc.replace_substring_regex(pc.replace_substring_regex(texts, r"(\.[0-9]*?)0+$", r"\1"), r"\.$", "")


def _text_of_double(values: Any) -> Any:
    texts = pc.replace_substring_regex(pc.cast(values, TEXT), r"^(-?[0-9]+)$", r"\1.0")
    texts = pc.replace_substring_regex(texts, "^-?nan$", "NaN")
    return pc.replace_substring_regex(texts, "^(-?)inf$", r"\1Infinity")


def _text_of_decimal(values: Any) -> Any:
    """All digits: Arrow writes small values with an exponent, but not when they are 1 or more."""
    kind = values.type
    if not kind.scale:
        return pc.cast(values, TEXT)
    signed = pc.cast(values, pa.decimal256(kind.precision, kind.scale))
    wide = pc.abs(signed)
    whole = whole_part(wide)
    # With a one before the point, which is removed from the text again.
    fraction = pc.subtract(wide, whole)
    digits = pc.cast(pc.add(fraction, pa.scalar(1, pa.decimal256(1, 0))), TEXT)
    sign = pc.if_else(pc.less(signed, pa.scalar(0, pa.decimal256(1, 0))), "-", "")
    return pc.binary_join_element_wise(sign, pc.cast(whole, TEXT), pc.utf8_slice_codeunits(digits, 1), "")


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


def whole_floor(values: Any) -> Any:
    """The largest whole decimals that are not larger."""
    whole = whole_part(values)
    one, zero = (pa.scalar(Decimal(each), pa.decimal256(1, 0)) for each in (1, 0))
    return pc.subtract(whole, pc.if_else(pc.less(values, whole), one, zero))


def whole_ceil(values: Any) -> Any:
    """The smallest whole decimals that are not smaller."""
    return pc.negate(whole_floor(pc.negate(values)))


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
