"""Facts of a Parquet file from its footer, without reading it again."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.storage.file_facts import FileFacts
from operators.sink.tables.table_columns import schema_text

_MAX_TEXT = 64
"""Characters of a bound; of a longer text the beginning is a lower bound, and with the last character an upper one."""

_LAST = chr(0x10FFFF)


def facts_of(
    operator: str,
    columns: pa.Schema,
    stored: pa.Schema,
    footer: pq.FileMetaData,
    partition: dict[str, str | None],
    causes: Mapping[str, str],
) -> FileFacts:
    """The facts of a file.

    Floating-point columns have no bounds, because engines order NaN in different ways; nested columns have neither
    bounds nor counts of nulls.

    Args:
        operator: The operator that writes it.
        columns: The columns of its rows, with the partition columns.
        stored: The columns that are in the file.
        footer: Its footer.
        partition: The values of the partition columns.
        causes: Why columns are new or wider, see FileFacts.
    """
    told = {name: causes[name] for name in columns.names if name in causes}
    facts = FileFacts(operator, schema_text(columns), partition, causes=told)
    leaf = 0
    for field in stored:
        if not pa.types.is_nested(field.type):
            _add(facts, field, footer, leaf)
        leaf += _leaves(field.type)
    return facts


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _add(facts: FileFacts, field: pa.Field, footer: pq.FileMetaData, leaf: int) -> None:
    found = [footer.row_group(index).column(leaf).statistics for index in range(footer.num_row_groups)]
    if not found or any(each is None or not each.has_null_count for each in found):
        return
    facts.nulls[field.name] = sum(each.null_count for each in found)
    # A row group of nothing but nulls has no bounds, and needs none.
    filled = [each for each in found if each.num_values]
    if not filled or not all(each.has_min_max for each in filled) or not _has_bounds(field.type):
        return
    try:
        least, greatest = min(each.min for each in filled), max(each.max for each in filled)
    except (ValueError, OverflowError):
        return  # a date that Python does not have
    bounds = _bound(least, up=False), _bound(greatest, up=True)
    if None not in bounds:
        # Both or neither: a reader that finds only one of them was seen to pass over rows.
        facts.least[field.name], facts.greatest[field.name] = bounds


def _has_bounds(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
    )


def _bound(value: Any, *, up: bool) -> Any:
    """A bound as a JSON value; None for none."""
    match value:
        case str():
            if len(value) <= _MAX_TEXT or not up:
                return value[:_MAX_TEXT]
            return None if value[_MAX_TEXT] == _LAST else value[:_MAX_TEXT] + _LAST
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return _milliseconds(value, up=up)
        case datetime.date():
            return value.isoformat()
        case _:
            return value


def _milliseconds(value: datetime.datetime, *, up: bool) -> str | None:
    """A time in milliseconds, as readers of tables expect it, on the safe side of the exact one."""
    rest = value.microsecond % 1000
    try:
        value += datetime.timedelta(microseconds=(1000 - rest) if rest and up else -rest)
    except OverflowError:
        return None
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"
