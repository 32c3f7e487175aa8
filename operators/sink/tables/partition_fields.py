"""The fields that tables are partitioned by: columns, and transforms of them as Iceberg has them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.location import NAME_BYTES, NO_VALUE, partition_name, shortened

IDENTITY = "identity"

_TRANSFORMED = re.compile(r"(year|month|day|hour)\((.+)\)|(bucket|truncate)\(\s*([0-9]+)\s*,\s*(.+)\)")
_HOUR_US = 3_600_000_000
_EPOCH_YEAR = 1970


@frozen
class PartitionField:
    """A column, or a transform of one.

    Attributes:
        transform: identity, year, month, day, hour, bucket or truncate.
        width: The number of buckets, or the width to which values are cut; 0 for other transforms.
    """

    column: str
    transform: str = IDENTITY
    width: int = 0

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """The field of a text such as paid, day(placed), bucket(16, order) or truncate(4, note)."""
        found = _TRANSFORMED.fullmatch(text.strip())
        if found is None:
            return cls(text)
        if found[1]:
            return cls(found[2].strip(), found[1])
        if not int(found[4]):
            raise ValueError(f"partition_by: the number in {text!r} must be at least 1")
        return cls(found[5].strip(), found[3], int(found[4]))

    def __str__(self) -> str:
        if self.transform == IDENTITY:
            return self.column
        return f"{self.transform}({self.width}, {self.column})" if self.width else f"{self.transform}({self.column})"

    @property
    def name(self) -> str:
        """The name of the field in directories and in Iceberg's metadata."""
        if self.transform == IDENTITY:
            return self.column
        suffix = {"bucket": f"bucket_{self.width}", "truncate": f"trunc_{self.width}"}.get(self.transform)
        return f"{self.column}_{suffix or self.transform}"

    def values(self, column: pa.Array) -> pa.Array:
        """The partition values of rows with these values; null for a number that truncate has no value for."""
        if self.transform == IDENTITY:
            return column
        takes = "text, bytes, whole numbers, dates or timestamps"
        if self.transform == "bucket":
            found = _bucket(column, self.width)
        elif self.transform == "truncate":
            found, takes = _truncate(column, self.width), "text or whole numbers"
        elif self.transform == "hour":
            found, takes = _hour(column), "a timestamp"
        else:
            found, takes = _calendar(column, self.transform), "a timestamp or a date"
        if found is None:
            raise ValueError(f"partition_by: {self} takes {takes}, and '{self.column}' is of {type_name(column.type)}")
        return found


def _calendar(column: pa.Array, unit: str) -> pa.Array | None:
    """Years or months since 1970; days as dates."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    elif not pa.types.is_date32(column.type):
        return None
    if unit == "day":
        return pc.floor_temporal(column, unit="day").cast(pa.date32())
    years = pc.subtract(pc.year(column), _EPOCH_YEAR)
    return years if unit == "year" else pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))


def _hour(column: pa.Array) -> pa.Array | None:
    if not pa.types.is_timestamp(column.type):
        return None
    return _of_numbers(column.cast(pa.timestamp("us")).cast(pa.int64()), lambda micros: micros // _HOUR_US)


def _truncate(column: pa.Array, width: int) -> pa.Array | None:
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    if not pa.types.is_integer(column.type):
        return None
    # The next lower multiple of the width may be less than the type holds.
    least = -(1 << (column.type.bit_width - 1))
    numbers = column.cast(pa.int64())
    has_room = pc.greater_equal(numbers, least + -least % width)
    return _of_numbers(pc.if_else(has_room, column, None), lambda numbers: numbers - numbers % width)


def _bucket(column: pa.Array, count: int) -> pa.Array | None:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = column.cast(pa.large_binary())
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        numbers = column.cast(pa.int32()) if pa.types.is_date32(kind) else column
        numbers = numbers.cast(pa.int64()).fill_null(0)
        data = pa.Array.from_buffers(pa.binary(8), len(numbers), [None, numbers.buffers()[1]], offset=numbers.offset)
        data = data.cast(pa.large_binary())
    else:
        return None
    hashes = murmur3(data.fill_null(b"")) & np.uint32(0x7FFFFFFF)
    return pa.array((hashes % np.uint32(count)).astype(np.int32), mask=column.is_null().to_numpy(zero_copy_only=False))


def _of_numbers(column: pa.Array, change: Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]) -> pa.Array:
    """Whole numbers after a change, with their former type and nulls."""
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
    missing = column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(change(numbers), mask=missing).cast(column.type)


def taken_by_partition(name: str, field: PartitionField) -> dict[str, str]:
    """The name of a partition field of a table, with why no column may have it; for TableShape."""
    return {name: f"a column '{name}' and be partitioned by {field}, which it calls '{name}', too"}


_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3(values: pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """The 32-bit hash of each value, with seed 0; values are without nulls.

    Source:
        MurmurHash3_x86_32 (Appleby), as Appendix B of Iceberg's specification requires; all values at once, word by
        word.
    """
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    hashes = np.zeros(len(values), np.uint32)
    with np.errstate(over="ignore"):
        for word in range(int(lengths.max(initial=0)) // 4):
            chosen = np.flatnonzero(lengths >= 4 * word + 4)
            at = starts[chosen] + 4 * word
            mixed = hashes[chosen] ^ _scrambled(_number(data, at, 4))
            hashes[chosen] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        for rest in (1, 2, 3):
            chosen = np.flatnonzero(lengths % 4 == rest)
            at = starts[chosen] + lengths[chosen] - rest
            hashes[chosen] ^= _scrambled(_number(data, at, rest))
        hashes ^= lengths.astype(np.uint32)
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return hashes ^ (hashes >> np.uint32(16))


def _number(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.uint32]:
    """The numbers that some bytes from each position are, the lowest first."""
    number = np.zeros(len(at), np.uint32)
    for index in range(count):
        number |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return number


def _scrambled(word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotated(word * _C1, 15) * _C2


def _rotated(word: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


@frozen
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
    """Split rows by their values in some partition fields; in a column that they lack, these are missing."""
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
    """Refuse a column for whose values partition_text() has no text."""
    if any(test(column.type) for test in (pa.types.is_floating, pa.types.is_binary, pa.types.is_nested)):
        raise _type_error(column.name, column.type)


def partition_text(value: Any, name: str) -> str | None:
    """A value of a partition column as tables keep it."""
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
    return ValueError(f"a table cannot be partitioned by column '{name}', whose values are {type_name(kind)}")


def _fitting(name: str) -> str:
    """A name of a directory, or a shorter one from which no reader has to take the value; see partitionable()."""
    return name if len(name.encode()) <= NAME_BYTES else shortened(name, name.encode())


def partitionable(
    rows: pa.RecordBatch, fields: Sequence[PartitionField], required: Iterable[str], *, in_files: bool
) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
    """Rows by which a table can be partitioned, and the values by which it cannot.

    Unless the data files hold the values, readers take them from the names of directories.

    Returns:
        The rows, with null for an empty text that would come back as null, except in required columns; and by column
        and row why a value would come back changed, or not at all.
    """
    unheld: dict[str, dict[int, str]] = {}
    names = set() if in_files else {field.column for field in fields} - {*required}
    for field in (field for field in fields if field.column in rows.schema.names):
        given = rows.column(field.column)
        if field.column in names and pa.types.is_string(given.type):
            given = pc.if_else(pc.equal(given, ""), pa.scalar(None, given.type), given)
            position = rows.schema.get_field_index(field.column)
            rows = rows.set_column(position, rows.schema.field(position), given)
        column = field.values(given)
        encoded = column.dictionary_encode()
        reasons = {code: _why_not(field, value, in_files=in_files) for code, value in enumerate(encoded.dictionary)}
        codes = pa.array([code for code, reason in reasons.items() if reason], pa.int32())
        lost = pc.or_(pc.is_in(encoded.indices, codes), pc.and_(given.is_valid(), column.is_null()))
        for row in np.flatnonzero(lost.to_numpy(zero_copy_only=False)).tolist():
            code = encoded.indices[row].as_py()
            reason = f"has no value in {field}" if code is None else reasons[code]
            unheld.setdefault(field.column, {}).setdefault(row, reason)
    return rows, unheld


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
