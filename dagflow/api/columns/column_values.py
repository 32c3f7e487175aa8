"""Makes columns of Arrow from records that are mappings of column to value, and mappings from columns."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.errors import cut_text

MAX_DEPTH = 32
"""Levels of lists and objects within each other that a column, or a type, may have: fewer than MOST_LEVELS, because the
library of Delta tables reads types of about 40."""

_MAX_TEXT = 200
"""Characters of Arrow's text in an error's message, which may quote a value."""

# In Python a truth value is an int, and a datetime a date: the first class that fits counts.
_KINDS: Mapping[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "int": (int, np.integer),
    "float": (float, np.floating),
    "Decimal": (Decimal,),
    "str": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "datetime": (datetime,),
    "date": (date,),
    "time": (time,),
    "list": (list, tuple, set, frozenset, np.ndarray),
    "dict": (dict,),
}
_ALIKE = (frozenset(("int", "float")), frozenset(("int", "Decimal")))
"""Kinds that Arrow combines in one type without changing a value."""

_ZONED = frozenset(("datetime", "time"))
"""Kinds whose values may have a time zone."""


class ColumnValuesError(ValueError):
    """Values do not make a column.

    Args:
        where: The column.
        what: The mistake, as a clause about the column in a record.
        position: The position of this record among the values; -1 where it is not known.

    Attributes:
        position: The position of the record among the values.
        source: The position in a batch of the record that it was emitted for; -1 where it is not known.
    """

    def __init__(self, where: str, what: str, position: int) -> None:
        super().__init__(where, what, position)
        self.position = position
        self.source = -1

    def __str__(self) -> str:
        where, what, _ = self.args
        return f"{where}: {f'record {self.position + 1}' if self.position >= 0 else 'a record'} {what}"


def columns_to_arrow(columns: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    """Columns whose types follow from their values.

    Raises:
        ColumnValuesError: A name is no text, or the values of a column have no common type.
    """
    arrays = [column_of(name, values) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, [*columns])


def column_of(name: object, values: Sequence[Any]) -> pa.Array:
    """A column whose type follows from its values.

    Raises:
        ColumnValuesError: The name is no text, or the values have no common type.
    """
    if not isinstance(name, str):
        position = next((at for at, value in enumerate(values) if value is not None), -1)
        what = f"has a key of type {type(name).__name__}; name each column with a str"
        raise ColumnValuesError(f"column {cut_text(repr(name), _MAX_TEXT)}", what, position)
    where = f"column '{name}'"
    try:
        if values and type(values[0]) is str and (array := pa.array(values)).type == pa.string():
            # Arrow accepts no other kind for text, and most columns are text.
            return array
    except (pa.ArrowException, UnicodeEncodeError):
        pass  # the same error, or a better one, comes below
    _require_one_kind(where, values)
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        what = f"has a value that fits no type with the others: {cut_text(str(error), _MAX_TEXT)}"
        raise ColumnValuesError(where, what, _first_refused(values)) from error


def _first_refused(values: Sequence[Any]) -> int:
    """The position of the first value that makes no Arrow column even by itself; -1 for none."""
    for position, value in enumerate(values):
        try:
            pa.array([value])
        except Exception:  # whatever Arrow raised before
            return position
    return -1


def _require_one_kind(where: str, values: Sequence[Any], levels: int = MAX_DEPTH) -> None:
    """Refuse values of several kinds, and those nested too deeply.

    Arrow would convert values of some kinds to that of the first. Where blocks are cut decides which values are in a
    column; it must not decide what a value becomes.

    Raises:
        ColumnValuesError: The values are of several kinds, or have more levels of lists and mappings.
    """
    classes = set(map(type, values))
    classes.discard(type(None))
    kinds = set(map(_kind_of_class, classes))
    if len(kinds) > 1 and not any(kinds <= alike for alike in _ALIKE):
        raise _mixed(where, values)
    if not kinds.isdisjoint(_ZONED):
        are_naive = {value.tzinfo is None for value in values if value is not None}
        if len(are_naive) > 1 or (kinds == {"time"} and are_naive == {False}):
            raise _mixed(where, values)
    nested = kinds & {"list", "dict"}
    if nested and not levels:
        position = next(at for at, value in enumerate(values) if value is not None and _kind_of(value) in nested)
        raise ColumnValuesError(where, f"is nested more than {MAX_DEPTH} levels deep", position)
    if "list" in kinds:
        _require_in_lists(where, values, levels)
    elif "dict" in kinds:
        names = dict.fromkeys(itertools.chain.from_iterable(value for value in values if value is not None))
        for name in names:
            members = [None if value is None else value.get(name) for value in values]
            _require_one_kind(f"{where}, member {name!r}", members, levels - 1)


def _require_in_lists(where: str, values: Sequence[Any], levels: int) -> None:
    """Refuse lists whose elements, taken together, are of several kinds."""
    lists = [() if value is None else _elements(value) for value in values]
    try:
        _require_one_kind(f"{where}, elements", [*itertools.chain.from_iterable(lists)], levels - 1)
    except ColumnValuesError as error:
        ends = np.cumsum([*map(len, lists)])
        error.position = int(np.searchsorted(ends, error.position, side="right"))
        raise


def _elements(value: Any) -> Any:
    if isinstance(value, np.ndarray) and not value.ndim:
        return ()  # no list, which Arrow refuses
    # All elements of an array are of one kind: making an object of each would take long.
    return value[:1] if isinstance(value, np.ndarray) and value.dtype != object else value


def _mixed(where: str, values: Sequence[Any]) -> ColumnValuesError:
    first = ""
    for position, value in enumerate(values):
        if value is None:
            continue
        kind = _kind_of(value)
        if kind == "time with a zone":
            what = f"has {kind}, which no column holds; emit the time without its zone, and the zone beside it"
            return ColumnValuesError(where, what, position)
        first = first or kind
        if kind != first and {kind, first} not in _ALIKE:
            break
    what = f"has {kind} where an earlier one has {first}; emit values of one kind, or another column"
    return ColumnValuesError(where, what, position)


def _kind_of(value: Any) -> str:
    kind = _kind_of_class(type(value))
    if kind not in _ZONED or value.tzinfo is None:
        return kind
    return f"{kind} with a zone"


def _kind_of_class(cls: type) -> str:
    return next((kind for kind, classes in _KINDS.items() if issubclass(cls, classes)), cls.__name__)


def mappings_of(arrow: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, each a mapping of column to value; of columns with one name, the last one's value."""
    values = values_by_column(arrow)
    return mappings_with(values) if values else list(arrow.to_pylist())


def values_by_column(arrow: pa.RecordBatch) -> dict[str, list[Any]]:
    """The values of each column as Python objects; empty if columns have the same name.

    Raises:
        ValueError: A time has nanoseconds, which Python's times lack.
        OverflowError: A time is before the year 1, or after 9999.
    """
    names = arrow.schema.names
    if len(set(names)) < len(names):
        return {}
    values = {}
    for name, column in zip(names, arrow.columns, strict=True):
        try:
            values[name] = _values_of(column)
        except (ValueError, OverflowError) as error:
            kind: type[Exception] = ValueError
            if isinstance(error, OverflowError):
                kind, what = OverflowError, f"values that Python has not ({error})"
            elif "[ns" in str(column.type):
                what = "nanoseconds, which the times of Python have not"
            else:
                raise
            raise kind(
                f"column '{name}' is {type_name(column.type)}, and has {what}; "
                "take the records with @input.batch, as columns of Arrow"
            ) from error
    return values


def _values_of(column: pa.Array) -> list[Any]:
    """The result of the column's to_pylist; that is slow for times, days and decimals, and numpy is not."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.tz is None and kind.unit != "ns"):
        values = column.to_numpy(zero_copy_only=False).tolist()
        # numpy has numbers for days that Python lacks.
        if int not in set(map(type, values)):
            return list(values)
    return list(column.to_pylist())


def mappings_with(values_by_column: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Mappings of column to value, made from the values of each column; empty without columns."""
    if not values_by_column:
        return []
    first, *others = values_by_column.items()
    name, values = first
    mappings = [{name: value} for value in values]
    # Column by column: this takes half of the time of a dict() of each row.
    for name, values in others:
        for mapping, value in zip(mappings, values, strict=True):
            mapping[name] = value
    return mappings


def columns_of(mappings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The values of mappings by column, None where a mapping lacks one."""
    names = list(mappings[0])
    if sum(map(len, mappings)) == len(names) * len(mappings):
        with contextlib.suppress(KeyError):  # then their columns differ
            return {name: [mapping[name] for mapping in mappings] for name in names}
    # Not from_pylist, which takes the columns of the first record and drops those that only others have.
    columns = dict.fromkeys(itertools.chain.from_iterable(mappings))
    return {name: [mapping.get(name) for mapping in mappings] for name in columns}


def type_name(type: object) -> str:
    """A type in the form of an app file."""
    return str(type).replace("decimal128(", "decimal(").replace("date32[day]", "date32").replace(", tz=", ", ")


def require_columns(names: Mapping[str, Any]) -> None:
    """Refuse records without any column."""
    if not names:
        raise ValueError("records have at least one column; got mappings without any")
