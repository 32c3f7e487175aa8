"""Facts of a Parquet file from its footer, without reading its rows."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagflow.storage.file_facts import FileFacts
from operators.sink.tables.table_columns import schema_text

_MAX_TEXT = 64
"""Characters of a bound, about: the beginning of a longer text is a lower bound, and with _LAST added an upper one."""

_LAST = chr(0x10FFFF)


def facts_of(
    operator: str,
    columns: pa.Schema,
    stored: pa.Schema,
    footer: pq.FileMetaData,
    partition: dict[str, str | None],
    causes: Mapping[str, str],
    with_nan: Collection[str],
) -> FileFacts:
    """The facts of a file.

    Columns with NaN have no bounds, because engines order it in different ways; nested columns have neither bounds nor
    counts of nulls.

    Args:
        operator: The operator that writes it.
        columns: The columns of its rows, with the partition columns.
        stored: The columns that are in the file.
        footer: Its footer.
        partition: The values of the partition columns.
        causes: Why columns are new or wider, see FileFacts.
        with_nan: The columns with NaN, which the footer does not show; see names_with_nan().
    """
    own_causes = {name: causes[name] for name in columns.names if name in causes}
    facts = FileFacts(operator, schema_text(columns), partition, causes=own_causes)
    leaf = 0
    for field in stored:
        if not pa.types.is_nested(field.type):
            _add(facts, field, footer, leaf, has_bounds=has_bounds(field.type) and field.name not in with_nan)
        leaf += _leaves(field.type)
    return facts


def names_with_nan(rows: pa.RecordBatch) -> set[str]:
    """The columns of some rows that have NaN."""
    named = zip(rows.schema.names, rows.columns, strict=True)
    return {name for name, column in named if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()}


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _add(facts: FileFacts, field: pa.Field, footer: pq.FileMetaData, leaf: int, *, has_bounds: bool) -> None:
    found = [footer.row_group(index).column(leaf).statistics for index in range(footer.num_row_groups)]
    if not found or any(each is None or not each.has_null_count for each in found):
        return
    facts.nulls[field.name] = sum(each.null_count for each in found)
    # A row group of only nulls has no bounds, and needs none.
    filled = [each for each in found if each.num_values]
    if not filled or not all(each.has_min_max for each in filled) or not has_bounds:
        return
    try:
        least, greatest = min(each.min for each in filled), max(each.max for each in filled)
    except (ValueError, OverflowError):
        return  # a date that Python does not have
    bounds = _bound(least, up=False), _bound(greatest, up=True)
    if None not in bounds:
        # Both or neither: a reader that found only one of them was seen to skip rows.
        facts.least[field.name], facts.greatest[field.name] = bounds


def has_bounds(kind: pa.DataType) -> bool:
    """Whether facts have bounds of columns of a type."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
    )


def _bound(value: Any, *, up: bool) -> Any:
    """A bound as a JSON value; None for none."""
    match value:
        case str():
            return _longer_text(value) if up else value[:_MAX_TEXT]
        case float():
            return value if math.isfinite(value) else None  # JSON has no form for others
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return _milliseconds(value, up=up)
        case datetime.date():
            return value.isoformat()
        case _:
            return value


def _longer_text(value: str) -> str:
    """A text that is not less, and short if possible."""
    rest = value[_MAX_TEXT:].lstrip(_LAST)
    return value[: len(value) - len(rest)] + (_LAST if rest else "")


def _milliseconds(value: datetime.datetime, *, up: bool) -> str:
    """A time in milliseconds, as readers of tables expect it, on the safe side of the exact one."""
    rest, precision = value.microsecond % 1000, "milliseconds"
    try:
        value += datetime.timedelta(microseconds=(1000 - rest) if rest and up else -rest)
    except OverflowError:
        precision = "microseconds"  # the last millisecond that Python has, which no other one is above
    text = value.replace(tzinfo=None).isoformat(timespec=precision)
    return text if value.tzinfo is None else f"{text}Z"
