"""Converts Python values to a known Arrow type, where nothing is lost by it."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    if types.is_float32(kind) or types.is_float16(kind):
        # New values seldom fit; those that a method passes on are not built.
        return None if any(value is not None for value in values) else pa.array(values, kind)
    return _typed(values, kind)


def _typed(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    classes = set(map(type, values))
    classes.discard(type(None))
    if not classes:
        return pa.array(values, kind)
    if types.is_nested(kind):
        return _nested(values, kind, classes)
    if not classes <= {class_of(kind)}:
        return None
    with contextlib.suppress(pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        if types.is_temporal(kind):
            return _temporal(values, kind)
        array = pa.array(values, kind)
        if types.is_float32(kind) or types.is_float16(kind):
            exact = np.array(values, np.float64)
            doubles = array.to_numpy(zero_copy_only=False).astype(np.float64)
            return array if np.array_equal(doubles, exact, equal_nan=True) else None
        return array
    return None


def _temporal(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Times and days as a type; None where only one of a value and the type has a zone."""
    if types.is_timestamp(kind) or types.is_time(kind):
        has_zone = types.is_timestamp(kind) and kind.tz is not None
        if {value.tzinfo is not None for value in values if value is not None} != {has_zone}:
            return None
    # Arrow truncates values that do not fit when it makes an array, but reports them when it casts one.
    return pa.array(values).cast(kind)


def _nested(values: Sequence[Any], kind: pa.DataType, classes: set[type]) -> pa.Array | None:
    """Lists, pairs or members as a type; built part by part, as Arrow drops members that a type lacks."""
    if types.is_struct(kind):
        return _structs(values, kind) if classes == {dict} else None
    if classes != {list} or not (types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)):
        return None
    parts = [*itertools.chain.from_iterable(value for value in values if value is not None)]
    # A null border makes the list that begins there null.
    ends = itertools.accumulate(0 if value is None else len(value) for value in values)
    borders = [None if value is None else end - len(value) for value, end in zip(values, ends, strict=True)]
    borders.append(len(parts))
    if types.is_map(kind):
        if any(type(part) is not tuple or len(part) != 2 for part in parts):
            return None
        keys = _typed([key for key, _ in parts], kind.key_type)
        items = _typed([item for _, item in parts], kind.item_type)
        if keys is None or items is None or keys.null_count or _lacks(items, kind.item_field):
            return None
        return pa.MapArray.from_arrays(pa.array(borders, pa.int32()), keys, items, kind)
    elements = _typed(parts, kind.value_type)
    if elements is None or _lacks(elements, kind.value_field):
        return None
    if types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(borders, pa.int64()), elements, kind)
    return pa.ListArray.from_arrays(pa.array(borders, pa.int32()), elements, kind)


def _structs(values: Sequence[Any], kind: pa.StructType) -> pa.Array | None:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    names = [field.name for field in fields]
    found = set(itertools.chain.from_iterable(value for value in values if value is not None))
    if not found <= set(names) or len(set(names)) < len(names) or not fields:
        return None
    members, is_there = [], pa.array([value is not None for value in values])
    for field in fields:
        member = _typed([None if value is None else value.get(field.name) for value in values], field.type)
        if member is None or _lacks(member.filter(is_there), field):
            return None
        members.append(member)
    return pa.StructArray.from_arrays(members, fields=fields, mask=pc.invert(is_there))


def _lacks(values: pa.Array, field: pa.Field) -> bool:
    """Whether there are nulls where a field allows none: Arrow does not check."""
    return bool(values.null_count) and not field.nullable
