"""Encodes the keys of a keyed state as MessagePack."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from msgspec import msgpack

from dagflow.api.partitioning import BooleanKey, Key

# Keys without a MessagePack type: their extension code, and how they are written and read.
_KEY_FORMS: dict[type, tuple[int, Callable[[Any], str], Callable[[str], Any]]] = {
    BooleanKey: (1, lambda key: str(int(key.value)), lambda text: BooleanKey(text == "1")),
    Decimal: (2, str, Decimal),
    int: (3, str, int),
    str: (4, str, str),
    datetime: (5, datetime.isoformat, datetime.fromisoformat),
    date: (6, date.isoformat, date.fromisoformat),
    time: (7, time.isoformat, time.fromisoformat),
    timedelta: (8, lambda key: str(key // timedelta(microseconds=1)), lambda text: timedelta(microseconds=int(text))),
}
_READER_BY_CODE = {code: read for code, _, read in _KEY_FORMS.values()}

NATIVE = frozenset((bytes, str, int, float, type(None)))
"""Types that MessagePack has itself."""


def encode_keys(keys: list[Key]) -> bytes:
    """The keys as a list.

    Raises:
        ValueError: A key is of a type that no column contains.
    """
    if set(map(type, keys)) <= NATIVE:
        try:
            return msgpack.encode(keys)
        except (OverflowError, UnicodeEncodeError):
            pass  # numbers of more than 64 bits, text that is not Unicode
    return msgpack.encode(list(map(_encoded_key, keys)))


def _encoded_key(key: Any) -> Any:
    kind = type(key)
    is_native = kind in (bytes, float, type(None)) or (kind is int and -(1 << 63) <= key < 1 << 64)
    if is_native:
        return key
    if kind not in _KEY_FORMS:
        raise ValueError(
            f"self.state has a key of type {kind.__name__}, and no column has such values: use text, bytes, a number, "
            "a bool, a date, a time or None"
        )
    code, write, _ = _KEY_FORMS[kind]
    return msgpack.Ext(code, write(key).encode("utf-8", "surrogatepass"))


def decode_key(code: int, data: memoryview) -> Any:
    """A key that has no MessagePack type, by its extension code."""
    return _READER_BY_CODE[code](bytes(data).decode("utf-8", "surrogatepass"))


def with_one_nan(keys: list[Any]) -> list[Key]:
    """The restored keys, with the NaN that canonical() returns."""
    # A restored NaN is another object, and dicts find NaN by identity.
    return [math.nan if key != key else key for key in keys] if float in set(map(type, keys)) else keys
