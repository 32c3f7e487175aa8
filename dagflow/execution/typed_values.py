"""Converts Python values to a known Arrow type, where nothing is lost by it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types

_CLASSES: Sequence[tuple[Callable[[pa.DataType], bool], type]] = (
    (types.is_integer, int),
    (types.is_floating, float),
    (types.is_boolean, bool),
    (types.is_decimal, Decimal),
    (types.is_string, str),
    (types.is_large_string, str),
    (types.is_binary, bytes),
    (types.is_large_binary, bytes),
    (types.is_fixed_size_binary, bytes),
    (types.is_timestamp, datetime),
    (types.is_date, date),
    (types.is_time, time),
    (types.is_duration, timedelta),
)
"""The class of the values of a type, for classes that cannot be changed in place."""


@functools.cache
def class_of(kind: pa.DataType) -> type | None:
    """The class of the values of a type; None where it can be changed in place, or is not known."""
    return next((cls for is_kind, cls in _CLASSES if is_kind(kind)), None)


def with_type(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Values as a type; None where they are not of its class, or do not fit."""
    classes = set(map(type, values))
    classes.discard(type(None))
    if not classes:
        return pa.array(values, kind)
    # Arrow raises errors of many types for values that do not fit.
    with contextlib.suppress(ValueError, TypeError, OverflowError, UnicodeEncodeError, pa.ArrowException):
        if types.is_nested(kind):
            array = pa.array(values, kind)
            field = pa.field("", kind)
            return (
                array if all(_is_kept(*pair, field) for pair in zip(values, array.to_pylist(), strict=True)) else None
            )
        # New values seldom fit a short float; those that a method passes on are not built.
        if classes <= {class_of(kind)} and not (types.is_float32(kind) or types.is_float16(kind)):
            return _temporal(values, kind) if types.is_temporal(kind) else pa.array(values, kind)
    return None


def _temporal(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Times and days as a type; None where only one of a value and the type has a zone."""
    if types.is_timestamp(kind) or types.is_time(kind):
        has_zone = types.is_timestamp(kind) and kind.tz is not None
        if {value.tzinfo is not None for value in values if value is not None} != {has_zone}:
            return None
    # Arrow truncates values that do not fit when it makes an array, but reports them when it casts one.
    return pa.array(values).cast(kind)


def _is_kept(value: Any, made: Any, field: pa.Field) -> bool:
    """Whether a value is the same in an array of a field: Arrow drops members, digits and times, and allows nulls."""
    kind = field.type
    if value is None:
        return bool(field.nullable)
    if not isinstance(made, type(value)):
        return False
    if types.is_struct(kind):
        parts = {part.name: part for part in kind}
        is_known = value.keys() <= parts.keys()
        return is_known and all(_is_kept(value.get(name), made[name], part) for name, part in parts.items())
    if types.is_map(kind):
        pairs = zip(value, made, strict=True)
        ends = kind.key_field, kind.item_field
        return all(all(map(_is_kept, pair, other, ends)) for pair, other in pairs)
    if types.is_nested(kind):
        return all(_is_kept(part, other, kind.value_field) for part, other in zip(value, made, strict=True))
    return bool(value == made) or value != value
