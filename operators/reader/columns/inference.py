"""The columns that a file of JSON objects has, decided by the beginning of one file for all files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from operators.found_values import MAX_DEPTH
from operators.reader.columns.types import ColumnType
from operators.reader.columns.written_values import Number, Object, members_of

SAMPLED_BYTES = 4 << 20
"""Bytes of objects at the beginning of a file that decide its columns."""

Shape = str | dict[str, Any] | None
"""What is known of a value: the name of a type, {"list": shape}, {"struct": {name: shape}}; None for nothing yet."""

_DECIMAL_DIGITS = 38
"""Digits of the widest decimal."""

_NUMBERS = ("int64", "decimal(38, 0)", "double")
"""The shapes of numbers, each wider than the one before."""


def shapes_of(objects: Iterable[bytes], null_words: Iterable[str]) -> dict[str, Shape] | None:
    """The shapes of the members of objects, in order of appearance.

    The first value of a member that is not null decides what it is; a later one makes whole numbers larger or
    fractions, and adds members to objects. Any other contradiction is ignored.
    """
    words = frozenset(null_words)
    found: dict[str, Shape] = {}
    for each in objects:
        members = members_of(each)
        if len({name for name, _ in members}) == len(members):
            for name, value in members:
                found[name] = _merged(found.get(name), _shape(value, words, 0))
    return found or None


def _shape(value: Any, words: frozenset[str], depth: int) -> Shape:
    if value is None or depth > MAX_DEPTH or (depth == MAX_DEPTH and isinstance(value, list)):
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Number):
        return _number(value)
    if isinstance(value, str):
        return None if value in words and not depth else "string"
    if isinstance(value, Object):
        shapes: dict[str, Shape] = {}
        for name, member in value:
            shapes[name] = _merged(shapes.get(name), _shape(member, words, depth + 1))
        # No file but one of JSON has a type for objects without members, so they decide nothing.
        return {"struct": shapes} if shapes else None
    element: Shape = None
    for each in value:
        element = _merged(element, _shape(each, words, depth + 1))
    return {"list": element}


def _number(text: str) -> Shape:
    # Computed without an int: Python makes none of more than some thousand digits.
    digits = text.lstrip("-")
    if not digits.isdigit() or len(digits) > _DECIMAL_DIGITS:
        return "double" if math.isfinite(float(text)) else None
    return "int64" if -(1 << 63) <= int(text) < 1 << 63 else f"decimal({_DECIMAL_DIGITS}, 0)"


def _merged(old: Shape, new: Shape) -> Shape:
    if old is None or new is None:
        return new if old is None else old
    if isinstance(old, str) or isinstance(new, str):
        if isinstance(old, str) and isinstance(new, str) and {old, new} <= set(_NUMBERS):
            return max(old, new, key=_NUMBERS.index)
        return old
    if "list" in old and "list" in new:
        return {"list": _merged(old["list"], new["list"])}
    if "struct" in old and "struct" in new:
        names = [*old["struct"], *(name for name in new["struct"] if name not in old["struct"])]
        return {"struct": {name: _merged(old["struct"].get(name), new["struct"].get(name)) for name in names}}
    return old


def types_of(shapes: Mapping[str, Shape]) -> dict[str, ColumnType]:
    """The types of columns; a column without any value is text."""
    return {name: _type(shape) for name, shape in shapes.items()}


def _type(shape: Shape) -> ColumnType:
    arrow = _arrow(shape)
    return ColumnType(f"{arrow if isinstance(shape, dict) else shape or 'string'}, as inferred", arrow)


def _arrow(shape: Shape) -> pa.DataType:
    if not isinstance(shape, dict):
        return ColumnType.of(shape or "string").arrow
    if "list" in shape:
        return pa.list_(_arrow(shape["list"]))
    return pa.struct([(name, _arrow(each)) for name, each in shape["struct"].items()])
