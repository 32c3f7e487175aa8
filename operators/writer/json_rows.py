"""Record batches with columns as lines of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc


def json_lines(rows: pa.RecordBatch) -> bytes:
    """One JSON object per row, in UTF-8, each ended by a newline; members in the order of the columns.

    Numbers and booleans stand as such, decimals as text, which keeps all of their digits. Dates, times and
    timestamps are in ISO 8601; bytes are text if they are UTF-8, and otherwise an object with the one member
    base64. What is missing is null, and so are the numbers that JSON does not have: infinities and NaN.

    Raises:
        ValueError: Two columns have one name.
    """
    names = rows.schema.names
    if len(set(names)) < len(names):
        raise ValueError(f"two columns have one name, which JSON does not allow: {', '.join(names)}")
    columns = [_values(column) for column in rows.columns]
    if not columns:
        empty: bytes = b"{}\n" * int(rows.num_rows)
        return empty
    encode = msgspec.json.Encoder().encode_lines
    made: bytes = encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
    return made


def _values(column: pa.Array) -> list[Any]:
    """A column's values as msgspec writes them."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetime has no nanoseconds.
        column = pc.replace_substring(column.cast(pa.string()), " ", "T")
    convert = _converter(column.type)
    values: list[Any] = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes a value of a type fit for JSON; None where it is so already."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _text
    if types.is_dictionary(kind):
        return _converter(kind.value_type)
    if types.is_map(kind):
        return _pairs(_converter(kind.key_type), _converter(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type)
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    if types.is_struct(kind):
        members = {field.name: _converter(field.type) for field in kind}
        return lambda row: {name: _or_null(members[name], value) for name, value in row.items()}
    return None


def _or_null(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _pairs(key: Callable[[Any], Any] | None, item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Maps become lists of pairs: JSON's objects have text for keys, and each of them once."""
    return lambda pairs: [[_or_null(key, k), _or_null(item, v)] for k, v in pairs]


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
