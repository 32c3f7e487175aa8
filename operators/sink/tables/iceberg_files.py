"""Data files as Iceberg's manifests describe them, from the facts that tasks report: the driver opens no file."""

from __future__ import annotations

import datetime as dt
import decimal
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from dagflow.errors import ANOTHER_TABLE, DagflowError
from dagflow.storage.location import name_of
from dagflow.storage.pending import PendingFile
from operators.sink.columns.nested_types import parts_of
from operators.sink.tables.merges import Changes, MergeHistory
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_target import facts_of_file


def data_file(metadata: TableMetadata, file: PendingFile, url: str) -> DataFile:
    facts, spec = facts_of_file(file), metadata.spec()
    fields = {field.name: field for field in metadata.schema().fields}

    def bounds(by_name: dict[str, Any]) -> dict[int, bytes]:
        return {fields[name].field_id: _bound(fields[name].field_type, value) for name, value in by_name.items()}

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=url,
        file_format=FileFormat.PARQUET,
        partition=partition_record(metadata, facts.partition.values()),
        record_count=file.records,
        file_size_in_bytes=file.size_bytes,
        column_sizes={},
        value_counts={fields[name].field_id: file.records for name in facts.nulls},
        null_value_counts={fields[name].field_id: count for name, count in facts.nulls.items()},
        nan_value_counts={},
        lower_bounds=bounds(facts.least),
        upper_bounds=bounds(facts.greatest),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=spec.spec_id,
    )


def partition_record(metadata: TableMetadata, texts: Iterable[str | None]) -> Record:
    """The values of a partition as Iceberg keeps them."""
    kinds = [field.field_type for field in metadata.spec().partition_type(metadata.schema()).fields]
    return Record(*(_value(kind, text) for kind, text in zip(kinds, texts, strict=True)))


def shown_files(name: str, handle: Table, wanted: Collection[str]) -> dict[str, DataFile]:
    """The files with some names that the newest snapshot of a table has, by their names."""
    manifests = require_no_deletes(name, handle.current_snapshot(), handle.io) if wanted else []
    entries = (entry.data_file for each in manifests for entry in each.fetch_manifest_entry(handle.io))
    return {name_of(file.file_path): file for file in entries if name_of(file.file_path) in wanted}


def history_of(handle: Table) -> MergeHistory[DataFile]:
    """What the snapshots of a table did that it still has.

    A removed file cannot be shown again: it is deleted when its snapshot expires, even if a later one has it.
    """
    return MergeHistory(_versions(handle), lambda file: False)


def _versions(handle: Table) -> Iterator[Iterable[Changes[DataFile]]]:
    snapshot, io = handle.current_snapshot(), handle.io
    while snapshot is not None:
        manifests = snapshot.manifests(io)
        # With deletes beside its data files, others are made of fewer rows than a file has.
        has_deletes = any(each.content == ManifestContent.DELETES for each in manifests)
        is_merge = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE and not has_deletes
        files: dict[str, tuple[dict[str, DataFile], dict[str, DataFile]]] = defaultdict(lambda: ({}, {}))
        for manifest in (each for each in manifests if each.added_snapshot_id == snapshot.snapshot_id):
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
                file = entry.data_file
                if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                    own = files[f"{file.spec_id} {file.partition}"][entry.status == ManifestEntryStatus.DELETED]
                    own[name_of(file.file_path)] = file
        yield [Changes(added, removed, is_merge) for added, removed in files.values()]
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else handle.metadata.snapshot_by_id(before)


def require_no_deletes(name: str, snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot, whose files may then be replaced."""
    manifests = [] if snapshot is None else snapshot.manifests(io)
    if any(manifest.content == ManifestContent.DELETES for manifest in manifests):
        raise DagflowError(
            f"{name} has deletes of rows beside its data files, which other files would bring back", hint=ANOTHER_TABLE
        )
    return manifests


def _value(kind: IcebergType, text: str | None) -> Any:
    """The value of a partition as Iceberg keeps it, from its text."""
    if text is None:
        return None
    match kind:
        case BooleanType():
            return text == "true"
        case IntegerType() | LongType():
            return int(text)
        case DecimalType():
            return decimal.Decimal(text)
        case DateType():
            return date_to_days(dt.date.fromisoformat(text))
        case TimestampType() | TimestamptzType():
            return datetime_to_micros(dt.datetime.fromisoformat(text))
        case TimeType():
            return time_to_micros(dt.time.fromisoformat(text))
        case StringType():
            return text
        case _:
            raise ValueError(f"{text!r} is no value of {kind} for a partition or a bound")


def _bound(kind: IcebergType, value: Any) -> bytes:
    found = _value(kind, value) if isinstance(value, str) else value
    if not isinstance(kind, PrimitiveType):
        raise TypeError(f"bounds of a column of {kind}")
    return to_bytes(kind, found)


def new_schema(columns: pa.Schema) -> Schema:
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(columns))


def new_spec(schema: Schema, fields: Sequence[PartitionField]) -> PartitionSpec:
    return PartitionSpec(
        *(
            IcebergField(
                source_id=schema.find_field(field.column).field_id,
                field_id=1000 + number,
                transform=parse_transform(f"{field.transform}[{field.width}]" if field.width else field.transform),
                name=field.name,
            )
            for number, field in enumerate(fields)
        )
    )


def new_table(columns: pa.Schema, fields: Sequence[PartitionField]) -> TableMetadata:
    schema = new_schema(columns)
    return new_table_metadata(schema, new_spec(schema, fields), UNSORTED_SORT_ORDER, "", {})


def widen_column(update: UpdateSchema, path: tuple[str, ...], there: pa.DataType, kind: pa.DataType) -> None:
    """Widen a column, or a part of one, to another type, and add the members that it lacks."""
    own = {part.name: part.type for part in parts_of(there)}
    if not own:
        update.update_column(path, new_schema(pa.schema([("column", kind)])).fields[0].field_type)
    for part in (part for part in parts_of(kind) if own.get(part.name, part.type) != part.type):
        step = "element" if pa.types.is_list(kind) else part.name
        widen_column(update, (*path, step), own[part.name], part.type)
    add_columns(update, path, [part for part in parts_of(kind) if part.name not in own])


def add_columns(update: UpdateSchema, path: tuple[str, ...], columns: Sequence[pa.Field]) -> None:
    """Add columns, or members to the column at a path; the table gives their parts their numbers."""
    for field in new_schema(pa.schema(columns)).fields if columns else ():
        update.add_column((*path, field.name), field.field_type)


def with_names(transaction: Transaction) -> Transaction:
    """Map names to columns in files: tasks write them before a column has a number."""
    metadata = transaction.table_metadata
    there, wanted = metadata.name_mapping(), metadata.schema().name_mapping
    if there is not None:
        # Programs that add columns do not all keep the mapping: columns that it lacks would be null to readers.
        wanted = NameMapping(_named(wanted.root, there.root))
    if there is None or wanted != there:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: wanted.model_dump_json()})
    return transaction


def _named(columns: list[MappedField], there: list[MappedField]) -> list[MappedField]:
    """The current names of columns, and earlier ones that a table knows and that no other column has."""
    taken = {name for column in columns for name in column.names}
    earlier = {each.field_id: each for each in there}
    found = []
    for column in columns:
        before = earlier.pop(column.field_id, None)
        names = [] if before is None else [name for name in before.names if name not in taken]
        nested = _named(column.fields, [] if before is None else before.fields)
        found.append(column.model_copy(update={"names": [*column.names, *names], "fields": nested}))
    for gone in earlier.values():
        if names := [name for name in gone.names if name not in taken]:
            found.append(gone.model_copy(update={"names": names}))
    return found
