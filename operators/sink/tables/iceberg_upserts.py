"""Upserts into an Iceberg table: data files that hold keys are rewritten; only the driver imports it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
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
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

from dagflow.storage.location import join
from dagflow.storage.pending import PendingFile
from operators.sink.tables.catalog_table import DATA
from operators.sink.tables.iceberg_files import data_file, require_no_deletes
from operators.sink.tables.iceberg_scan import WholeScan
from operators.sink.tables.nested_types import with_types
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_partitions import PartitionRows, partitions_of
from operators.sink.tables.table_statistics import facts_of, names_with_nan
from operators.sink.tables.upserted_rows import rows_of_other_keys

_HELD_BYTES = 128 << 20
"""Bytes of rows that are held in memory at most before they are written, beside those of one file."""


def upsert(
    name: str,
    transaction: Transaction,
    rows: pa.Table,
    keys: Sequence[str],
    partition_by: Sequence[PartitionField],
    summary: Mapping[str, str],
) -> None:
    """Replace the rows that have the keys of the given ones, and add the others, in one snapshot.

    Args:
        name: The table's name in messages.
        transaction: A transaction on the table as it was read; it is not committed here.
        rows: The rows, each key once, with the columns of the table.
        keys: The columns that are compared; a null equals a null.
        partition_by: The fields that the table is partitioned by, all of columns of the keys.
        summary: Summary of the snapshot.

    Raises:
        DagflowError: The table has delete files.
    """
    metadata, io = transaction.table_metadata, transaction._table.io
    manifests = require_no_deletes(name, metadata.current_snapshot(), io)
    given = rows.select(list(keys))
    found, removed, files = _range_of(given), [], _NewFiles(metadata, io, partition_by, rows.schema)
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
    transaction: Transaction,
    removed: Iterable[DataFile],
    added: Iterable[DataFile],
    summary: Mapping[str, str],
) -> None:
    """Replace data files by others, in one snapshot; the first one of a table only adds files.

    Args:
        transaction: The transaction; it is not committed here.
        removed: The files to remove.
        added: The files to add.
        summary: Summary of the snapshot.
    """
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
    """Writes rows into data files, each of rows with the same values in the partition columns.

    Args:
        metadata: The table, with all of its columns.
        io: Reaches its files.
        partition_by: The fields that it is partitioned by.
        columns: The columns of the files: all of the table's, in plain types.
    """

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
        """Append rows."""
        self._held.append(with_types(rows, self._columns))
        if sum(each.nbytes for each in self._held) >= _HELD_BYTES:
            self._write()

    def finish(self) -> list[DataFile]:
        """The files, as entries of a manifest."""
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
        facts = facts_of("", rows.schema, rows.schema, footers[0], values, {}, names_with_nan(rows))
        return data_file(self._metadata, PendingFile(url, "", size_bytes, len(rows), facts=facts), url)
