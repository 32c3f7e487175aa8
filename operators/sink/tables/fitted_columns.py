"""Fits columns of records into types of a table: no value is changed, and what has no place is put aside."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.found_values import Census, fitted, joined, plain
from operators.sink.tables.nested_types import ColumnTypes, parts_of

Rows = dict[int, Any]
"""Values by row."""


@dataclass(frozen=True, slots=True)
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
        """Whether it has no type, and no value."""
        return bool(pa.types.is_null(self.values.type)) and not self.others

    @property
    def first(self) -> int:
        """The first row that has a value; 0 where none has."""
        first = int(pc.index(self.values.is_valid(), value=True).as_py())
        rows = [*self.others, *([first] if first >= 0 else [])]
        return min(rows, default=0)

    def value(self, row: int) -> Any:
        """The value of a row in its one form."""
        return plain(self.others[row]) if row in self.others else plain_value(self.values[row])

    def census(self, rows: Collection[int] | None, leaf: ColumnTypes) -> Census:
        """How many values there are of each type.

        Args:
            rows: The rows whose values count; None for all.
            leaf: See Census.add_column().
        """
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
        """The rows that have a value."""
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


@dataclass(slots=True)
class FittedColumn:
    """A column in the type of a table.

    Attributes:
        values: The values; null where they are of another type.
        refused: The values that are of another type.
        rest: What the type has no place for, of values of which the other parts are in `values`.
    """

    values: pa.Array
    refused: Rows = field(default_factory=dict)
    rest: Rows = field(default_factory=dict)

    @property
    def misfits(self) -> list[int]:
        """The rows whose values do not fit as a whole."""
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
        return f"does not fit {kind} of {table}: {error}"
    except _NoWayError:
        pass
    return f"is {given.values.type}, and {kind} in {table}"


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
    """What a type lacks of a value that fits otherwise."""
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
    """Whether a type lacks members that another one has."""
    own = {part.name: part.type for part in parts_of(kind)}
    parts = parts_of(given)
    if pa.types.is_struct(given) and any(part.name not in own for part in parts):
        return bool(pa.types.is_struct(kind))
    return any(_lacks(own[part.name], part.type) for part in parts if part.name in own)


class _NoWayError(Exception):
    """A cast between two types would change values, or there is none."""


def _cast(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The values that a cast keeps, and the rows with others."""
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
    if types.is_timestamp(kind):
        return "instant" if kind.tz is not None else "local time"
    tests = {"integer": types.is_integer, "decimal": types.is_decimal, "text": _is_text, "time": types.is_time}
    more = {"bytes": _is_bytes, "float": _is_float, "double": types.is_float64, "date": types.is_date}
    return next((name for name, test in {**tests, **more}.items() if test(kind)), "")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def goes_into(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps every value of a type, or fails."""
    families = _family(kind), _family(target)
    return kind == target or families in _WIDENED or (families[0] == families[1] and bool(families[0]))


_WIDENED = {
    *(("integer", "float"), ("integer", "double"), ("float", "double"), ("integer", "decimal")),
    ("bytes", "text"),
    ("time", "text"),
    ("date", "local time"),
}
"""Other casts that keep every value, or fail: numbers as wider ones, dates as midnights, UTF-8 as text."""


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type takes all values of another one, and is not it."""
    types = pa.types
    if types.is_integer(kind) and types.is_integer(other):
        return bool(kind.bit_width > other.bit_width)
    return (_family(other), _family(kind)) in _WIDENED - {("bytes", "text"), ("time", "text")}


def plain_value(value: pa.Scalar) -> Any:
    """A value in its one form; as text if Python has no such type, such as one for nanoseconds."""
    try:
        return plain(value.as_py())
    except ValueError:
        return str(value.cast(pa.string()) if not pa.types.is_nested(value.type) else value)
