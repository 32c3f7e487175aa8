"""Finds types that take all values of two others, whatever the values are."""

from __future__ import annotations

import pyarrow as pa

_EXACT_IN_DOUBLE = 32
"""Bits of whole numbers that a double holds without loss."""

_MOST_DIGITS = 38


def common_type(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that takes all values of two types, or None if there is none.

    Args:
        kind: A type that is not nested.
        other: The other one.
    """
    types = pa.types
    if kind == other:
        return kind
    if types.is_decimal(kind) and types.is_decimal(other):
        return _common_decimal(kind, other)
    if types.is_date(kind) and types.is_timestamp(other):
        return other if other.tz is None else None
    if types.is_date(other) and types.is_timestamp(kind):
        return common_type(other, kind)
    if types.is_signed_integer(kind) and types.is_signed_integer(other):
        return max(kind, other, key=lambda each: each.bit_width)
    if types.is_floating(kind) and types.is_floating(other):
        return max(kind, other, key=lambda each: each.bit_width)
    for whole, number in ((kind, other), (other, kind)):
        if types.is_signed_integer(whole) and whole.bit_width <= _EXACT_IN_DOUBLE and types.is_float64(number):
            return number
    return None


def common_type_of_readers(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """As common_type, where files of both types are read together: by DuckDB, polars, pyarrow and Spark.

    Not all of them read dates as timestamps, and decimals with other digits behind the point.
    """
    if pa.types.is_date(kind) or pa.types.is_date(other):
        return kind if kind == other else None
    if pa.types.is_decimal(kind) and pa.types.is_decimal(other) and kind.scale != other.scale:
        return None
    return common_type(kind, other)


def _common_decimal(kind: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    scale = max(kind.scale, other.scale)
    digits = scale + max(kind.precision - kind.scale, other.precision - other.scale)
    return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else None
