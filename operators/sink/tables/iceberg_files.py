"""Data files as Iceberg's manifests describe them, from the facts that tasks report: the driver opens no file."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterable
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
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
from operators.sink.tables.merged_columns import facts_of_file


def data_file(metadata: TableMetadata, file: PendingFile, url: str) -> DataFile:
    """A file as an entry of a manifest.

    Args:
        metadata: The table that takes it, with all of its columns.
        file: The file, with its facts.
        url: The file's location, as the table names it.
    """
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
    """The values of a partition as Iceberg keeps them.

    Args:
        metadata: The table.
        texts: The values in facts, one for each field of the table's partition spec.

    Raises:
        ValueError: A table has no partitions of such values.
    """
    kinds = [field.field_type for field in metadata.spec().partition_type(metadata.schema()).fields]
    return Record(*(_value(kind, text) for kind, text in zip(kinds, texts, strict=True)))


def shown_files(name: str, handle: Table, files: Iterable[PendingFile]) -> dict[str, DataFile]:
    """The files among some that the newest snapshot of a table has, by their names.

    Args:
        name: The table's name in messages.
        handle: The table.
        files: The files, whose names no other files have.

    Raises:
        DagflowError: The table has delete files: replacing data files would bring the deleted rows back.
    """
    wanted = {name_of(file.final_url) for file in files}
    manifests = require_no_deletes(name, handle.current_snapshot(), handle.io) if wanted else []
    entries = (entry.data_file for each in manifests for entry in each.fetch_manifest_entry(handle.io))
    return {name_of(file.file_path): file for file in entries if name_of(file.file_path) in wanted}


def require_no_deletes(name: str, snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """The manifests of a snapshot, whose files may then be replaced.

    Args:
        name: The table's name in messages.
        snapshot: The snapshot; None where the table has none.
        io: Reaches its files.

    Raises:
        DagflowError: The table has delete files.
    """
    manifests = [] if snapshot is None else snapshot.manifests(io)
    if any(manifest.content == ManifestContent.DELETES for manifest in manifests):
        raise DagflowError(
            f"{name} has deletes of rows beside its data files, which other files would bring back",
            hint=ANOTHER_TABLE,
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
    """A bound of facts in Iceberg's binary form."""
    found = _value(kind, value) if isinstance(value, str) else value
    if not isinstance(kind, PrimitiveType):
        raise TypeError(f"bounds of a column of {kind}")
    return to_bytes(kind, found)
