"""Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.storage.python_file import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats.base import BATCH_RECORDS
from operators.reader.scanning.tabular import BATCH_BYTES, RowUnit, TableFile, Tabular, tiled


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
        # Importing it takes a tenth of a second.
        import pyarrow.parquet as pq

        self.file = pq.ParquetFile(PythonFile(source, is_holder=False), metadata=metadata)
        self.schema = self.file.schema_arrow
        self.all_units = units or _units_of(self.file.metadata, source.size_bytes)

    def units(self, block: BlockMetadata) -> Sequence[RowUnit]:
        """The row groups."""
        return [unit for unit in self.all_units if block.start <= unit.start < block.end]

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a row group, of which few are held if they are long."""
        group = self.file.metadata.row_group(unit.index)
        count = max(1, min(BATCH_RECORDS, BATCH_BYTES * unit.rows // max(1, group.total_byte_size)))
        yield from self.file.iter_batches(count, row_groups=[unit.index], columns=names, use_threads=False)


def _units_of(metadata: Any, size_bytes: int) -> list[RowUnit]:
    """The row groups, by their share of the file.

    pyarrow ends the process where it is asked for the place of a group, and the footer is damaged.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    ends = list(itertools.accumulate(max(1, group.total_byte_size) for group in groups))
    starts = [size_bytes * before // ends[-1] for before in (0, *ends[:-1])] if ends else []
    return tiled(starts, [group.num_rows for group in groups], size_bytes)
