"""Values of JSON as they are written, with all digits, and with duplicate members."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from operators.reader.columns.literals import reasons_of, values_of, where_refused
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import shortened, shown

_SHORT = 19
"""Characters of a number; whole ones of fewer always fit into 64 bits."""


class Number(str):
    """A number as it is written."""


class Object(list[tuple[str, Any]]):
    """The members of an object."""


def members_of(record: bytes) -> Object:
    """The members of an object that is valid JSON, including duplicates."""
    found: Object = json.loads(record, parse_int=Number, parse_float=Number, object_pairs_hook=Object)
    return found


def name_twice(members: Object) -> str | None:
    """The name that two members of an object have, or of an object within it; None where all names differ."""
    pending: list[Any] = [members]
    while pending:
        value = pending.pop()
        if isinstance(value, Object):
            names = Counter(name for name, _ in value)
            if len(names) < len(value):
                return next(name for name, times in names.items() if times > 1)
            pending += (member for _, member in value)
        elif isinstance(value, list):
            pending += value
    return None


def value_as(value: Any, kind: ColumnType, *, takes_others: bool = False) -> Any:
    """A value converted to Python's value of a type.

    Args:
        value: As members_of() gives it.
        kind: The type.
        takes_others: Whether objects may have members that their type lacks; they are left out. Otherwise the type is
            inferred, and an object without members, which decides none, is null in other types than those of objects.

    Raises:
        ValueError: The value is none of the type; the text is a clause that begins with the value.
    """
    arrow = kind.arrow
    is_text = isinstance(value, str) and not isinstance(value, Number)
    has_no_members = isinstance(value, Object) and not value
    if value is None or (has_no_members and not takes_others and not pa.types.is_struct(arrow)):
        return None
    if pa.types.is_nested(arrow):
        return _nested(value, arrow, takes_others=takes_others)
    if pa.types.is_string(arrow):
        if not is_text:
            raise ValueError(f"{_shown(value)} is no string")
        return value
    if pa.types.is_boolean(arrow):
        if not isinstance(value, bool):
            raise ValueError(f"{_shown(value)} is neither true nor false")
        return value
    if not (isinstance(value, Number) or (is_text and pa.types.is_decimal(arrow))):
        raise ValueError(f"{_shown(value)} is no number")
    if arrow == pa.int64() and len(value) < _SHORT:
        with contextlib.suppress(ValueError):
            return int(value)
    array, refused = numbers_as(pa.array([str(value)]), kind)
    if refused:
        raise ValueError(refused[0])
    return array[0].as_py()


def numbers_as(texts: Any, kind: ColumnType) -> tuple[Any, dict[int, str]]:
    """Numbers as they are written, converted to a type of numbers, and why each one that is none of it is not.

    Args:
        texts: A string array; null stays null.
        kind: The type.
    """
    array = values_of(texts, kind)
    rows = np.flatnonzero(where_refused(texts, array))
    refused = texts.take(pa.array(rows)).to_pylist()
    named = zip(rows.tolist(), refused, reasons_of(refused, kind), strict=True)
    return array, {row: f"{_shown(Number(text))} {why}" for row, text, why in named}


def _nested(value: Any, arrow: pa.DataType, *, takes_others: bool) -> Any:
    if pa.types.is_list(arrow):
        if not isinstance(value, list) or isinstance(value, Object):
            raise ValueError(f"{_shown(value)} is no array")
        return [value_as(each, ColumnType("", arrow.value_type), takes_others=takes_others) for each in value]
    if not isinstance(value, Object):
        raise ValueError(f"{_shown(value)} is no object")
    kinds = {field.name: field.type for field in arrow}
    found: dict[str, Any] = {}
    for name, member in value:
        if name not in kinds and takes_others:
            continue
        if name not in kinds or name in found:
            raise ValueError(f"member '{name}' {'is there twice' if name in found else 'was not there before'}")
        try:
            found[name] = value_as(member, ColumnType("", kinds[name]), takes_others=takes_others)
        except ValueError as error:
            raise ValueError(f"member '{name}': {error}") from None
    return found


def _shown(value: Any) -> str:
    """A value as messages show it."""
    if isinstance(value, Number):
        return shortened(value.encode())
    if isinstance(value, str):
        return shown(value)
    return ("an object" if isinstance(value, Object) else "an array") if isinstance(value, list) else json.dumps(value)
