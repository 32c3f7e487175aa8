"""Records as rows of Parquet."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.properties import Size
from dagflow.api.records import RecordBatch
from dagflow.late import parquet as pq
from operators.sink.columns.table_columns import with_held_names
from operators.sink.columns.table_names import TableNames, lower_case
from operators.sink.formats.base import ArrowFile, ChunkedEncoder, FileEncoder, FileStream, SinkFormat

_ZSTD_LEVEL = 1
"""Compared with level 3, writing takes an eighth to a quarter less time, and files of the benchmarks' columns are up to
4 % larger."""

_FOOTER_BYTES = 600
_FOOTER_BYTES_PER_COLUMN = 60
_FOOTER_BYTES_PER_CHUNK = 140
"""Bytes of a footer, about, and of each column in it, and each column of a row group."""

_ROWS_PER_SAMPLED, _LEAST_SAMPLED, _MOST_SAMPLED = 16, 1000, 20_000
"""Rows for each that is looked at, so that looking costs next to nothing, and how many of these there are."""

_DISTINCT_SHARE = 0.8
"""The share of distinct values in the sample up to which a column has a dictionary; see _repetitive()."""


class ParquetSink(SinkFormat):
    """Rows of Parquet with the types that the columns have: decimals, dates, times and timestamps with or without a
    zone, bytes, lists, structs and maps; raw records are a column `record` of bytes.

    All rows of a file have one schema; records with another one go to files of their own. A column of nothing but
    nulls goes with any type.
    """

    name: ClassVar[str] = "parquet"

    compression: Annotated[
        Literal["zstd", "snappy", "gzip", "none"], Field(description="compression of the pages of columns")
    ] = "zstd"
    row_group_bytes: Annotated[Size, Field(ge=1, description="maximum bytes of rows in a row group, in memory")] = (
        64 << 20
    )

    @property
    def extension(self) -> str:
        """The same for all compressions: the file itself says which."""
        return ".parquet"

    def held(self, batch: RecordBatch) -> RecordBatch:
        return with_held_names(batch, lambda: TableNames(lower_case))

    def layout_of(self, batch: RecordBatch) -> pa.Schema:
        """Names and types of the columns; other parts of a schema differ from batch to batch."""
        return pa.schema([pa.field(field.name, field.type) for field in batch.to_arrow().schema])

    def fits(self, batch: RecordBatch, layout: pa.Schema) -> bool:
        """Whether a batch has the file's columns; one of nothing but nulls is of any type."""
        schema = batch.to_arrow().schema
        return schema.names == layout.names and all(
            given == held or pa.types.is_null(given) for given, held in zip(schema.types, layout.types, strict=True)
        )

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        return ParquetEncoder(self, stream, self.layout_of(batch), max_bytes)


class ParquetEncoder(ChunkedEncoder):
    """Writes one Parquet file, one row group after the other."""

    def __init__(self, format: ParquetSink, stream: FileStream, schema: pa.Schema, max_bytes: int | None) -> None:
        self._file = ArrowFile(stream)
        super().__init__(stream, format.row_group_bytes, max_bytes)
        if not schema.names:
            raise ValueError("records without columns cannot be written as Parquet")
        self.schema = schema
        self.footers: list[pq.FileMetaData] = []
        self._row_groups = 0
        self._compression = format.compression
        self._writer: Any = None

    def measure(self, rows: pa.RecordBatch, room: int) -> tuple[int, int]:
        size_bytes = max(1, rows.nbytes)
        if size_bytes <= room:
            return rows.num_rows, size_bytes
        count = min(rows.num_rows, max(1, -(-rows.num_rows * room // size_bytes)))
        return count, -(-size_bytes * count // rows.num_rows)

    def write_chunk(self, held: list[pa.RecordBatch]) -> None:
        """Write a row group; none where there are no rows."""
        tables = [pa.Table.from_batches([rows]).cast(self.schema) for rows in held]
        rows = pa.concat_tables(tables) if tables else self.schema.empty_table()
        if self._writer is None:
            self._writer = self._open(rows)
        if held:
            self._writer.write_table(rows)
            self._row_groups += 1

    def _open(self, rows: pa.Table) -> Any:
        return pq.ParquetWriter(
            self._file,
            self.schema,
            compression=self._compression,
            compression_level=_ZSTD_LEVEL if self._compression == "zstd" else None,
            use_dictionary=_repetitive(rows),
            # As Iceberg demands, and Spark does. Such a column takes about half of the time, and as many bytes.
            store_decimal_as_integer=True,
            metadata_collector=self.footers,
        )

    def end_bytes(self) -> int:
        columns = len(self.schema.names)
        return _FOOTER_BYTES + columns * (_FOOTER_BYTES_PER_COLUMN + _FOOTER_BYTES_PER_CHUNK * self._row_groups)

    def notes(self) -> dict[str, str]:
        """What the footer says beside; called when all rows are written."""
        return {}

    def finish(self) -> None:
        super().finish()
        if notes := self.notes():
            self._writer.add_key_value_metadata(notes)
        self._writer.close()

    def __del__(self) -> None:
        # pyarrow ends a file when its writer is deleted; the file of a task that failed must stay incomplete.
        self._file.close()


def _repetitive(rows: pa.Table) -> list[str] | bool:
    """The columns for which a dictionary pays, by the first rows of a file; True for all of them.

    A dictionary of nearly distinct values is full before the row group ends, and was built in vain: numbers written so
    took 1.4 to 1.5 times the CPU and 1.1 to 1.5 times the space.
    """
    sample = rows.slice(0, min(rows.num_rows // _ROWS_PER_SAMPLED, _MOST_SAMPLED))
    if sample.num_rows < _LEAST_SAMPLED or any(map(pa.types.is_nested, rows.schema.types)):
        return True
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if len(column.unique()) <= _DISTINCT_SHARE * sample.num_rows
    ]
