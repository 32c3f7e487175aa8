"""Infers the types of JSON values, as an app writes them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MEMBER = re.compile(r"[^,<>:\s](?:[^,<>:]*[^,<>:\s])?")
_INT64 = 1 << 63
_WIDEST = 10**38


@dataclass(frozen=True, slots=True)
class JsonType:
    """The type of some values.

    Attributes:
        name: The type as an app writes it; "" where no type takes all of them.
        untyped: Why values have no type, or members of objects, which the type then lacks.
    """

    name: str
    untyped: tuple[str, ...] = ()


def json_type(values: Sequence[Any]) -> JsonType:
    """The type of values; of nulls alone it is text."""
    present = [value for value in values if value is not None]
    if not present:
        return JsonType("string")
    kinds = {type(value) for value in present}
    if kinds <= {int, float}:
        return _number(present, is_whole=kinds == {int})
    if len(kinds) > 1:
        return JsonType("", ("values of several types",))
    if kinds == {list}:
        inner = json_type([item for value in present for item in value])
        return JsonType(f"list<{inner.name}>" if inner.name else "", inner.untyped)
    if kinds == {dict}:
        return _struct(present)
    return JsonType("bool" if kinds == {bool} else "string")


def _number(values: Sequence[float], *, is_whole: bool) -> JsonType:
    if is_whole and all(-_INT64 <= value < _INT64 for value in values):
        return JsonType("int64")
    if is_whole:
        is_decimal = all(-_WIDEST < value < _WIDEST for value in values)
        return JsonType("decimal(38, 0)") if is_decimal else JsonType("", ("whole numbers of more than 38 digits",))
    return JsonType("double") if all(map(_is_double, values)) else JsonType("", ("numbers too large for a double",))


def _is_double(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _struct(values: Sequence[dict[str, Any]]) -> JsonType:
    """The type of objects. The reader leaves out members that the type lacks."""
    typed, untyped = [], []
    for name in dict.fromkeys(name for value in values for name in value):
        inner = json_type([value.get(name) for value in values])
        if not _is_writable(name):
            untyped.append(f"a name that no type can have, {name!r}")
            continue
        untyped += [f"{name}: {reason}" for reason in inner.untyped]
        if inner.name:
            typed.append(f"{name}: {inner.name}")
    if typed:
        return JsonType(f"struct<{', '.join(typed)}>", tuple(untyped))
    return JsonType("", tuple(untyped) or ("objects without members",))


def _is_writable(name: str) -> bool:
    """Whether a type may contain a name: commas and brackets divide its members."""
    opened, closed = (sum(map(name.count, letters)) for letters in ("([", ")]"))
    return _MEMBER.fullmatch(name) is not None and opened == closed
