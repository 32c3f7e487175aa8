"""Adding, multiplying, dividing and rounding, as the ANSI mode of Spark does."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.late import compute as pc
from operators.expressions.casting import (
    cast,
    fitted,
    quotient,
    rescaled,
    rounded,
    unless_zero,
    whole_ceil,
    whole_floor,
    with_room,
)
from operators.expressions.moments import moved, subtracted
from operators.expressions.sql_types import (
    BIGINT,
    DOUBLE,
    INTEGER,
    MAX_DIGITS,
    MIN_SCALE,
    as_decimal,
    common_type,
    decimal,
    is_number,
    is_whole,
    name_of,
)
from operators.expressions.syntax import Constant, ExpressionError
from operators.expressions.vectors import Bound, CallSite, applied, attempted
from operators.reader.columns.literals import WIDE_DIGITS


def _overflow(kind: pa.DataType, sign: str) -> Callable[..., str]:
    return lambda left, right: f"{left} {sign} {right} does not fit {name_of(kind)}"


def _no_division(left: Any, right: Any) -> str:
    return f"{left} is divided by 0" if not right else f"{left} / {right} does not fit"


def _too_long(site: CallSite, where: Bound, left: pa.DataType, sign: str, right: pa.DataType) -> ExpressionError:
    return site.error(
        f"{name_of(left)} {sign} {name_of(right)} has too many digits; cast one to a decimal with fewer", where
    )


def _number(site: CallSite, argument: Bound) -> Bound:
    """A number; a null without a type is a double."""
    return site.require(argument, is_number, "numbers", DOUBLE)


def _numbers(site: CallSite, left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Two numbers; a null is of the other's type."""
    first, second = (site.require(each, is_number, "numbers") for each in (left, right))
    if pa.types.is_null(first.type):
        return _number(site, cast(site, first, second.type)), _number(site, second)
    return first, cast(site, second, first.type) if pa.types.is_null(second.type) else second


def _digits(value: Bound) -> pa.DataType:
    """The decimal type of an operand; for a written whole number, the smallest that holds it."""
    if isinstance(value.node, Constant) and isinstance(value.node.value, int):
        return pa.decimal128(len(str(abs(value.node.value))), 0)
    return as_decimal(value.type)


def _is_decimal_sum(left: Bound, right: Bound) -> bool:
    kinds = (left.type, right.type)
    return any(map(pa.types.is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds))


def add(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Left + right; days and intervals are added to dates and timestamps."""
    is_length = pa.types.is_duration(left.type) or not pa.types.is_temporal(left.type)
    if is_length and pa.types.is_temporal(right.type):
        left, right = right, left
    if pa.types.is_temporal(left.type):
        return moved(site, left, right, 1)
    return _sum(site, left, right, with_room(pc.add_checked), "+")


def subtract(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Left - right: the days between two dates, or the interval between two timestamps."""
    if pa.types.is_null(left.type) and pa.types.is_temporal(right.type):
        left = cast(site, left, right.type)
    if pa.types.is_temporal(left.type) and pa.types.is_temporal(right.type) and not pa.types.is_duration(right.type):
        return subtracted(site, left, right)
    if pa.types.is_temporal(left.type):
        return moved(site, left, right, -1)
    return _sum(site, left, right, with_room(pc.subtract_checked), "-")


def _sum(site: CallSite, left: Bound, right: Bound, kernel: Callable[..., Any], sign: str) -> Bound:
    left, right = _numbers(site, left, right)
    if _is_decimal_sum(left, right):
        first, second = _digits(left), _digits(right)
        scale = max(first.scale, second.scale)
        whole = max(first.precision - first.scale, second.precision - second.scale)
        if whole + scale + 1 > WIDE_DIGITS:
            raise _too_long(site, left, first, sign, second)
        kind = decimal(whole + scale + 1, scale)
        return _of_decimals(site, kind, kernel, sign, cast(site, left, first), cast(site, right, second))
    return _of_equals(site, left, right, kernel, sign)


def _of_equals(site: CallSite, left: Bound, right: Bound, kernel: Callable[..., Any], sign: str) -> Bound:
    """A kernel that takes two values of one type, and gives one of it."""
    kind = common_type(left.type, right.type) or INTEGER
    operands = cast(site, left, kind), cast(site, right, kind)
    if pa.types.is_floating(kind):
        return applied(site, kind, kernel, *operands)
    return attempted(site, kind, kernel, _overflow(kind, sign), *operands)


def _of_decimals(
    site: CallSite, kind: pa.DataType, kernel: Callable[..., Any], sign: str, left: Bound, right: Bound
) -> Bound:
    """A kernel of decimals, computed with all digits and then rounded to those of the result."""

    def compute(first: Any, second: Any) -> Any:
        first = pc.cast(first, pa.decimal256(left.type.precision, left.type.scale))
        second = pc.cast(second, pa.decimal256(right.type.precision, right.type.scale))
        return rescaled(kernel(first, second), kind)

    return attempted(site, kind, compute, _overflow(kind, sign), left, right)


def multiply(site: CallSite, left: Bound, right: Bound) -> Bound:
    left, right = _numbers(site, left, right)
    if not _is_decimal_sum(left, right):
        return _of_equals(site, left, right, with_room(pc.multiply_checked), "*")
    first, second = _digits(left), _digits(right)
    digits = first.precision + second.precision + 1
    if digits > WIDE_DIGITS:
        raise _too_long(site, left, first, "*", second)
    kind = decimal(digits, first.scale + second.scale)
    return _of_decimals(site, kind, pc.multiply_checked, "*", cast(site, left, first), cast(site, right, second))


def divide(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Left / right: a decimal where one is a decimal and none a double, else a double."""
    left, right = _numbers(site, left, right)
    if not _is_decimal_sum(left, right):
        return attempted(site, DOUBLE, _quotient, _no_division, cast(site, left, DOUBLE), cast(site, right, DOUBLE))
    first, second = _digits(left), _digits(right)
    scale = max(MIN_SCALE, first.scale + second.precision + 1)
    kind = decimal(first.precision - first.scale + second.scale + scale, scale)
    # Arrow's quotient has the scale s1 + p2 - s2 + 1: a dividend with more zeros gives one digit more than is kept.
    padded = max(first.scale, kind.scale + second.scale - second.precision)
    digits = first.precision - first.scale + padded
    if digits + second.precision + 1 > WIDE_DIGITS:
        raise _too_long(site, left, first, "/", second)

    def compute(dividend: Any, divisor: Any) -> Any:
        dividend = pc.cast(dividend, pa.decimal256(digits, padded))
        divisor = pc.cast(divisor, pa.decimal256(second.precision, second.scale))
        return quotient(dividend, divisor, kind)

    return attempted(site, kind, compute, _no_division, cast(site, left, first), cast(site, right, second))


def integer_divide(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Left div right: the quotient of whole numbers without its fraction."""
    for each in (left, right):
        site.require(each, is_whole, "whole numbers")
    return attempted(
        site, BIGINT, with_room(_quotient), _no_division, cast(site, left, BIGINT), cast(site, right, BIGINT)
    )


def _quotient(dividend: Any, divisor: Any) -> Any:
    return pc.divide_checked(dividend, unless_zero(divisor))


def modulo(site: CallSite, left: Bound, right: Bound) -> Bound:
    for each in (left, right):
        site.require(each, lambda kind: is_whole(kind) or pa.types.is_floating(kind), "whole numbers and doubles")
    left, right = _numbers(site, left, right)
    kind = common_type(left.type, right.type) or INTEGER
    kernel = _remainder_of_doubles if pa.types.is_floating(kind) else _remainder
    return attempted(site, kind, kernel, _no_division, cast(site, left, kind), cast(site, right, kind))


def _remainder(left: Any, right: Any) -> Any:
    # The smallest number divided by -1 would not fit.
    one = pa.scalar(1, right.type)
    right = pc.if_else(pc.equal(right, pa.scalar(-1, right.type)), one, right)
    return pc.subtract(left, pc.multiply(_quotient(left, right), right))


def _remainder_of_doubles(left: Any, right: Any) -> Any:
    missing = pc.or_(pc.or_(pc.is_null(left), pc.is_null(right)), pc.fill_null(pc.equal(right, 0.0), False))
    with np.errstate(all="ignore"):
        values = np.fmod(_numpy(left), _numpy(right))
    kind = left.type
    if isinstance(missing, pa.Scalar):
        return pa.scalar(None if missing.as_py() else values.item(), kind)
    return pc.if_else(missing, pa.scalar(None, kind), pa.array(np.broadcast_to(values, len(missing)), kind))


def _numpy(values: Any) -> Any:
    if isinstance(values, pa.Scalar):
        return np.float64(math.nan if not values.is_valid else values.as_py())
    return values.to_numpy(zero_copy_only=False)


def negative(site: CallSite, value: Bound) -> Bound:
    value = value if pa.types.is_duration(value.type) else _number(site, value)
    why = lambda given: f"-({given}) does not fit {name_of(value.type)}"  # noqa: E731  # a reason, not a function
    return attempted(site, value.type, with_room(pc.negate_checked), why, value)


def absolute(site: CallSite, value: Bound) -> Bound:
    value = _number(site, value)
    if not is_whole(value.type):
        return applied(site, value.type, pc.abs, value)
    return attempted(site, value.type, with_room(pc.abs_checked), lambda given: f"abs({given}) does not fit", value)


def double(site: CallSite, value: Bound) -> Bound:
    return cast(site, _number(site, value), DOUBLE)


def floor(site: CallSite, value: Bound) -> Bound:
    return _whole(site, value, pc.floor, whole_floor)


def ceil(site: CallSite, value: Bound) -> Bound:
    return _whole(site, value, pc.ceil, whole_ceil)


def _whole(site: CallSite, value: Bound, of_doubles: Callable[[Any], Any], of_decimals: Callable[[Any], Any]) -> Bound:
    value = _number(site, value)
    if is_whole(value.type):
        return cast(site, value, BIGINT)
    if not pa.types.is_decimal(value.type):
        why = lambda given: f"{given} does not fit bigint"  # noqa: E731  # a reason, not a function
        return attempted(
            site, BIGINT, lambda values: fitted(of_doubles(values), BIGINT), why, cast(site, value, DOUBLE)
        )
    source = value.type
    kind = pa.decimal128(min(source.precision - source.scale + (1 if source.scale else 0), 38), 0)

    def compute(values: Any) -> Any:
        return rescaled(of_decimals(values), kind)

    return attempted(site, kind, compute, lambda given: f"{given} does not fit {name_of(kind)}", value)


def round_to(site: CallSite, value: Bound, digits: Bound | None = None) -> Bound:
    """round(value, digits): half away from zero; to whole numbers without digits, to tens with -1."""
    value = _number(site, value)
    places = 0 if digits is None else site.written_number(digits, "the number of digits")
    if pa.types.is_floating(value.type):
        return applied(site, value.type, partial(rounded, places=places), value)
    if is_whole(value.type) and places >= 0:
        return value
    source = as_decimal(value.type)
    # A number that is rounded to more than ten times the largest one is 0.
    kept = max(min(places, source.scale), source.scale - source.precision - 1)
    scale = max(kept, 0)
    longest = min(max(source.precision - source.scale + scale + 1, 1 - places), MAX_DIGITS)
    kind = value.type if is_whole(value.type) else pa.decimal128(longest, scale)

    def compute(values: Any) -> Any:
        return fitted(rescaled(pc.cast(values, source), pa.decimal256(WIDE_DIGITS, kept)), kind)

    return attempted(site, kind, compute, lambda given: f"{given} does not fit {name_of(kind)}", value)


def of_double(kernel: Callable[..., Any], least: float = -math.inf) -> Callable[[CallSite, Bound], Bound]:
    """A function of one double that has no value for those that are less than one, such as sqrt."""

    def bind(site: CallSite, value: Bound) -> Bound:
        why = lambda given: f"{site.name} has no value for {given}"  # noqa: E731  # a reason, not a function
        return attempted(site, DOUBLE, lambda values: kernel(_from(values, least)), why, double(site, value))

    return bind


def _from(values: Any, least: float) -> Any:
    """Numbers, with null for smaller ones than the least, and not for NaN."""
    return pc.if_else(pc.less(values, least), pa.scalar(None, values.type), values)


def power(site: CallSite, base: Bound, exponent: Bound) -> Bound:
    base, exponent = _numbers(site, base, exponent)
    return applied(site, DOUBLE, _power, cast(site, base, DOUBLE), cast(site, exponent, DOUBLE))


def _power(base: Any, exponent: Any) -> Any:
    """Without a number where Java has none: C makes 1 of these."""
    is_one = pc.and_(pc.equal(pc.abs(base), 1.0), pc.is_inf(exponent))
    return pc.if_else(pc.or_(pc.is_nan(exponent), is_one), math.nan, pc.power(base, exponent))
