"""Parquet."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from typing_extensions import override

from dagflow.late import parquet as pq
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.columns.exact_casts import plain_schema
from operators.reader.formats.base import BATCH_RECORDS
from operators.reader.scanning.tabular import BATCH_BYTES, RowUnit, TableFile, Tabular, longest_in, tiled

_TIME_UNIT = re.compile("timeUnit=(milli|micro|nano)seconds")
_ARROW_UNITS = {"milli": "ms", "micro": "us", "nano": "ns"}


class Parquet(Tabular):
    """The rows of Parquet files. A block reads the row groups that begin in its share of the file.

    Of the columns of the file, only those are read that columns names.
    """

    name: ClassVar[str] = "parquet"
    title: ClassVar[str] = "Parquet"
    unit_name: ClassVar[str] = "row group"

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the footer, unless it is known."""
        table = ParquetTable(source, *(known or (None, None)))
        return table, (table.file.metadata, table.all_units)


class ParquetTable(TableFile):
    """An open Parquet file."""

    def __init__(self, source: ByteSource, metadata: Any, units: Sequence[RowUnit] | None) -> None:
        self._bytes = PythonFile(source, is_holder=False)
        self.file = pq.ParquetFile(self._bytes, metadata=metadata)
        self.schema = self.file.schema_arrow
        self.all_units = units or _units_of(self.file.metadata, source.size_bytes)

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, of which few are held if they are long."""
        group = self.file.metadata.row_group(unit.index)
        each_bytes = max(1, group.total_byte_size // unit.rows, self._repeated_bytes(unit, names))
        count = max(1, min(BATCH_RECORDS, BATCH_BYTES // each_bytes))
        yield from self.file.iter_batches(count, row_groups=[unit.index], columns=names, use_threads=False)

    def _repeated_bytes(self, unit: RowUnit, names: Sequence[str] | None) -> int:
        """Bytes that a row may have of dictionaries: the file has a long text once, and every row may have it."""
        group = self.file.metadata.row_group(unit.index)
        columns = [group.column(index) for index in range(group.num_columns)]
        repeating = [
            column
            for column in columns
            if column.physical_type == "BYTE_ARRAY"
            and column.has_dictionary_page
            and column.total_uncompressed_size * column.num_values > BATCH_BYTES
            and (names is None or column.path_in_schema.partition(".")[0] in names)
        ]
        if not repeating:
            return 0
        paths = [column.path_in_schema for column in repeating]
        file = pq.ParquetFile(self._bytes, metadata=self.file.metadata, read_dictionary=paths)
        first = next(file.iter_batches(1, row_groups=[unit.index], columns=paths, use_threads=False))
        values: int = max(column.num_values for column in repeating)
        return max(map(longest_in, first.columns)) * -(-values // unit.rows)

    @override
    def bounds(self, unit: RowUnit) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        """The bounds in the statistics of a row group."""
        group = self.file.metadata.row_group(unit.index)
        plain, found = plain_schema(self.schema), dict[str, tuple[Any, Any]]()
        for index in range(group.num_columns):
            column = group.column(index)
            name, statistics = column.path_in_schema, column.statistics
            if plain.names.count(name) == 1 and statistics is not None and statistics.has_min_max:
                bounds = _bounds_of(self.file.metadata.schema.column(index), statistics, plain.field(name).type)
                found |= {} if bounds is None else {name: bounds}
        if not found:
            return None
        columns = zip(*found.values(), strict=True)
        least, greatest = (pa.RecordBatch.from_arrays(list(arrays), names=[*found]) for arrays in columns)
        return least, greatest


def _bounds_of(column: Any, statistics: Any, kind: pa.DataType) -> tuple[Any, Any] | None:
    """The least and the greatest value, each as an array of the type; None for types whose bounds are not used."""
    types = pa.types
    if types.is_timestamp(kind):
        # As numbers: moments of Python have no nanoseconds.
        unit = _TIME_UNIT.search(str(column.logical_type))
        if unit is None or _ARROW_UNITS[unit[1]] != kind.unit or column.physical_type != "INT64":
            return None
        bounds = pa.array([statistics.min_raw, statistics.max_raw], pa.int64()).cast(kind)
        return bounds[:1], bounds[1:]
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    if not (numbers or types.is_string(kind) or types.is_date32(kind)):
        return None
    try:
        return pa.array([statistics.min], kind), pa.array([statistics.max], kind)
    except (pa.ArrowException, TypeError, OverflowError):
        return None


def _units_of(metadata: Any, size_bytes: int) -> list[RowUnit]:
    """The row groups, by their share of the file.

    pyarrow ends the process where it is asked for the place of a group, and the footer is damaged.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    ends = list(itertools.accumulate(max(1, group.total_byte_size) for group in groups))
    starts = [size_bytes * before // ends[-1] for before in (0, *ends[:-1])] if ends else []
    return tiled(starts, [group.num_rows for group in groups], size_bytes)
