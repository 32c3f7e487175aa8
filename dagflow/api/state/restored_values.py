"""Checks whether the state of operators is restored unchanged, and encodes values by a declared type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NoReturn

import msgspec
from msgspec import msgpack

from dagflow.api.partitioning import instant_of
from dagflow.errors import cut_text, text_of

_MAX_SHOWN = 200
"""Characters of a value in a message."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A part of a value that is not restored unchanged.

    Attributes:
        path: The part, as "counts[3]"; "" for the value itself.
        given: Its original value.
        restored: Its restored value.
    """

    path: str
    given: Any
    restored: Any

    def __str__(self) -> str:
        given, restored = shown(self.given), shown(self.restored)
        part = f"{self.path} " if self.path else ""
        return f"{part}{given} would come back as {restored}"


def difference(given: Any, restored: Any, path: str = "") -> Difference | None:
    """The first part of a value that differs after it was written and read; None where all parts are equal.

    A NaN is equal to a NaN, unless it is a key or in a set. Times with time zones are equal if they are the same
    instant.
    """
    if _are_equal(given, restored):
        return None
    parts = _parts(given, restored)
    if parts is None:
        return Difference(path.removeprefix("."), given, restored)
    for name, one, other in parts:
        if (found := difference(one, other, path + name)) is not None:
            return found
    return None


def _are_equal(given: Any, restored: Any) -> bool:
    try:
        if given == restored:
            return True
    except Exception:  # the class may be an author's
        return False
    if isinstance(given, float | Decimal) and isinstance(restored, float | Decimal):
        return bool(given != given and restored != restored)
    if isinstance(given, datetime) and isinstance(restored, datetime) and (instant := instant_of(given)) is not None:
        return instant == instant_of(restored)
    return False


def _parts(given: Any, restored: Any) -> Iterable[tuple[str, Any, Any]] | None:
    """Parts that are compared one by one; None where there are none."""
    for kind in (list, tuple):
        if isinstance(given, kind) and isinstance(restored, kind) and len(given) == len(restored):
            return [(f"[{at}]", *both) for at, both in enumerate(zip(given, restored, strict=True))]
    if isinstance(given, Mapping) and isinstance(restored, Mapping) and given.keys() == restored.keys():
        return [(f"[{shown(key)}]", value, restored[key]) for key, value in given.items()]
    if type(given) is not type(restored):
        return None
    if is_dataclass(given):
        names = [each.name for each in fields(given) if each.compare]
    elif isinstance(given, msgspec.Struct):
        names = [*given.__struct_fields__]
    else:
        # A class without a comparison of its own gives nothing to compare.
        return [] if getattr(type(given), "__eq__", None) is object.__eq__ else None
    return [(f".{name}", getattr(given, name), getattr(restored, name)) for name in names]


def shown(value: Any) -> str:
    """A value as Python shows it, cut where it is long; its type where its class cannot be shown."""
    try:
        return cut_text(repr(value), _MAX_SHOWN)
    except Exception:  # the class may be an author's
        return f"a {type(value).__name__}"


def shown_type(kind: Any) -> str:
    """A type as an author writes it."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def encode_values(values: Mapping[Any, Any], value_type: Any) -> bytes:
    """The values of a mapping as MessagePack; decode_values() returns equal ones.

    Raises:
        ValueError: A value cannot be written, or differs when it is read; the message has its key.
    """
    held = list(values.values())
    try:
        data = msgpack.encode(held)
        restored = decode_values(data, value_type)
    except Exception:  # the class of a value may be an author's
        for key, value in values.items():
            _require_kept(key, value, value_type)
        raise
    if not _are_equal(held, restored):
        for key, value, other in zip(values, held, restored, strict=True):
            if not _are_equal(value, other) and (found := difference(value, other)) is not None:
                _refuse(key, value_type, str(found))
    return data


def decode_values(data: bytes | msgspec.Raw, value_type: Any) -> list[Any]:
    """The values that were given to encode_values()."""
    values: list[Any] = msgpack.decode(data, type=list[value_type])
    return values


def _require_kept(key: Any, value: Any, value_type: Any) -> None:
    try:
        msgpack.decode(msgpack.encode(value), type=value_type)
    except Exception as error:  # the class of the value may be an author's
        _refuse(key, value_type, f"{shown(value)}: {text_of(error)}")


def _refuse(key: Any, value_type: Any, why: str) -> NoReturn:
    raise ValueError(
        f"self.state has a value for key {shown(key)} that value_type = {shown_type(value_type)} does not keep, {why}; "
        "let value_type say what all values are"
    )
