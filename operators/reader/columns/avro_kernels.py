"""Machine code that decodes records of Avro whose members are plain values, enums or decimals; needs numba."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from operators.reader.columns.kernels import (
    BYTES,
    OVERLAPPING,
    PADDING,
    Bytes,
    Offsets,
    Words,
    compiled,
    part,
    texts_of,
    words_of,
)

BOOLEAN, INT, LONG, FLOAT, DOUBLE, TEXT = range(6)
"""Kinds of values; texts and bytes are the same, and a negative kind has as many bytes."""

_KINDS = {
    **{"boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE},
    **{"bytes": TEXT, "string": TEXT, "enum": INT},
}
_MOST_VALUES = 1 << 22
"""Values that are held together, in 13 bytes each and then in columns."""

_NUMPY: dict[int, tuple[Any, Any]] = {
    **{BOOLEAN: (np.bool_, np.bool_), INT: (np.int32, np.int32), LONG: (np.int64, np.int64)},
    **{FLOAT: (np.uint32, np.float32), DOUBLE: (np.int64, np.float64)},
}
"""The types that hold the bits of numbers, and theirs."""

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def read_plain(contents: list[bytes], rows: list[int], schema: Any, types: pa.Schema) -> pa.RecordBatch | None:
    """Decode data blocks with records whose members are plain values, or such and null.

    Args:
        contents: The blocks, decompressed.
        rows: How many records each has.
        schema: The type of the records, without logical types.
        types: The columns.

    Returns:
        The records; None where there are other members, or not every byte is as it should be.
    """
    fields = schema["fields"] if isinstance(schema, dict) and schema["type"] == "record" else []
    places = {field["name"]: number for number, field in enumerate(fields)}
    members = [_member_of(field["type"]) for field in fields]
    if not fields or any(kind is None for kind, _, _ in members):
        return None
    kinds, nulls = np.array([member[:2] for member in members], np.int64).T.copy()
    if sum(rows) * len(kinds) > min(sum(map(len, contents)), _MOST_VALUES):
        return None  # each value has a byte at least
    data = np.frombuffer(b"".join([*contents, bytes(PADDING)]), np.uint8)
    ends, lasts = np.cumsum([*map(len, contents)], dtype=np.int64), np.cumsum(rows, dtype=np.int64)
    values = np.zeros((len(kinds), int(lasts[-1])), np.int64)
    stops, is_null = np.zeros(values.shape, np.int32), np.zeros(values.shape, np.bool_)
    words = words_of(data)
    if not _decode(data, words, ends, lasts, kinds, nulls, values, stops, is_null):
        return None
    columns = list[pa.Array]()
    for field in types:
        at = places[field.name]
        found, masked = (values[at], stops[at]), is_null[at] if nulls[at] >= 0 else None
        if pa.types.is_decimal(field.type):
            column = _decimals(words, *found, masked, field.type)
        elif kinds[at] == TEXT:
            column = texts_of(words, found[0].astype(np.int32), found[1], masked, field.type)
        elif kinds[at] < 0:
            return None
        else:
            column = _numbers(kinds[at], found[0], masked, field.type, members[at][2])
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=types)


def _member_of(schema: Any) -> tuple[int | None, int, list[str] | None]:
    """The kind of a member, None for others; which branch of a union with one other type is null, or -1; symbols."""
    branches = schema if isinstance(schema, list) else [schema]
    at = branches.index("null") if len(branches) == 2 and "null" in branches else -1
    branch = branches[1 - at] if at >= 0 else schema
    facts = branch if isinstance(branch, dict) else {"type": branch}
    kind = facts["type"] if isinstance(facts["type"], str) else ""
    return (-facts["size"] or None) if kind == "fixed" else _KINDS.get(kind), at, facts.get("symbols")


def _numbers(kind: int, values: Numbers, is_null: Mask | None, type: pa.DataType, symbols: list[str] | None) -> Any:
    """Numbers, or the symbols of their places; None where one has no symbol."""
    bits, number = _NUMPY[kind]
    array = pa.array(values.astype(bits).view(number), type if symbols is None else pa.int32(), mask=is_null)
    if symbols is None:
        return array
    if not len(symbols) > values.max(initial=0) >= values.min(initial=0) >= 0:
        return None
    return pa.DictionaryArray.from_arrays(array, pa.array(symbols, type)).dictionary_decode()


def _decimals(words: Words, starts: Numbers, stops: Offsets, is_null: Mask | None, type: pa.DataType) -> Any:
    """Decimals, whose highest byte is written first; None where one has more bytes or digits than the type."""
    sizes = stops - starts
    if sizes.max(initial=0) > 16 or not pa.types.is_decimal128(type):
        return None
    first = np.where(sizes > 0, words[starts].byteswap().view(np.int64), 0)
    low = np.where(sizes > 8, words[np.maximum(stops - 8, 0)].byteswap().view(np.int64), first >> (64 - 8 * sizes))
    high = np.where(sizes > 8, first >> (128 - 8 * sizes), low >> 63)
    validity = None if is_null is None else pa.array(~is_null).buffers()[1]
    array = pa.Array.from_buffers(type, len(sizes), [validity, pa.py_buffer(np.stack([low, high], 1))])
    with suppress(pa.ArrowInvalid):
        array.validate(full=True)
        return array
    return None


@part
def _number_at(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The whole number at a position, and its end; -1 for one of more than 64 bits, or beyond the block."""
    number, shift = np.uint64(0), np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = data[np.uintp(at)]
        at += 1
        if shift == np.uint64(63) and byte > 1:
            break
        number |= np.uint64(byte & 127) << shift
        if byte < 128:
            value: Any = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            return value, at
        shift += np.uint64(7)
    return 0, -1


_NUMBERS = types.Array(types.int64, 1, "C")


@compiled(
    *(types.boolean, BYTES, OVERLAPPING, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS),
    *(types.Array(types.int64, 2, "C"), types.Array(types.int32, 2, "C"), types.Array(types.boolean, 2, "C")),
)
def _decode(
    data: Bytes,
    words: Words,
    ends: Numbers,
    lasts: Numbers,
    kinds: Numbers,
    nulls: Numbers,
    values: Numbers,
    stops: Offsets,
    is_null: Mask,
) -> bool:
    """Find the values of data blocks; returns whether their bytes are those of so many records, and no others.

    Texts begin at their value and end at their stop; floating-point numbers are their bits.
    """
    at = row = 0
    for block in range(len(ends)):
        end = ends[block]
        while row < lasts[block]:
            for column in range(len(kinds)):
                kind = kinds[column]
                if nulls[column] >= 0:
                    branch = data[np.uintp(at)]
                    at += 1
                    if at > end or (branch != 0 and branch != 2):
                        return False
                    if branch >> 1 == nulls[column]:
                        is_null[column, row] = True
                        continue
                if kind == BOOLEAN:
                    values[column, row] = data[np.uintp(at)]
                    if values[column, row] > 1:
                        return False
                    at += 1
                elif kind in (FLOAT, DOUBLE):
                    word = words[np.uintp(at)]
                    values[column, row] = np.int64(word if kind == DOUBLE else word & np.uint64(0xFFFFFFFF))
                    at += 8 if kind == DOUBLE else 4
                else:
                    value, at = _number_at(data, at, end) if kind >= 0 else (-kind, at)
                    if at < 0:
                        return False
                    if kind == TEXT or kind < 0:
                        if value < 0 or value > end - at:
                            return False
                        values[column, row] = at
                        at += value
                        stops[column, row] = at
                    elif kind == INT and (value > 2147483647 or value < -2147483648):
                        return False
                    else:
                        values[column, row] = value
                if at > end:
                    return False
            row += 1
        if at != end:
            return False
    return True
