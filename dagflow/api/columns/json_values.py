"""Values of Arrow columns as JSON, for files, rejects and reasons, and for display."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from dagflow.late import compute as pc


def json_values(column: pa.Array) -> list[Any]:
    """The values of a column, in the form in which msgspec writes them as JSON.

    Numbers and booleans stay as they are; decimals become text, which keeps all of their digits. Dates, times,
    timestamps and durations are in ISO 8601, to the nanosecond, and years have as many digits as they need. Bytes are
    text if they are UTF-8, and otherwise an object with the one member base64. Missing values are null, and so are
    numbers that JSON lacks: infinities and NaN. A time whose offset from UTC is no whole minute, which ISO 8601 cannot
    express, is in UTC.
    """
    try:
        return _converted(column, is_far=False)
    except OverflowError:
        return _converted(column, is_far=True)


def readable_value(value: pa.Scalar) -> Any:
    """A value as a Python object, or as JSON where Python has none: nanoseconds, years before 1 or after 9999."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return json_values(pa.repeat(value, 1))[0]


def readable_rows(arrow: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows, each a mapping of column to readable_value(); of columns with one name, the last one's value."""
    columns = [[*map(readable_value, column)] for column in arrow.columns]
    return [dict(zip(arrow.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _converted(column: pa.Array, is_far: bool) -> list[Any]:
    values = _plain(column, is_far)
    if not _has_seconds(column):
        return values
    in_utc = _plain(column.cast(_with_leaves(column.type, _in_utc)), is_far)
    return [*map(_with_whole_minutes, values, in_utc)]


def _plain(column: pa.Array, is_far: bool) -> list[Any]:
    convert = _converter(column.type, is_far)
    kind = _python_type(column.type, is_far)
    values: list[Any] = (column if kind == column.type else column.cast(kind)).to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _python_type(kind: pa.DataType, is_far: bool) -> pa.DataType:
    """The type that a column is converted to first: text, or numbers, where Python has no values of its own type."""
    types = pa.types

    def converted(kind: pa.DataType) -> pa.DataType:
        if types.is_duration(kind):
            return pa.int64() if kind.unit == "ns" else kind
        if (types.is_timestamp(kind) or types.is_time64(kind)) and kind.unit == "ns":
            return pa.string()
        return pa.string() if is_far and (types.is_timestamp(kind) or types.is_date(kind)) else kind

    return _with_leaves(kind, converted)


def _with_leaves(kind: pa.DataType, converted: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        plain = _with_leaves(kind.value_type, converted)
        return kind if plain == kind.value_type else plain
    if types.is_map(kind):
        return pa.map_(_with_leaves(kind.key_type, converted), _with_leaves(kind.item_type, converted))
    if types.is_fixed_size_list(kind):
        return pa.list_(_with_leaves(kind.value_type, converted), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return (pa.list_ if types.is_list(kind) else pa.large_list)(_with_leaves(kind.value_type, converted))
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_leaves(field.type, converted)) for field in kind])
    return converted(kind)


def _with_whole_minutes(value: Any, in_utc: Any) -> Any:
    """A value; each time in it whose offset from UTC has seconds is replaced by that of the same value in UTC."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return in_utc if offset is not None and offset % timedelta(minutes=1) else value
    if isinstance(value, dict):
        return {name: _with_whole_minutes(each, in_utc[name]) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(_with_whole_minutes, value, in_utc)]
    # A text that differs is a time's; an offset of whole minutes leaves its seconds unchanged.
    is_same = not isinstance(value, str) or value == in_utc or _SECONDS.findall(value) == _SECONDS.findall(in_utc)
    return value if is_same else in_utc


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _has_seconds(column: pa.Array) -> bool:
    """Whether a time's offset from UTC is no whole minute, as in most zones before 1930; see json_values()."""
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return _has_seconds(column.dictionary)
    if types.is_map(kind):
        return _has_seconds(column.keys) or _has_seconds(column.items)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _has_seconds(column.flatten())
    if types.is_struct(kind):
        return any(map(_has_seconds, column.flatten()))
    if not types.is_timestamp(kind) or not kind.tz or _WHOLE_MINUTES.fullmatch(kind.tz):
        return False
    local, utc = (each.cast(pa.int64()) for each in (pc.local_timestamp(column), column))
    offsets = pc.subtract(local, utc).drop_null().to_numpy()
    return bool((offsets % (60 * _PER_SECOND[kind.unit])).any())


def _converter(kind: pa.DataType, is_far: bool) -> Callable[[Any], Any] | None:
    """None where values of the type are fit for JSON as they are."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _text
    if types.is_timestamp(kind) and (is_far or kind.unit == "ns"):
        return _moment
    if types.is_duration(kind) and kind.unit == "ns":
        return _duration
    if types.is_dictionary(kind):
        return _converter(kind.value_type, is_far)
    if types.is_map(kind):
        return _pairs(_converter(kind.key_type, is_far), _converter(kind.item_type, is_far))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type, is_far)
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    if types.is_struct(kind):
        members = {field.name: _converter(field.type, is_far) for field in kind}
        return lambda row: {name: _or_null(members[name], value) for name, value in row.items()}
    return None


def _moment(value: str) -> str:
    text = _FRACTION.sub(lambda found: f".{found[1]:0<6}" if int(found[1]) else "", value.replace(" ", "T"))
    return f"{text[:-2]}:{text[-2:]}" if _OFFSET.search(text) else text


_SECONDS = re.compile(r":(\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$")

_WHOLE_MINUTES = re.compile(r"UTC|[+-]\d\d:\d\d")
"""A zone whose offset from UTC is always whole minutes."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_FRACTION = re.compile(r"\.(\d{1,6})(?!\d)")
"""A fraction of a second of at most six digits; nanoseconds keep all their digits."""

_OFFSET = re.compile(r"[+-]\d{4}$")


def _duration(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    days, seconds = divmod(seconds, 86_400)
    return f"{'-' if nanoseconds < 0 else ''}P{days}DT{seconds}.{rest:09}S"


def _or_null(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _pairs(key: Callable[[Any], Any] | None, item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Convert maps to lists of pairs: JSON's objects have text for keys, and each key once."""
    return lambda pairs: [[_or_null(key, k), _or_null(item, v)] for k, v in pairs]


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
