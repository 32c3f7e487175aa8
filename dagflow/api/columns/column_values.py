"""Columns of Arrow from records that map columns to values, and the values of columns in Python and in JSON."""

from __future__ import annotations

import base64
import contextlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.errors import cut_text
from dagflow.late import compute as pc

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
    """Columns whose types follow from their values; see column_of()."""
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


def json_values(column: pa.Array) -> list[Any]:
    """The values of a column, in the form in which msgspec writes them as JSON.

    Numbers and booleans stay as they are; decimals become text, which keeps all of their digits. Dates, times,
    timestamps and durations are in ISO 8601, to the nanosecond, and years have as many digits as they need. Bytes are
    text if they are UTF-8, and otherwise an object with the one member base64. Missing values are null, and so are
    numbers that JSON lacks: infinities and NaN. A time whose offset from UTC is no whole minute, which ISO 8601 cannot
    express, is in UTC.
    """
    try:
        return _converted(column, is_far=False)
    except OverflowError:
        return _converted(column, is_far=True)


def readable_value(value: pa.Scalar) -> Any:
    """A value as a Python object, or as JSON where Python has none: nanoseconds, years before 1 or after 9999."""
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return json_values(pa.repeat(value, 1))[0]


def readable_rows(arrow: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """The rows, each a mapping of column to readable_value(); of columns with one name, the last one's value."""
    columns = [[*map(readable_value, column)] for column in arrow.columns]
    return [dict(zip(arrow.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _converted(column: pa.Array, is_far: bool) -> list[Any]:
    values = _plain(column, is_far)
    if not _has_seconds(column):
        return values
    in_utc = _plain(column.cast(with_leaves(column.type, _in_utc)), is_far)
    return [*map(_with_whole_minutes, values, in_utc)]


def _plain(column: pa.Array, is_far: bool) -> list[Any]:
    convert = _converter(column.type, is_far)
    kind = _python_type(column.type, is_far)
    values: list[Any] = (column if kind == column.type else column.cast(kind)).to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _python_type(kind: pa.DataType, is_far: bool) -> pa.DataType:
    """The type that a column is converted to first: text, or numbers, where Python has no values of its own type."""
    types = pa.types

    def converted(kind: pa.DataType) -> pa.DataType:
        if types.is_duration(kind):
            return pa.int64() if kind.unit == "ns" else kind
        if (types.is_timestamp(kind) or types.is_time64(kind)) and kind.unit == "ns":
            return pa.string()
        return pa.string() if is_far and (types.is_timestamp(kind) or types.is_date(kind)) else kind

    return with_leaves(kind, converted)


def with_leaves(kind: pa.DataType, converted: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type with others in place of those that have none in them."""
    types = pa.types
    if types.is_dictionary(kind):
        plain = with_leaves(kind.value_type, converted)
        return kind if plain == kind.value_type else plain
    if types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, converted), with_leaves(kind.item_type, converted))
    if types.is_fixed_size_list(kind):
        return pa.list_(with_leaves(kind.value_type, converted), kind.list_size)
    if types.is_list(kind) or types.is_large_list(kind):
        return (pa.list_ if types.is_list(kind) else pa.large_list)(with_leaves(kind.value_type, converted))
    if types.is_struct(kind):
        return pa.struct([field.with_type(with_leaves(field.type, converted)) for field in kind])
    return converted(kind)


def _with_whole_minutes(value: Any, in_utc: Any) -> Any:
    """A value; each time in it whose offset from UTC has seconds is replaced by that of the same value in UTC."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return in_utc if offset is not None and offset % timedelta(minutes=1) else value
    if isinstance(value, dict):
        return {name: _with_whole_minutes(each, in_utc[name]) for name, each in value.items()}
    if isinstance(value, list):
        return [*map(_with_whole_minutes, value, in_utc)]
    # A text that differs is a time's; an offset of whole minutes leaves its seconds unchanged.
    is_same = not isinstance(value, str) or value == in_utc or _SECONDS.findall(value) == _SECONDS.findall(in_utc)
    return value if is_same else in_utc


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def _has_seconds(column: pa.Array) -> bool:
    """Whether a time's offset from UTC is no whole minute, as in most zones before 1930; see json_values()."""
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return _has_seconds(column.dictionary)
    if types.is_map(kind):
        return _has_seconds(column.keys) or _has_seconds(column.items)
    if _is_list(kind):
        return _has_seconds(column.flatten())
    if types.is_struct(kind):
        return any(map(_has_seconds, column.flatten()))
    if not types.is_timestamp(kind) or not kind.tz or _WHOLE_MINUTES.fullmatch(kind.tz):
        return False
    local, utc = (each.cast(pa.int64()) for each in (pc.local_timestamp(column), column))
    offsets = pc.subtract(local, utc).drop_null().to_numpy()
    return bool((offsets % (60 * _PER_SECOND[kind.unit])).any())


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    is_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(is_view or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _converter(kind: pa.DataType, is_far: bool) -> Callable[[Any], Any] | None:
    """None where values of the type are fit for JSON as they are."""
    types = pa.types
    if any(is_kind(kind) for is_kind in _BYTES):
        return _text
    if types.is_timestamp(kind) and (is_far or kind.unit == "ns"):
        return _moment
    if types.is_duration(kind) and kind.unit == "ns":
        return _duration
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _converter(kind.value_type, is_far)
    if types.is_map(kind):
        return _pairs(_converter(kind.key_type, is_far), _converter(kind.item_type, is_far))
    if _is_list(kind):
        inner = _converter(kind.value_type, is_far)
        return None if inner is None else lambda values: [None if v is None else inner(v) for v in values]
    if types.is_struct(kind):
        members = {field.name: _converter(field.type, is_far) for field in kind}
        return lambda row: {name: _or_null(members[name], value) for name, value in row.items()}
    return None


def _moment(value: str) -> str:
    text = _FRACTION.sub(lambda found: f".{found[1]:0<6}" if int(found[1]) else "", value.replace(" ", "T"))
    return f"{text[:-2]}:{text[-2:]}" if _OFFSET.search(text) else text


_SECONDS = re.compile(r":(\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$")

_WHOLE_MINUTES = re.compile(r"UTC|[+-]\d\d:\d\d")
"""A zone whose offset from UTC is always whole minutes."""

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_FRACTION = re.compile(r"\.(\d{1,6})(?!\d)")
"""A fraction of a second of at most six digits; nanoseconds keep all their digits."""

_OFFSET = re.compile(r"[+-]\d{4}$")


def _duration(nanoseconds: int) -> str:
    seconds, rest = divmod(abs(nanoseconds), 1_000_000_000)
    days, seconds = divmod(seconds, 86_400)
    return f"{'-' if nanoseconds < 0 else ''}P{days}DT{seconds}.{rest:09}S"


def _or_null(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _pairs(key: Callable[[Any], Any] | None, item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Convert maps to lists of pairs: JSON's objects have text for keys, and each key once."""
    return lambda pairs: [[_or_null(key, k), _or_null(item, v)] for k, v in pairs]


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
