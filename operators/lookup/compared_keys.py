"""Keys of records and of a table, converted to one type in which they are equal exactly where they were before.

But decimals with digits behind the point are compared with doubles as doubles, which round them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions.exact_decimals import as_floating
from operators.expressions.sql_types import DOUBLE, as_decimal, common_type, is_whole, normal_type


def compared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which keys of two types are compared; None where they cannot be.

    The type holds each value that both types have, though not each value that one of them has.

    Args:
        left: A normal type of expressions.
        right: The other one.
    """
    for whole, other in ((left, right), (right, left)):
        # A double holds no whole number beyond 2^53 for sure.
        if pa.types.is_floating(other) and (is_whole(whole) or (pa.types.is_decimal(whole) and whole.scale == 0)):
            return whole
    return common_type(left, right)


def compared_keys(values: pa.Array, kind: pa.DataType) -> Any:
    """Keys in the type in which they are compared; null, which matches nothing, for a key that the type does not have.

    Args:
        values: The keys.
        kind: The type, of `compared_type`.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == kind:
        return values
    if pa.types.is_floating(values.type) and not pa.types.is_floating(kind):
        return _whole(pc.cast(values, DOUBLE), kind)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(kind):
        return as_floating(values, kind)
    if not pa.types.is_decimal(kind):
        try:
            return pc.cast(values, kind)
        except pa.ArrowInvalid:
            return _where_equal(values, kind)
    # Arrow checks the type of a whole number instead of its value.
    if pa.types.is_integer(values.type):
        values = pc.cast(values, as_decimal(normal_type(values.type)))
    # Arrow accepts a decimal that is too large: 2^63 as decimal(38, 30) is 46826544.8.
    return _where_equal(values, kind)


def _whole(values: pa.Array, kind: pa.DataType) -> Any:
    """Doubles that are whole numbers of a type."""
    if pa.types.is_decimal(kind):
        most = 10.0**kind.precision
        fits = pc.and_(pc.greater(values, -most), pc.less(values, most))
    else:
        most = 2.0 ** (kind.bit_width - 1)
        fits = pc.and_(pc.greater_equal(values, -most), pc.less(values, most))
    fits = pc.and_(fits, pc.equal(pc.floor(values), values))
    return pc.cast(pc.if_else(fits, values, None), kind)


def _where_equal(values: pa.Array, kind: pa.DataType) -> Any:
    """Values that stay the same when they are cast back; null for the others."""
    found = pc.cast(values, kind, safe=False)
    return pc.if_else(pc.equal(pc.cast(found, values.type, safe=False), values), found, None)
