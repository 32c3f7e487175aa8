"""Changes of type, as the ANSI mode of Spark makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions.exact_decimals import as_floating, fitted, rescaled, whole_part
from operators.expressions.sql_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    TEXT,
    as_decimal,
    is_number,
    is_whole,
    name_of,
)
from operators.expressions.vectors import Bound, CallSite, Rows, Vector, applied, attempted, shared, typed
from operators.reader.columns.literals import WIDE_DIGITS, decimals_of, is_written_as, values_of, why_not
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
    is_decimal = pa.types.is_decimal(kind)

    def why(text: str) -> str:
        if is_decimal and is_written_as(text.strip(), column):
            return f"{_shown(text)} does not fit {column.name}"
        return f"{_shown(text)} {why_not(text.strip(), column)}"

    return why


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
