"""Values of JSON whose types are found: the type that most of them have, and which parts of them fit into a type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.columns import column_values
from dagflow.late import compute as pc

MAX_DEPTH = column_values.MAX_DEPTH

MOST_DIGITS = 600
"""Python may refuse to read an int of more digits."""

FOUND = {b"dagflow.found": b"1"}
"""Metadata of columns that a reader has made of members as they came; a table decides about their values anew."""

INT64, LARGE, DOUBLE = pa.int64(), pa.decimal128(38, 0), pa.float64()
"""The types of numbers that are found: whole ones, whole ones of up to 38 digits, and others."""

TEXT, BOOL = pa.string(), pa.bool_()

_LEAST, _MOST = pa.scalar(Decimal(-(1 << 63)), LARGE), pa.scalar(Decimal((1 << 63) - 1), LARGE)
"""The bounds of whole numbers of 64 bits."""

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_DIGITS_BOUND = 10**38


def is_found(field: pa.Field) -> bool:
    """Whether a reader has found the type of a column."""
    return bool((field.metadata or {}).keys() >= FOUND.keys())


class Unheld(str):
    """A number that no type holds, as it is written."""


def number_of(text: str) -> int | float | Unheld:
    """A number of JSON."""
    if text.lstrip("-").isdigit():
        return int(text) if len(text) <= MOST_DIGITS else Unheld(text)
    return float(text) if isfinite(float(text)) else Unheld(text)


def with_numbers(value: Any) -> Any:
    """A value out of JSON, where texts that stand for numbers that no type holds are such."""
    match value:
        case dict():
            return {name: with_numbers(member) for name, member in value.items()}
        case list():
            return [with_numbers(item) for item in value]
        case str() if _NUMBER.fullmatch(value) and isinstance(found := number_of(value), Unheld):
            return found
        case _:
            return value


def plain(value: Any) -> Any:
    """A value in its one form: objects without null members, and whole numbers as such, however they are held."""
    match value:
        case dict():
            return {name: plain(member) for name, member in value.items() if member is not None}
        case list():
            return [plain(item) for item in value]
        case float() if value.is_integer() and abs(value) < _DIGITS_BOUND:
            return int(value)
        case Decimal() if value.is_finite() and value == value.to_integral_value():
            return int(value)
        case tuple():
            return tuple(map(plain, value))
        case int() if not isinstance(value, bool) and abs(value) >= _DIGITS_BOUND and _is_double(value):
            return float(value)
        case _:
            return value


def is_deep(value: Any) -> bool:
    """Whether arrays, as lists, and objects, as dicts or lists of pairs, are within each other too many times."""
    level, depth = [value], 0
    while level := [each for each in level if isinstance(each, list | dict)]:
        if depth == MAX_DEPTH:
            return True
        level, depth = [part for each in level for part in _parts_in(each)], depth + 1
    return False


def _parts_in(value: list[Any] | dict[str, Any]) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return [part[1] if isinstance(part, tuple) else part for part in value]


def is_deep_type(kind: pa.DataType) -> bool:
    """Whether arrays and objects of a type are within each other too many times."""
    level = [kind]
    for _ in range(MAX_DEPTH):
        level = [each.field(index).type for each in level for index in range(each.num_fields)]
    return any(map(pa.types.is_nested, level))


def is_undecided(value: Any) -> bool:
    """Whether a value gives no type to anything: null, or arrays and objects of nothing else."""
    if isinstance(value, dict):
        return all(map(is_undecided, value.values()))
    return all(map(is_undecided, value)) if isinstance(value, list) else value is None


def fitted(value: Any, kind: pa.DataType | None) -> tuple[Any, Any]:
    """What a type takes of a value, and the rest, for which it has no place: members that it lacks.

    Args:
        value: A plain value.
        kind: The type; None where none is known.

    Raises:
        ValueError: The value, or a part of it, is of another type.
    """
    if value is None:
        return None, None
    if kind is None:
        return None, value
    if pa.types.is_struct(kind) and isinstance(value, dict):
        places = {name: fitted(member, _type_in(kind, name)) for name, member in value.items()}
        rest = {name: own for name, (_, own) in places.items() if own is not None}
        return {name: own for name, (own, _) in places.items() if own is not None}, rest or None
    if pa.types.is_list(kind) and isinstance(value, list):
        items = [fitted(item, kind.value_type) for item in value]
        left = [rest for _, rest in items]
        return [item for item, _ in items], None if all(rest is None for rest in left) else left
    return _leaf(value, kind), None


def _type_in(kind: pa.DataType, name: str) -> pa.DataType | None:
    index = kind.get_field_index(name)
    return kind.field(index).type if index >= 0 else None


def joined(value: Any, rest: Any) -> Any:
    """A value of which fitted() has given two parts."""
    if value is None or rest is None:
        return rest if value is None else value
    if isinstance(rest, dict):
        return {**value, **{name: joined(value.get(name), part) for name, part in rest.items()}}
    return [joined(item, part) for item, part in zip(value, rest, strict=True)]


def _leaf(value: Any, kind: pa.DataType) -> Any:
    types = pa.types
    if isinstance(value, bool | str):
        wanted = types.is_boolean(kind) if isinstance(value, bool) else types.is_string(kind)
        if wanted and not isinstance(value, Unheld):
            return value
    elif types.is_integer(kind) and isinstance(value, int):
        least, most = (0, 1 << kind.bit_width) if types.is_unsigned_integer(kind) else _signed(kind)
        if least <= value < most:
            return value
    elif types.is_decimal(kind) and isinstance(value, int):
        if abs(value) < 10 ** (kind.precision - kind.scale):
            return Decimal(value)
    elif types.is_float64(kind) and isinstance(value, int | float) and _is_double(value):
        return float(value)
    elif types.is_float32(kind) and isinstance(value, int | float) and _is_double(value):
        with np.errstate(over="ignore"):
            if float(np.float32(value)) == value:
                return float(value)
    raise ValueError(f"{value!r} is no {kind}")


def _signed(kind: pa.DataType) -> tuple[int, int]:
    return -(1 << (kind.bit_width - 1)), 1 << (kind.bit_width - 1)


def _is_double(value: float) -> bool:
    """Whether a number is that of a double."""
    try:
        return float(value) == value
    except OverflowError:
        return False


Leaf = tuple[pa.DataType, pa.DataType]
"""The type of values as they are written, and the narrowest that takes them."""


class Census:
    """How many values of a column there are of each type, also within arrays and objects.

    Guarantee: which values are counted together, and in which order, makes no difference.
    """

    def __init__(self) -> None:
        self.leaves: Counter[Leaf] = Counter()
        self.lists = self.structs = 0
        self.items: Census | None = None
        self.members: dict[str, Census] = {}

    def add(self, value: Any) -> None:
        """Count a value of JSON."""
        if isinstance(value, dict):
            self.structs += 1
            for name, member in value.items():
                self._member(name).add(member)
        elif isinstance(value, list):
            self.lists += 1
            for item in value:
                self._of_items().add(item)
        elif (leaf := _leaf_of(value)) is not None:
            self.leaves[leaf] += 1

    def add_column(self, column: pa.Array, *, is_found: bool, leaf: Callable[[pa.DataType], pa.DataType]) -> None:
        """Count the values of a column.

        Args:
            column: The column.
            is_found: Whether the types of its values were found.
            leaf: Gives the type that a table has for one that is neither struct nor list.
        """
        kind = column.type
        if pa.types.is_struct(kind):
            self.structs += len(column) - column.null_count
            for field, part in zip(kind, column.flatten(), strict=True):
                self._member(field.name).add_column(part, is_found=is_found, leaf=leaf)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            self.lists += len(column) - column.null_count
            self._of_items().add_column(column.flatten(), is_found=is_found, leaf=leaf)
        elif not pa.types.is_null(kind):
            self._add_leaves(column, leaf(kind), is_found)

    def _add_leaves(self, column: pa.Array, kind: pa.DataType, is_found: bool) -> None:
        whole, values = 0, len(column) - column.null_count
        if is_found and kind == LARGE:
            whole = _count(pc.and_(pc.greater_equal(column, _LEAST), pc.less_equal(column, _MOST)))
            self._count((INT64, INT64), whole)
        elif is_found and kind == DOUBLE:
            whole_ones = pc.equal(pc.trunc(column), column)
            small = _count(pc.and_(whole_ones, pc.less(pc.abs(column), float(1 << 63))))
            whole = _count(pc.and_(whole_ones, pc.less(pc.abs(column), float(_DIGITS_BOUND))))
            self._count((DOUBLE, INT64), small)
            self._count((DOUBLE, LARGE), whole - small)
        if is_found:
            self._count((kind, kind), values - whole)
        else:
            # Columns of a declared type have it where they have no values, too.
            self.leaves[kind, kind] += values

    def _count(self, leaf: Leaf, times: int) -> None:
        if times:
            self.leaves[leaf] += times

    def only_type(self) -> pa.DataType | None:
        """The type that all values have as they are written; None where they have several, or parts."""
        kinds = {kind for kind, _ in self.leaves}
        return kinds.pop() if len(kinds) == 1 and self.items is None and not self.members else None

    def of_keys(self) -> Census:
        """The values that may be keys: neither arrays and objects nor fractions; other numbers are whole ones."""
        census = Census()
        for (kind, narrowest), count in self.leaves.items():
            if not pa.types.is_floating(narrowest):
                census.leaves[narrowest if pa.types.is_floating(kind) else kind, narrowest] += count
        return census

    def _member(self, name: str) -> Census:
        return self.members.setdefault(name, Census())

    def _of_items(self) -> Census:
        if self.items is None:
            self.items = Census()
        return self.items

    def include(self, other: Census) -> None:
        """Count what another one has counted."""
        self.leaves.update(other.leaves)
        self.lists += other.lists
        self.structs += other.structs
        if other.items is not None:
            self._of_items().include(other.items)
        for name, member in other.members.items():
            self._member(name).include(member)


def _count(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _leaf_of(value: Any) -> Leaf | None:
    """The types of a value that is neither array nor object; None for one that has none."""
    match value:
        case bool():
            return BOOL, BOOL
        case None | Unheld():
            return None
        case str():
            return TEXT, TEXT
        case int() | Decimal():
            kind = _whole_type(int(value))
            return kind, kind
        case _:
            return DOUBLE, _whole_type(int(value)) if value.is_integer() else DOUBLE


def _whole_type(value: int) -> pa.DataType:
    if -(1 << 63) <= value < 1 << 63:
        return INT64
    return LARGE if abs(value) < _DIGITS_BOUND else DOUBLE


Joined = Callable[[Counter[pa.DataType]], pa.DataType]
"""Gives one type for numbers of several types, by how many there are of each."""


def number_type(counts: Counter[pa.DataType]) -> pa.DataType:
    """The type of numbers that were found: that of most whole ones, or double where some have fractions."""
    if DOUBLE in counts:
        return DOUBLE
    return LARGE if counts[LARGE] > counts[INT64] else INT64


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def type_of_most(census: Census, joined: Joined = number_type) -> pa.DataType | None:
    """The type that most values have; None where none has a type.

    All numbers count as of one type, and so do all arrays and all objects. Of types that are equally frequent, text
    comes first, then numbers, booleans, arrays and objects. Members are in the order of their names.

    Args:
        census: The values.
        joined: Gives the type of numbers.
    """
    if (only := census.only_type()) is not None:
        return only
    written: Counter[pa.DataType] = Counter()
    for (kind, _), count in census.leaves.items():
        written[kind] += count
    numbers = Counter({kind: count for kind, count in written.items() if is_number(kind)})
    found = [(count, _rank(kind), kind) for kind, count in written.items() if kind not in numbers]
    if numbers:
        found.append((numbers.total(), _rank(INT64), joined(numbers)))
    if census.items is not None and (item := type_of_most(census.items, joined)) is not None:
        found.append((census.lists, (4, ""), pa.list_(item)))
    if fields := members_of_most(census, joined):
        found.append((census.structs, (5, ""), pa.struct(fields)))
    return min(found, key=lambda each: (-each[0], each[1]))[2] if found else None


def members_of_most(census: Census, joined: Joined = number_type) -> list[pa.Field]:
    """The members that have a type, in the order of their names."""
    types = ((name, type_of_most(member, joined)) for name, member in sorted(census.members.items()))
    return [pa.field(name, kind) for name, kind in types if kind is not None]


def _rank(kind: pa.DataType) -> tuple[int, str]:
    order = [kind == TEXT, is_number(kind), kind == BOOL, True]
    return order.index(True), str(kind)
