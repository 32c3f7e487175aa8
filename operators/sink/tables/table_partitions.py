"""Splits rows by the values of the partition columns of a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.sink.tables.partition_fields import PartitionField

_NULL = "__HIVE_DEFAULT_PARTITION__"

_NAME_BYTES = 255
"""The longest name of a directory, in bytes, on most file systems."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows with the same values in the partition fields.

    Attributes:
        values: The values as text, by field; None for a missing value.
        indices: The rows, in order; None for all of them.
    """

    values: dict[PartitionField, str | None]
    indices: npt.NDArray[np.int64] | None

    @property
    def directory(self) -> str:
        """A directory below the table, from which some readers take the values: name=value, with escapes.

        Raises:
            ValueError: A value is too long for a name, or is the text that stands for a missing one there.
        """
        return "/".join(_named(field.name, text) for field, text in self.values.items())


def partitions_of(
    rows: pa.RecordBatch, fields: Sequence[PartitionField], *, empty_is_null: bool
) -> Iterator[PartitionRows]:
    """Split rows by their values in some partition fields.

    Args:
        rows: The rows; a column that they lack counts as missing values.
        fields: The fields.
        empty_is_null: Whether an empty text is a missing value, as it is where readers take it from a directory's name.

    Raises:
        ValueError: A column has a type by which no table is partitioned.
    """
    if not fields:
        yield PartitionRows({}, None)
        return
    columns = {field: _values(rows, field) for field in fields}
    codes = np.zeros(rows.num_rows, np.int64)
    for column in columns.values():
        encoded = column.dictionary_encode(null_encoding="encode")
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        first = int(order[start])
        values = {field: partition_text(column[first].as_py(), field.column) for field, column in columns.items()}
        if empty_is_null:
            values = {field: text or None for field, text in values.items()}
        yield PartitionRows(values, None if len(starts) == 1 else order[start:end])


def _values(rows: pa.RecordBatch, field: PartitionField) -> pa.Array:
    if field.column not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.string())
    return field.values(rows.column(field.column))


def require_partition_type(column: pa.Field) -> None:
    """Refuse a column for whose values partition_text() has no text.

    Raises:
        ValueError: The column has a floating-point, binary or nested type.
    """
    if any(test(column.type) for test in (pa.types.is_floating, pa.types.is_binary, pa.types.is_nested)):
        raise _type_error(column.name, column.type)


def partition_text(value: Any, name: str) -> str | None:
    """A value of a partition column as tables keep it.

    Raises:
        ValueError: Tables are not partitioned by such values.
    """
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(" ", "microseconds")
            return text if value.tzinfo is None else f"{text.replace(' ', 'T')}Z"
        case datetime.date():
            return value.isoformat()
        case float() | bytes() | list() | dict():
            raise _type_error(name, type(value).__name__)
        case _:
            return str(value)


def _type_error(name: str, kind: object) -> ValueError:
    return ValueError(f"a table cannot be partitioned by column '{name}', whose values are {kind}")


def _named(name: str, text: str | None) -> str:
    if text == _NULL:
        raise ValueError(
            f"a value of column '{name}', by which the table is partitioned, is {text}, which means a missing "
            "value in names of directories"
        )
    found = f"{quote(name, safe='')}={_NULL if text is None else quote(text, safe='')}"
    if len(found) > _NAME_BYTES:
        raise ValueError(f"a value of column '{name}', by which the table is partitioned, is too long: {text}")
    return found
