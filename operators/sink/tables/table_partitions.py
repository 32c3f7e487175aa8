"""Splits rows by the values of the partition columns of a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.storage.partition_names import NAME_BYTES, NO_VALUE, partition_name, shortened
from operators.sink.tables.partition_fields import PartitionField


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
        """A directory below the table, from which some readers take the values: name=value, with escapes."""
        return "/".join(_fitting(partition_name(field.name, text)) for field, text in self.values.items())


def partitions_of(rows: pa.RecordBatch, fields: Sequence[PartitionField]) -> Iterator[PartitionRows]:
    """Split rows by their values in some partition fields.

    Args:
        rows: The rows; a column that they lack counts as missing values.
        fields: The fields.

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


def _fitting(name: str) -> str:
    """A name of a directory, or a shorter one from which no reader has to take the value; see unheld_values()."""
    return name if len(name.encode()) <= NAME_BYTES else shortened(name, name.encode())


def with_empty_as_null(
    rows: pa.RecordBatch, fields: Sequence[PartitionField], required: Iterable[str], *, in_files: bool
) -> pa.RecordBatch:
    """Rows with null for empty texts that names of directories do not distinguish from null.

    Args:
        rows: The rows.
        fields: The partition fields.
        required: Columns that allow no null; their texts stay.
        in_files: Whether the data files hold the values; their texts stay.
    """
    names = set() if in_files else {field.column for field in fields} - {*required}
    for name in names & {*rows.schema.names}:
        position = rows.schema.get_field_index(name)
        column, field = rows.column(position), rows.schema.field(position)
        if pa.types.is_string(field.type):
            column = pc.if_else(pc.equal(column, ""), pa.scalar(None, field.type), column)
            rows = rows.set_column(position, field, column)
    return rows


def unheld_values(
    rows: pa.RecordBatch, fields: Sequence[PartitionField], *, in_files: bool
) -> dict[str, dict[int, str]]:
    """The values by which rows cannot be partitioned, as they would come back changed, or not at all.

    Args:
        rows: The rows.
        fields: The partition fields.
        in_files: Whether the data files hold the values. Otherwise, readers take them from the names of directories.

    Returns:
        The reasons by row, as clauses about the value, by column.
    """
    unheld: dict[str, dict[int, str]] = {}
    for field in (field for field in fields if field.column in rows.schema.names):
        given = rows.column(field.column)
        column = field.values(given)
        encoded = column.dictionary_encode()
        reasons = {code: _why_not(field, value, in_files=in_files) for code, value in enumerate(encoded.dictionary)}
        codes = pa.array([code for code, reason in reasons.items() if reason], pa.int32())
        lost = pc.or_(pc.is_in(encoded.indices, codes), pc.and_(given.is_valid(), column.is_null()))
        for row in np.flatnonzero(lost.to_numpy(zero_copy_only=False)).tolist():
            code = encoded.indices[row].as_py()
            reason = f"has no value in {field}" if code is None else reasons[code]
            unheld.setdefault(field.column, {}).setdefault(row, reason)
    return unheld


def _why_not(field: PartitionField, value: pa.Scalar, *, in_files: bool) -> str:
    """Why a table cannot be partitioned by a value, as a clause about it; "" if it can."""
    try:
        given = value.as_py()
    except (ValueError, OverflowError):
        return "is outside of the years 1 to 9999"
    if in_files or not isinstance(given, str):
        return ""
    if given in ("", NO_VALUE):
        return f"is {given or 'empty'}, which means null in names of directories"
    is_short = len(partition_name(field.name, given).encode()) <= NAME_BYTES
    return "" if is_short else f"makes the name of a directory of more than {NAME_BYTES} bytes"
