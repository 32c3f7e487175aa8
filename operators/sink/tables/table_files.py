"""Data files of a table: Parquet files of one partition each, with facts for the table's transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.storage.file_facts import FileFacts
from operators.sink.file_sink import FileSink
from operators.sink.formats.base import FileStream
from operators.sink.formats.parquet import ParquetEncoder, ParquetSink
from operators.sink.tables.nested_types import with_columns
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_partitions import PartitionRows, partitions_of
from operators.sink.tables.table_statistics import facts_of, names_with_nan

_MAX_OPEN = 64
"""Number of files of different partitions that a task writes at the same time."""


def nothing() -> None:
    """No proposal."""


def stored_columns(schema: pa.Schema, partition_by: Sequence[str]) -> list[str]:
    """The columns that data files have: all except those that the table is partitioned by.

    Raises:
        ValueError: The table is partitioned by all columns.
    """
    stored = [name for name in schema.names if name not in partition_by]
    if not stored:
        raise ValueError("a table needs a column that it is not partitioned by")
    return stored


class TableFiles:
    """Writes rows into data files, each of rows with the same values in the partition columns.

    Guarantee: names of files are unique to the attempt; if they make files visible, they are the same in any attempt.

    Args:
        context: The writer's context.
        location: Location of the table's files.
        partition_by: The fields that the table is partitioned by.
        target_bytes: The size at which a file ends and the next one begins; None for no limit.
        stores_partition_columns: Whether files hold the columns that the table is partitioned by; otherwise such
            columns are in the facts alone. A column that rows lack is null.
        operator: The writer of the table, if another operator writes the files.
        is_named: Whether the names of files make them visible, instead of a transaction.
        causes: Why columns are new or wider, see FileFacts; read when a file ends.
        proposal: Gives what the driver decides about, see FileFacts; asked for when a file ends.
        keys: Columns by whose values the rows replace others; such files hold all columns, and rows of all partitions
            in their order.
    """

    def __init__(
        self,
        context: OperatorContext,
        location: str,
        partition_by: tuple[PartitionField, ...],
        target_bytes: int | None,
        *,
        stores_partition_columns: bool = False,
        operator: str = "",
        is_named: bool = False,
        causes: Mapping[str, str] | None = None,
        proposal: Callable[[], Any] = nothing,
        keys: Sequence[str] = (),
    ) -> None:
        stores_partition_columns = stores_partition_columns or bool(keys)
        self._keys = keys
        self._operator = "" if is_named else operator or context.operator
        self._partition_by = partition_by
        self._causes = {} if causes is None else causes
        self._proposal = proposal
        self._left_out = () if stores_partition_columns else tuple(field.column for field in partition_by)
        suffix = "" if is_named else f"-{os.urandom(8).hex()}"
        self._sink = FileSink(context, location, max_bytes=target_bytes, max_open=_MAX_OPEN, suffix=suffix)
        self._formats: dict[tuple[str, ...], _DataFileFormat] = {}
        self._columns: dict[str, pa.Field] = {}

    def begin_window(self, window_id: int) -> None:
        """Start the window's files."""
        self._formats.clear()
        self._columns.clear()
        self._sink.begin_window(window_id)

    def write(self, batch: RecordBatch) -> None:
        """Append rows.

        Raises:
            ValueError: The rows cannot be partitioned, or have no other column.
            StorageError: The store refused the rows.
        """
        rows = batch.to_arrow()
        if self._keys:
            # A file that was begun before does not go on behind another one: the last row of a key counts.
            self._columns.update((field.name, field) for field in rows.schema)
            rows = with_columns(rows, pa.schema(list(self._columns.values())))
            batch = RecordBatch(rows, origin=batch.origin)
        stored = stored_columns(rows.schema, self._left_out)
        for part in self._parts_of(rows):
            chosen = batch if part.indices is None else batch.take(part.indices)
            columns = chosen.to_arrow()
            fields = [columns.schema.field(name) for name in self._left_out if name in columns.schema.names]
            key = part.directory, *map(str, fields)
            values = {str(field): part.values.get(field) for field in self._partition_by}
            made = _DataFileFormat.of(self._operator, values, fields, self._causes, self._proposal, self._keys)
            format = self._formats.setdefault(key, made)
            self._sink.write(RecordBatch(columns.select(stored), origin=chosen.origin), format, part.directory)

    def _parts_of(self, rows: pa.RecordBatch) -> Iterable[PartitionRows]:
        # The order of rows with keys counts, and the driver partitions the merged rows.
        return [PartitionRows({}, None)] if self._keys else partitions_of(rows, self._partition_by)

    def end_window(self) -> None:
        """End the window's files."""
        self._sink.end_window()


class _DataFileFormat(ParquetSink):
    """Parquet files of one partition, which report their facts."""

    _operator: str
    _values: dict[str, str | None]
    _fields: list[pa.Field]
    _causes: Mapping[str, str]
    _proposal: Callable[[], Any]
    _keys: Sequence[str]

    @classmethod
    def of(
        cls,
        operator: str,
        values: dict[str, str | None],
        fields: list[pa.Field],
        causes: Mapping[str, str],
        proposal: Callable[[], Any],
        keys: Sequence[str],
    ) -> _DataFileFormat:
        """The format of a partition, from its values and their columns."""
        format = cls()
        format._operator, format._values, format._fields = operator, values, fields
        format._causes, format._proposal, format._keys = causes, proposal, keys
        return format

    def facts(self, stored: pa.Schema, footer: pq.FileMetaData, with_nan: Collection[str]) -> FileFacts:
        """The facts of a file with these columns, followed by those of the partition."""
        columns = pa.schema([*stored, *self._fields])
        facts = facts_of(self._operator, columns, stored, footer, self._values, self._causes, with_nan)
        return replace(facts, keys=[*self._keys], proposal=self._proposal())

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> _DataFileEncoder:
        """Begin a file."""
        return _DataFileEncoder(self, stream, self.layout_of(batch), max_bytes)


class _DataFileEncoder(ParquetEncoder):
    """Writes one data file."""

    def __init__(self, format: _DataFileFormat, stream: FileStream, schema: pa.Schema, max_bytes: int | None) -> None:
        super().__init__(format, stream, schema, max_bytes)
        self._format = format
        self._with_nan: set[str] = set()

    def write_chunk(self, held: list[pa.RecordBatch]) -> None:
        """Write a row group, and note facts that its statistics lack."""
        self._with_nan.update(*map(names_with_nan, held))
        super().write_chunk(held)

    def finish(self) -> None:
        """End the file, and report its facts."""
        super().finish()
        self.stream.facts = self._format.facts(self.schema, self.footers[0], self._with_nan)
