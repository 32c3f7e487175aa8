"""Types in expressions: their names, and the type that two of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

BOOLEAN = pa.bool_()
INTEGER = pa.int32()
BIGINT = pa.int64()
DOUBLE = pa.float64()
TEXT = pa.string()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us")
INTERVAL = pa.duration("us")
NULL = pa.null()

DecimalType = Callable[[int, int], pa.DataType]
"""Gives the type of decimals with some digits before and behind the point."""

MAX_DIGITS = 38
MIN_SCALE = 6
"""Digits behind the point that a decimal keeps where all of its digits do not fit."""

_WIDTHS = (pa.int8(), pa.int16(), INTEGER, BIGINT)
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, INTEGER: 10, BIGINT: 20}
_UNITS = ("s", "ms", "us", "ns")


def name_of(kind: pa.DataType) -> str:
    """A type as messages call it, and as cast takes it."""
    names: dict[Any, str] = {
        pa.int8(): "tinyint",
        pa.int16(): "smallint",
        INTEGER: "int",
        BIGINT: "bigint",
        pa.float32(): "real",
        DOUBLE: "double",
        BOOLEAN: "boolean",
        TEXT: "text",
        DATE: "date",
        INTERVAL: "interval",
        TIMESTAMP: "timestamp",
    }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    return names.get(kind, str(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether values of the type can be added and multiplied."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_whole(kind: pa.DataType) -> bool:
    """Whether values are whole numbers of a fixed width."""
    return bool(pa.types.is_signed_integer(kind))


def decimal(digits: int, scale: int) -> pa.DataType:
    """The decimal type of a result: one of more than 38 digits loses some behind the point."""
    if digits <= MAX_DIGITS:
        return pa.decimal128(max(digits, 1), scale)
    return pa.decimal128(MAX_DIGITS, max(MAX_DIGITS - (digits - scale), min(scale, MIN_SCALE)))


def as_decimal(kind: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of a decimal or whole type."""
    return kind if pa.types.is_decimal(kind) else pa.decimal128(_INTEGER_DIGITS[kind], 0)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two values are compared, or become one column; None where there is none."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        # Values of both kinds cannot be compared without a zone; two zones show the same instants.
        if (left.tz is None) != (right.tz is None):
            return None
        return pa.timestamp(max(left.unit, right.unit, key=_UNITS.index), left.tz)
    if {pa.types.is_date(left), pa.types.is_date(right)} == {True, False}:
        stamp = right if pa.types.is_date(left) else left
        return stamp if pa.types.is_timestamp(stamp) and stamp.tz is None else None
    return None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return DOUBLE
    if is_whole(left) and is_whole(right):
        return max(left, right, key=_WIDTHS.index)
    whole, scale = _digits_of_both(left, right)
    return pa.decimal128(min(whole + scale, MAX_DIGITS), scale)


def _digits_of_both(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """How many digits before and behind the point hold all values of two types, of decimals or whole numbers."""
    first, second = as_decimal(left), as_decimal(right)
    return max(first.precision - first.scale, second.precision - second.scale), max(first.scale, second.scale)


def _common_decimal(left: pa.DataType, right: pa.DataType, too_long: DecimalType) -> pa.DataType | None:
    """As common_type, but where decimals of 38 digits do not hold all values of both types."""
    kind = common_type(left, right)
    if kind is None or not pa.types.is_decimal(kind) or pa.types.is_null(left) or pa.types.is_null(right):
        return kind
    whole, scale = _digits_of_both(left, right)
    return kind if whole + scale <= MAX_DIGITS else too_long(whole, scale)


def chosen_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of a choice between two values: decimals keep the digits before the point, as in Spark."""
    return _common_decimal(left, right, lambda whole, scale: pa.decimal128(MAX_DIGITS, MAX_DIGITS - whole))


def compared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two values are compared: decimals keep all digits."""
    return _common_decimal(left, right, lambda whole, scale: pa.decimal256(whole + scale, scale))


def normal_type(kind: pa.DataType) -> pa.DataType:
    """The type by which expressions see a column: texts and days have one type each, and whole numbers are signed."""
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    if pa.types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if kind.bit_width == 64 else _WIDTHS[_WIDTHS.index(_signed(kind)) + 1]
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind):
        return pa.decimal128(min(kind.precision, MAX_DIGITS), kind.scale)
    return DATE if pa.types.is_date64(kind) else kind


def _signed(kind: pa.DataType) -> pa.DataType:
    return {8: pa.int8(), 16: pa.int16(), 32: INTEGER}[kind.bit_width]
