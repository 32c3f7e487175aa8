"""Values of JSON as they are written, with all digits, and with duplicate members."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

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


def name_twice(members: Object) -> str | None:
    """The name that two members of an object have, or of an object within it; None where all names differ."""
    pending: list[Any] = [members]
    while pending:
        value = pending.pop()
        if isinstance(value, Object):
            by_name = dict(value)
            if len(by_name) < len(value):
                times = Counter(name for name, _ in value)
                return next(name for name in by_name if times[name] > 1)
            pending += by_name.values()
        elif isinstance(value, list):
            pending += value
    return None


def written_type(kind: pa.DataType) -> pa.DataType:
    """The type of values as they are written, where numbers are text, and so are dates, times and timestamps."""
    if pa.types.is_list(kind):
        return pa.list_(written_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, written_type(field.type)) for field in kind])
    return kind if pa.types.is_boolean(kind) else pa.string()


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
        return _one_of(lambda value: isinstance(value, bool), "neither true nor false")
    if pa.types.is_string(kind) or pa.types.is_temporal(kind):
        return _one_of(lambda value: type(value) is str, "no string")
    takes = str if pa.types.is_decimal(kind) else Number
    return _one_of(lambda value: isinstance(value, takes), "no number")


def _one_of(fits: Callable[[Any], bool], otherwise: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value is not None and not fits(value):
            return WhyNot(f"{_shown(value)} is {otherwise}")
        return value

    return check


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
            if name not in checks and takes_others:
                continue
            if name not in checks or name in found:
                return WhyNot(f"member '{name}' {'is there twice' if name in found else 'was not there before'}")
            made = found[name] = checks[name](member)
            if isinstance(made, WhyNot):
                return WhyNot(f"member '{name}': {made}")
        return found

    return check


def shown_numbers(texts: Sequence[str]) -> list[str]:
    """Numbers as messages show them."""
    return all_shortened([text.encode() for text in texts])


def _shown(value: Any) -> str:
    if isinstance(value, Number):
        return shortened(value.encode())
    if isinstance(value, str):
        return shown(value)
    return ("an object" if isinstance(value, Object) else "an array") if isinstance(value, list) else json.dumps(value)
