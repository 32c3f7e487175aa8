"""Upserts into an Iceberg table: data files that hold keys are rewritten; only the driver imports it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    ArrowScan,
    _combine_positional_deletes,
    _get_column_projection_values,
    _get_file_format,
    pyarrow_to_schema,
)
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles
from pyiceberg.types import ListType, MapType

from dagflow.late import compute as pc
from dagflow.late import parquet as pq
from dagflow.storage.location import join
from dagflow.storage.pending import PendingFile
from operators.sink.columns.nested_types import with_types
from operators.sink.tables.iceberg_files import data_file, require_no_deletes
from operators.sink.tables.iceberg_table import DATA
from operators.sink.tables.partition_fields import PartitionField, PartitionRows, partitions_of
from operators.sink.tables.table_files import FactOrigin, names_with_nan, rows_of_other_keys, with_bounds

_HELD_BYTES = 128 << 20
"""Bytes of rows that are held in memory at most before they are written, beside those of one file."""


def upsert(
    name: str,
    transaction: Transaction,
    rows: pa.Table,
    gone: pa.Table,
    keys: Sequence[str],
    partition_by: Sequence[PartitionField],
    summary: Mapping[str, str],
) -> None:
    """Replace the rows that have the keys of the given ones, and add the others, in one snapshot, uncommitted here.

    The rows have each key once, and the columns of the table; a null equals a null. Rows with the keys that are gone
    leave. The table is partitioned by columns of the keys.
    """
    metadata, io = transaction.table_metadata, transaction._table.io
    manifests = require_no_deletes(name, metadata.current_snapshot(), io)
    given = pa.concat_tables([rows.select(list(keys)), gone])
    found, removed, files = _range_of(given), [], _NewFiles(metadata, io, partition_by, rows.schema)
    if len(rows):
        files.add(rows)
    # Without residuals, for which pyiceberg compares partition values that are null.
    entries = ManifestGroupPlanner(metadata, io, found).plan_manifest_entries(manifests)
    for entry in itertools.chain.from_iterable(entries):
        there = entry.data_file
        kept = rows_of_other_keys(_read(metadata, io, there, keys), given)
        if len(kept) < there.record_count:
            removed.append(there)
            if len(kept):
                files.add(_read(metadata, io, there).take(pa.array(kept)))
    replace_files(transaction, removed, files.finish(), summary)


def replace_files(
    transaction: Transaction, removed: Iterable[DataFile], added: Iterable[DataFile], summary: Mapping[str, str]
) -> None:
    """Replace data files by others, in one snapshot, uncommitted here; the first one of a table only adds files."""
    is_first = transaction.table_metadata.current_snapshot() is None
    operation = Operation.APPEND if is_first else Operation.OVERWRITE
    io = transaction._table.io
    with _Replacement(operation, transaction, io, snapshot_properties=dict(summary)) as replacement:
        for each in removed:
            replacement.delete_data_file(each)
        for each in added:
            replacement.append_data_file(each)


class _Replacement(_OverwriteFiles, _MergeAppendFiles):
    """A snapshot that replaces files, and merges manifests as one that adds files does.

    pyiceberg keeps the manifests of removed files, and those of each commit: each commit would take longer than the one
    before.
    """

    def _existing_manifests(self) -> list[ManifestFile]:
        return [each for each in super()._existing_manifests() if each.has_added_files() or each.has_existing_files()]


def _range_of(keys: pa.Table) -> BooleanExpression:
    """A condition that is true of all rows with some keys, and of few others: their bounds."""
    found: BooleanExpression = AlwaysTrue()
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        within: BooleanExpression = AlwaysTrue()
        term = Reference(name)
        if column.null_count == len(column):
            within = IsNull(term=term)
        elif not pa.types.is_boolean(column.type):
            if pa.types.is_temporal(column.type):
                # As Iceberg counts them: Python lacks some of these values.
                column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
            least, greatest = (literal(each) for each in pc.min_max(column).as_py().values())
            within = And(GreaterThanOrEqual(term=term, value=least), LessThanOrEqual(term=term, value=greatest))
            within = Or(within, IsNull(term=term)) if column.null_count else within
        found = And(found, within)
    return found


def _read(metadata: TableMetadata, io: FileIO, file: DataFile, names: Sequence[str] = ()) -> pa.Table:
    """The rows of a data file with all columns of the table, or some of them."""
    schema: Schema = metadata.schema().select(*names) if names else metadata.schema()
    found = WholeScan(metadata, io, schema).to_table([FileScanTask(file)])
    return found.select(list(names)) if names else found


class _NewFiles:
    """Writes rows into data files, each of rows with the same values in the partition columns."""

    def __init__(
        self, metadata: TableMetadata, io: FileIO, partition_by: Sequence[PartitionField], columns: pa.Schema
    ) -> None:
        self._metadata = metadata
        self._io = io
        self._partition_by = partition_by
        self._columns = columns
        self._root = metadata.properties.get(TableProperties.WRITE_DATA_PATH) or join(metadata.location, DATA)
        self._held: list[pa.Table] = []
        self._files: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        self._held.append(with_types(rows, self._columns))
        if sum(each.nbytes for each in self._held) >= _HELD_BYTES:
            self._write()

    def finish(self) -> list[DataFile]:
        if self._held:
            self._write()
        return self._files

    def _write(self) -> None:
        held = pa.concat_tables(self._held).combine_chunks()
        self._held.clear()
        for rows in held.to_batches():
            for part in partitions_of(rows, self._partition_by):
                chosen = rows if part.indices is None else rows.take(pa.array(part.indices))
                self._files.append(self._written(chosen, part))

    def _written(self, rows: pa.RecordBatch, part: PartitionRows) -> DataFile:
        url = join(self._root, part.directory, f"part-{os.urandom(16).hex()}.parquet")
        footers: list[pq.FileMetaData] = []
        with self._io.new_output(url).create() as stream:
            with pq.ParquetWriter(stream, rows.schema, compression="zstd", metadata_collector=footers) as writer:
                writer.write_batch(rows)
            size_bytes = stream.tell()
        values = {str(field): text for field, text in part.values.items()}
        facts = FactOrigin("").facts(rows.schema, values)
        facts = with_bounds(facts, rows.schema, footers[0], names_with_nan(rows))
        return data_file(self._metadata, PendingFile(url, "", size_bytes, len(rows), facts=facts), url)


class WholeScan(ArrowScan):
    """Reads all rows of data files, with the current columns of a table.

    pyiceberg's own scan turns null lists of structs into empty ones, and null maps to structs as well
    (`ArrowProjectionVisitor` of pyiceberg 0.12).
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, columns: Schema) -> None:
        super().__init__(metadata, io, columns, AlwaysTrue())

    def _record_batches_from_scan_tasks_and_deletes(
        self, tasks: Iterable[FileScanTask], deletes_per_file: dict[str, list[pa.ChunkedArray]]
    ) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from self._batches(task, deletes_per_file.get(task.file.file_path, []))

    def _batches(self, task: FileScanTask, deletes: list[pa.ChunkedArray]) -> Iterator[pa.RecordBatch]:
        table, file = self._table_metadata, task.file
        keeps_nanoseconds = table.format_version > 2  # earlier versions of Iceberg have microseconds only
        if self._downcast_ns_timestamp_to_us is not None:
            keeps_nanoseconds = not self._downcast_ns_timestamp_to_us
        with self._io.new_input(file.file_path).open() as stream:
            fragment = _get_file_format(file.file_format, pre_buffer=True).make_fragment(stream)
            there = pyarrow_to_schema(
                fragment.physical_schema,
                table.name_mapping(),
                downcast_ns_timestamp_to_us=not keeps_nanoseconds,
                format_version=table.format_version,
            )
            projection = _Projection(
                there,
                downcast_ns_timestamp_to_us=not keeps_nanoseconds,
                projected_missing_fields=_get_column_projection_values(
                    file, self._projected_schema, table.schema(), table.specs().get(file.spec_id), there.field_ids
                ),
                allow_timestamp_tz_mismatch=True,
            )
            # Also a column none of whose fields the table still has: its nulls and lengths count.
            names = [each.name for each in there.fields if each.field_id in self._projected_schema.field_ids]
            scanner = ds.Scanner.from_fragment(fragment, schema=fragment.physical_schema, columns=names)
            first = 0
            for batch in scanner.to_batches():
                end = first + len(batch)
                kept = batch.take(_combine_positional_deletes(deletes, first, end)) if deletes else batch
                first = end
                if len(kept):
                    rows = visit_with_partner(self._projected_schema, kept, projection, ArrowAccessor(there))
                    yield pa.RecordBatch.from_struct_array(rows)


class _Projection(ArrowProjectionVisitor):
    """Projects the columns of a file to those of a table; lists and maps are built from their projected elements."""

    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        if list_array is None or value_array is None:
            return None
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        if isinstance(list_array, pa.LargeListArray):
            made, kind = pa.LargeListArray, pa.large_list(element)
        else:
            made, kind = pa.ListArray, pa.list_(element)
        return made.from_arrays(_offsets(list_array), values, type=kind, mask=list_array.is_null())

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        if map_array is None or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        kind = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        return pa.MapArray.from_arrays(_offsets(map_array), keys, values, type=kind, mask=map_array.is_null())


def _offsets(array: Any) -> pa.Array:
    """Offsets of the values of each list or map of an array, and of the end of the last one."""
    if isinstance(array, pa.FixedSizeListArray):
        count = array.type.list_size
        return pa.array((np.arange(len(array) + 1) + array.offset) * count, pa.int32())
    # A copy, because Arrow accepts no mask with offsets that are a slice.
    return pa.array(array.offsets.to_numpy(zero_copy_only=False), array.offsets.type)
