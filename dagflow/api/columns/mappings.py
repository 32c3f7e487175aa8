"""Records with columns as mappings of column to value, as per-record methods take and emit them."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


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
                f"column '{name}' is {column.type}, and has {what}; "
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


def require_columns(names: Mapping[str, Any]) -> None:
    """Refuse records without any column."""
    if not names:
        raise ValueError("records have at least one column; got mappings without any")
