"""Values of JSON as they are written, with all digits and duplicate members, and the columns that they give a file."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dagflow.api.columns.column_values import with_leaves
from operators.found_values import MAX_DEPTH
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import all_shortened, shortened, shown


class Number(str):
    """A number as it is written."""


class Object(list[tuple[str, Any]]):
    """The members of an object."""


_TOGETHER = 256
"""Objects that are read together."""

_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number, object_pairs_hook=Object)


def members_of(record: bytes) -> Object:
    """The members of an object that is valid JSON, including duplicates."""
    found: Object = _DECODER.decode(record.decode())
    return found


@contextmanager
def without_collection() -> Iterator[None]:
    """Keep Python from looking for garbage among the values of JSON, which have no cycles: a quarter of the time."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def all_members(records: Sequence[bytes]) -> Iterator[Object]:
    """The members of each of some objects; many are read together, which takes half the time."""
    for start in range(0, len(records), _TOGETHER):
        part = records[start : start + _TOGETHER]
        try:
            yield from _DECODER.decode(f"[{b','.join(part).decode()}]")
        except RecursionError:
            yield from map(members_of, part)  # without the array around them


class WhyNot(str):
    """Why a value is none of a type: a clause that begins with the value."""


def first_twice(names: Iterable[str]) -> str | None:
    """The first of some names that was there before; None where all differ."""
    before: set[str] = set()
    for name in names:
        if name in before:
            return name
        before.add(name)
    return None


def name_twice(members: Object) -> str | None:
    """The name that two members of an object have, or of an object within it; None where all names differ."""
    pending: list[Any] = [members]
    while pending:
        value = pending.pop()
        if isinstance(value, Object):
            by_name = dict(value)
            if len(by_name) < len(value):
                return first_twice([name for name, _ in value])
            pending += by_name.values()
        elif isinstance(value, list):
            pending += value
    return None


def written_type(kind: pa.DataType) -> pa.DataType:
    """The type of values as they are written, where numbers are text, and so are dates, times and timestamps."""
    return with_leaves(kind, lambda leaf: leaf if pa.types.is_boolean(leaf) else pa.string())


def written_as(kind: pa.DataType, *, takes_others: bool = False) -> Callable[[Any], Any]:
    """A function that checks that a value is written as those of a type are.

    It takes a value that members_of() gives, and gives one of written_type(), or a WhyNot.

    With takes_others, objects may have members that their type lacks; they are left out. Otherwise the type is
    inferred, and an object without members, which decides none, is null in other types than those of objects.
    """
    check = _check_of(kind, takes_others=takes_others)
    if takes_others or pa.types.is_struct(kind):
        return check
    return lambda value: None if isinstance(value, Object) and not value else check(value)


def _check_of(kind: pa.DataType, *, takes_others: bool) -> Callable[[Any], Any]:
    if pa.types.is_list(kind):
        return _array_of(written_as(kind.value_type, takes_others=takes_others))
    if pa.types.is_struct(kind):
        members = {field.name: written_as(field.type, takes_others=takes_others) for field in kind}
        return _object_of(members, takes_others=takes_others)
    if pa.types.is_boolean(kind):
        return _one_of({bool}, "neither true nor false")
    if pa.types.is_string(kind) or pa.types.is_temporal(kind):
        return _one_of({str}, "no string")
    return _one_of({str, Number} if pa.types.is_decimal(kind) else {Number}, "no number")


def _one_of(types: Collection[type], otherwise: str) -> Callable[[Any], Any]:
    taken = {*types, type(None)}
    return lambda value: value if type(value) in taken else WhyNot(f"{_shown(value)} is {otherwise}")


def _array_of(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def check_all(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list) or isinstance(value, Object):
            return WhyNot(f"{_shown(value)} is no array")
        items = [*map(check, value)]
        return next((item for item in items if isinstance(item, WhyNot)), items)

    return check_all


def _object_of(checks: Mapping[str, Callable[[Any], Any]], *, takes_others: bool) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Object):
            return WhyNot(f"{_shown(value)} is no object")
        found: dict[str, Any] = {}
        for name, member in value:
            if (check_member := checks.get(name)) is not None and name not in found:
                made = found[name] = check_member(member)
                if type(made) is WhyNot:
                    return WhyNot(f"member '{name}': {made}")
            elif check_member is not None or not takes_others:
                return WhyNot(f"member '{name}' {'is there twice' if name in found else 'was not there before'}")
        return found

    return check


def shown_numbers(texts: Sequence[str]) -> list[str]:
    return all_shortened([text.encode() for text in texts])


def _shown(value: Any) -> str:
    if isinstance(value, Number):
        return shortened(value.encode())
    if isinstance(value, str):
        return shown(value)
    return ("an object" if isinstance(value, Object) else "an array") if isinstance(value, list) else json.dumps(value)


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
    for record in objects:
        members = members_of(record)
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
    for item in value:
        element = _merged(element, _shape(item, words, depth + 1))
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
    return pa.struct([(name, _arrow(member)) for name, member in shape["struct"].items()])
