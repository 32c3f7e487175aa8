"""Which partition a key belongs to: the same in every process, on every machine, in every version.

The exchange that brings records of equal keys together and the state that is kept by key both ask here, so that
a key's state is always where its records arrive.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from decimal import MAX_PREC, Context, Decimal
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class Truth(Enum):
    """A truth value as a key: Python's own equals a number, and would be found where 0 or 1 is."""

    FALSE = False
    TRUE = True

    def __str__(self) -> str:
        return str(self.value)


Key = bytes | str | int | float | Decimal | bool | Truth | None
"""What may be a key: a value of a column."""

_OF_ONE_FORM = frozenset((bytes, str, int))
_EXACT = Context(prec=MAX_PREC)


def canonical(key: Key) -> Key:
    """The form of a key that all keys equal to it have, and no other key.

    Numbers are equal whatever their types and digits: 2, 2.0 and a decimal 2.00 are 2. There is one NaN. A truth
    value is no number.
    """
    if type(key) in _OF_ONE_FORM:
        return key
    if isinstance(key, bool):
        return Truth(key)
    if not isinstance(key, float | Decimal):
        return key
    if key != key:
        # This very object: dicts find it by identity, since no NaN equals another.
        return math.nan
    # No column of whole numbers has larger ones, and their digits would be as many as 309.
    if -(1 << 63) <= key < 1 << 64 and int(key) == key:
        return int(key)
    if isinstance(key, float):
        return key
    near = float(key)
    return near if near == key else key.normalize(_EXACT)


def key_bytes(key: Key) -> bytes:
    """A key as the bytes that stand for it; equal keys have equal bytes, also 2 in one column and 2.0 in another."""
    if isinstance(key, bytes):
        return key
    key = canonical(key)
    return b"" if key is None else str(key).encode("utf-8", "surrogateescape")


def _mixed(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    # A checksum of similar keys differs in regular ways, which a remainder would show; this is MurmurHash3's
    # finalizer, after which every bit depends on every other.
    hashes = hashes ^ (hashes >> np.uint32(16))
    hashes = hashes * np.uint32(0x85EBCA6B)
    hashes = hashes ^ (hashes >> np.uint32(13))
    hashes = hashes * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def hashes_of(keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint32]:
    """A hash of each key in a column; each different key is hashed once."""
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode("encode")
    unique: list[Any] = encoded.dictionary.to_pylist()
    hashes = _hashes_of(unique)
    codes = encoded.indices
    if codes.null_count:
        hashes = np.append(hashes, _hashes_of([None]))
        codes = codes.fill_null(len(unique))
    positions: npt.NDArray[np.int64] = codes.to_numpy(zero_copy_only=False)
    return hashes[positions]


def _hashes_of(keys: Iterable[Key]) -> npt.NDArray[np.uint32]:
    return _mixed(np.fromiter((zlib.crc32(key_bytes(key)) for key in keys), np.uint32))


def partitions_of(keys: pa.Array | pa.ChunkedArray, partitions: int) -> npt.NDArray[np.int64]:
    """The 0-based partition of each key in a column.

    Args:
        keys: A column of bytes, text, numbers or booleans; may hold nulls, which are a key like any other.
        partitions: How many there are, at least 1.
    """
    return (hashes_of(keys) % np.uint32(partitions)).astype(np.int64)


def partition_of(key: Key, partitions: int) -> int:
    """The 0-based partition of one key; what partitions_of() says of it."""
    return int(_hashes_of([key])[0] % partitions)


def partitions_of_keys(keys: Iterable[Key], partitions: int) -> list[int]:
    """The 0-based partition of each of many keys, also of different types; what partition_of() says of each."""
    found: list[int] = (_hashes_of(keys) % np.uint32(partitions)).tolist()
    return found
