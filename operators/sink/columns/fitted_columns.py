"""Fits columns of records into types of a table: no value is changed, and what has no place is put aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.partitioning import BYTES, DATES, INSTANTS, NUMBERS, TEXT, TIMES, TIMESTAMPS, family_of_type
from dagflow.frozen import frozen, mutable
from dagflow.late import compute as pc
from operators.found_values import DOUBLE, INT64, LARGE, Census, fitted, joined, number_type, plain, type_of_most
from operators.sink.columns.nested_types import ColumnTypes, WiderType, common_type, parts_of

Rows = dict[int, Any]
"""Values by row."""


@frozen
class GivenColumn:
    """A column of records.

    Attributes:
        values: The values of its type.
        others: Values of other types, by row, as they came; such a row is null in `values`.
        is_found: Whether the type is that of most values in a batch, which says nothing of a single value.
    """

    values: pa.Array
    others: Mapping[int, Any] = field(default_factory=dict)
    is_found: bool = False

    @property
    def is_empty(self) -> bool:
        return bool(pa.types.is_null(self.values.type)) and not self.others

    @property
    def first(self) -> int:
        """The first row that has a value; 0 where none has."""
        first = int(pc.index(self.values.is_valid(), value=True).as_py())
        rows = [*self.others, *([first] if first >= 0 else [])]
        return min(rows, default=0)

    def value(self, row: int) -> Any:
        return plain(self.others[row]) if row in self.others else plain_value(self.values[row])

    def census(self, rows: Collection[int] | None, leaf: ColumnTypes) -> Census:
        """How many values of some rows, or of all, there are of each type; for leaf see Census.add_column()."""
        census = Census()
        if rows is None:
            census.add_column(self.values, is_found=self.is_found, leaf=leaf)
            rows = self.others
        elif not self.is_found:
            census.add_column(self.values.take(pa.array(sorted(rows))), is_found=False, leaf=leaf)
            return census
        for row in rows:
            census.add(self.others[row] if row in self.others else self.values[row].as_py())
        return census

    def rows(self) -> Iterator[int]:
        yield from {*np.flatnonzero(self.values.is_valid().to_numpy(zero_copy_only=False)).tolist(), *self.others}

    @classmethod
    def found(cls, values: pa.Array, rest: Mapping[int, Any]) -> GivenColumn:
        """A column whose type was found, with the parts of values that have been put aside for that."""
        if not rest:
            return cls(values, is_found=True)
        others = {row: joined(values[row].as_py(), part) for row, part in rest.items()}
        is_other = np.zeros(len(values), bool)
        is_other[list(others)] = True
        return cls(pc.if_else(pa.array(is_other), pa.nulls(1, values.type)[0], values), others, is_found=True)


@mutable
class FittedColumn:
    """A column in the type of a table.

    Attributes:
        rest: What the type has no place for, of values of which the other parts are in `values`.
    """

    values: pa.Array
    refused: Rows = field(default_factory=dict)
    rest: Rows = field(default_factory=dict)

    @property
    def misfits(self) -> list[int]:
        return [*self.refused, *self.rest]


def fit(given: GivenColumn, kind: pa.DataType) -> FittedColumn:
    """A column in a type whose parts may all be null; see nested_types.nullable_type()."""
    column = given.values.dictionary_decode() if pa.types.is_dictionary(given.values.type) else given.values
    made = FittedColumn(column)
    others: Rows = {}
    if column.type != kind:
        made.values, refused = _cast(column, kind)
        for row in refused:
            _fit_value(given, row, kind, made, others)
        if _lacks(kind, column.type):
            for row in given.rows():
                if (
                    row not in refused
                    and row not in given.others
                    and (rest := _rest(given.value(row), kind)) is not None
                ):
                    made.rest[row] = rest
    for row in given.others:
        _fit_value(given, row, kind, made, others)
    if others:
        indices = np.arange(len(column))
        indices[list(others)] = len(column) + np.arange(len(others))
        made.values = pa.concat_arrays([made.values, pa.array(list(others.values()), kind)]).take(pa.array(indices))
    return made


def why_not(given: GivenColumn, row: int, kind: pa.DataType, table: str) -> str:
    """Why the value of a row does not fit into a type of a table, as a clause about the column."""
    try:
        projected(given.values.slice(row, 1), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        return f"does not fit {type_name(kind)} of {table}: {error}"
    except _NoWayError:
        pass
    return f"is {type_name(given.values.type)}, and {type_name(kind)} in {table}"


def _fit_value(given: GivenColumn, row: int, kind: pa.DataType, made: FittedColumn, others: Rows) -> None:
    value = given.value(row)
    if not given.is_found:
        made.refused[row] = value
        return
    try:
        own, rest = fitted(value, kind)
    except ValueError:
        made.refused[row] = value
        return
    if own is not None:
        others[row] = own
    if rest is not None:
        made.rest[row] = rest


def _rest(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        names = {part.name: part.type for part in kind}
        parts = {name: _rest(own, names[name]) if name in names else own for name, own in value.items()}
        return {name: part for name, part in parts.items() if part is not None} or None
    if pa.types.is_list(kind):
        left = [_rest(item, kind.value_type) for item in value]
        return None if all(part is None for part in left) else left
    return None


def _lacks(kind: pa.DataType, given: pa.DataType) -> bool:
    own = {part.name: part.type for part in parts_of(kind)}
    parts = parts_of(given)
    if pa.types.is_struct(given) and any(part.name not in own for part in parts):
        return bool(pa.types.is_struct(kind))
    return any(_lacks(own[part.name], part.type) for part in parts if part.name in own)


class _NoWayError(Exception):
    """A cast between two types would change values, or there is none."""


def _cast(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    if column.null_count == len(column):
        return pa.nulls(len(column), kind), []
    try:
        return projected(column, kind), []
    except _NoWayError:
        return pa.nulls(len(column), kind), np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(column) == 1:
            return pa.nulls(1, kind), [0]
    middle = len(column) // 2
    first, refused = _cast(column.slice(0, middle), kind)
    second, more = _cast(column.slice(middle), kind)
    return pa.concat_arrays([first, second]), [*refused, *(middle + row for row in more)]


def projected(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in another type: members that it lacks are null, and those that the type lacks are left out.

    Raises:
        ArrowInvalid: The type does not take all values.
        _NoWayError: The types do not go together.
    """
    given = column.type
    if given == kind:
        return column
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if pa.types.is_struct(given) and pa.types.is_struct(kind):
        parts = {part.name: own for part, own in zip(given, column.flatten(), strict=True)}
        members = [
            projected(parts[part.name], part.type) if part.name in parts else pa.nulls(len(column), part.type)
            for part in kind
        ]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)
    if _is_list(given) and pa.types.is_list(kind):
        lengths = column.value_lengths().fill_null(0).to_numpy()
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        mask = column.is_null() if column.null_count else None
        return pa.ListArray.from_arrays(offsets, projected(column.flatten(), kind.value_type), type=kind, mask=mask)
    if pa.types.is_map(given) and pa.types.is_map(kind) and not _lacks(kind, given):
        return column.cast(kind)
    if not goes_into(given, kind):
        raise _NoWayError
    return pc.cast(column, kind)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _family(kind: pa.DataType) -> str:
    """The family of types among which a cast keeps every value, or fails; "" for any other type."""
    types = pa.types
    tests = {"integer": types.is_integer, "decimal": types.is_decimal, "double": types.is_float64}
    if number := next((name for name, is_kind in tests.items() if is_kind(kind)), ""):
        return number
    family = "" if types.is_dictionary(kind) else family_of_type(kind)
    return "float" if family == NUMBERS else family if family in _CAST_FAMILIES else ""


def goes_into(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps every value of a type, or fails."""
    families = _family(kind), _family(target)
    return kind == target or families in _WIDENED or (families[0] == families[1] and bool(families[0]))


_CAST_FAMILIES = (TEXT, BYTES, TIMES, DATES, TIMESTAMPS, INSTANTS)
_WIDENED = {
    *(("integer", "float"), ("integer", "double"), ("float", "double"), ("integer", "decimal")),
    *((BYTES, TEXT), (TIMES, TEXT), (DATES, TIMESTAMPS)),
}
"""Other casts that keep every value, or fail: numbers as wider ones, dates as midnights, UTF-8 as text."""


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type takes all values of another one, and is not it."""
    types = pa.types
    if types.is_integer(kind) and types.is_integer(other):
        return bool(kind.bit_width > other.bit_width)
    return (_family(other), _family(kind)) in _WIDENED - {(BYTES, TEXT), (TIMES, TEXT)}


def plain_value(value: pa.Scalar) -> Any:
    """A value in its one form; as text if Python has no such type, such as one for nanoseconds."""
    try:
        return plain(value.as_py())
    except (ValueError, OverflowError):
        return str(value.cast(pa.string()) if not pa.types.is_nested(value.type) else value)


First = tuple[tuple[bool, str, int], int]
"""The key of a place, see place_key(), and a position."""


def place_key(place: str) -> tuple[bool, str, int]:
    """A key that orders places by file and offset; unknown ones come last."""
    file, _, offset = place.rpartition(":")
    return not place, file, int(offset or 0)


@mutable
class Proposal:
    """What a task has seen of columns that the driver decides about.

    Attributes:
        census: The values of columns that are new to the task, and those that do not fit into a known one, by column.
        firsts: Where a column has its first value: the key of the place, or of its file if all records of the file have
            the column; and the position in the record, by column.
        aside: The types for which values were put aside, by column; None where it had none.
        is_bare: Whether records had no column that a file can hold.
        rescued: How many values were rescued of a column of the table, by column.
        filled: Columns that have a value in a row.
    """

    census: dict[str, Census] = field(default_factory=dict)
    firsts: dict[str, First] = field(default_factory=dict)
    aside: dict[str, set[pa.DataType | None]] = field(default_factory=dict)
    is_bare: bool = False
    rescued: Counter[str] = field(default_factory=Counter)
    filled: set[str] = field(default_factory=set)

    def include(self, name: str, census: Census) -> None:
        self.census.setdefault(name, Census()).include(census)

    def put_aside(self, name: str, kind: pa.DataType | None) -> None:
        self.aside.setdefault(name, set()).add(kind)

    def add(self, other: Proposal) -> None:
        for name, census in other.census.items():
            self.include(name, census)
        for name, first in other.firsts.items():
            self.firsts[name] = min(first, self.firsts.get(name, first))
        for name, kinds in other.aside.items():
            self.aside.setdefault(name, set()).update(kinds)
        self.is_bare = self.is_bare or other.is_bare
        self.rescued.update(other.rescued)
        self.filled.update(other.filled)

    def is_met_by(self, types: Mapping[str, pa.DataType]) -> bool:
        """Whether values would be put aside with these types of columns as they were."""
        return all(kind == types.get(name) for name, kinds in self.aside.items() for kind in kinds)


def new_type(census: Census, *, is_key: bool = False) -> pa.DataType | None:
    """The type of a new column: that of most of its values, or a wider one that takes others; None for none."""
    census = census.of_keys() if is_key else census
    kind = type_of_most(census, _joined_numbers)
    if kind is None or pa.types.is_nested(kind):
        return kind
    others = {written for written, _ in census.leaves} - {kind}
    return _widest(kind, others)


def _joined_numbers(counts: Counter[pa.DataType]) -> pa.DataType:
    if {*counts} <= {INT64, LARGE, DOUBLE}:
        return number_type(counts)
    most = min(counts, key=lambda kind: (-counts[kind], str(kind)))
    return _widest(most, counts)


def _widest(kind: pa.DataType, others: Iterable[pa.DataType]) -> pa.DataType:
    """A type that takes the values of others, as far as there is one."""
    before = None
    while kind != before:
        before = kind
        for other in sorted(others, key=str):
            if {kind, other} != {INT64, LARGE}:
                kind = common_type(kind, other) or (other if is_wider(other, kind) else kind)
    return kind


def wider_for(there: pa.DataType, census: Census, wider: WiderType | None, *, takes_members: bool) -> pa.DataType:
    """The type to which a column is widened for values that do not fit; its own where there is no wider one.

    Without wider, which is for values that are not nested, these keep their types. With takes_members structs get the
    members that they lack, after their own and in the order of their names.
    """
    if pa.types.is_struct(there):
        parts = [
            part.with_type(wider_for(part.type, census.members[part.name], wider, takes_members=takes_members))
            if part.name in census.members
            else part
            for part in there
        ]
        own = {part.name for part in there}
        new = {name: new_type(member) for name, member in sorted(census.members.items()) if name not in own}
        more = [pa.field(name, kind) for name, kind in new.items() if kind is not None and takes_members]
        return pa.struct([*parts, *more])
    if pa.types.is_list(there):
        items = census.items
        return (
            there
            if items is None
            else pa.list_(pa.field("item", wider_for(there.value_type, items, wider, takes_members=takes_members)))
        )
    before = None
    while wider is not None and there != before:
        before = there
        for kind in sorted({narrowest for _, narrowest in census.leaves}, key=str):
            there = wider(there, kind) or there
    return there
