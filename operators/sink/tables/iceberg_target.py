"""A table of an Iceberg catalog as a transactional target; only the driver imports it, for it needs pyiceberg."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table as Handle
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION

from dagflow.api.transactions import DecidedReplay, DecidedWindow, Target, TargetState
from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, is_local, join, name_of, redacted, scheme_of
from dagflow.storage.pending import PendingFile
from operators.sink.columns.nested_types import exact_type
from operators.sink.columns.table_columns import without_large
from operators.sink.tables.base import TableReader
from operators.sink.tables.fragments import pieces_of
from operators.sink.tables.iceberg_catalog import TableCatalog, refusals, refusals_before
from operators.sink.tables.iceberg_files import (
    add_columns,
    data_file,
    history_of,
    new_schema,
    new_spec,
    new_table,
    partition_record,
    require_no_deletes,
    shown_files,
    widen_column,
    with_names,
)
from operators.sink.tables.iceberg_table import DATA, SCHEMES, IcebergTable
from operators.sink.tables.iceberg_upserts import WholeScan, replace_files, upsert
from operators.sink.tables.merges import Merge, MergedState
from operators.sink.tables.partition_fields import IDENTITY, PartitionField, taken_by_partition
from operators.sink.tables.table_files import TableShape, newest_rows, remove
from operators.sink.tables.table_target import (
    TableTarget,
    facts_of_file,
    merged_columns,
    no_writing,
    require_decided_for,
    require_keys,
    require_same_partitioning,
)

logger = logging.getLogger(__name__)

_NEW_TABLE = {
    # Without it each window would leave a manifest forever, and each commit would take longer than the one before.
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    # The catalog's files of all versions but the newest hundred, which nothing reads.
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
}


def data_location(table: IcebergTable, handle: Handle) -> str:
    properties = handle.metadata.properties
    return _reachable(table, properties.get(TableProperties.WRITE_DATA_PATH) or join(handle.location(), DATA))


def _reachable(table: IcebergTable, location: str) -> str:
    if scheme_of(location) not in SCHEMES:
        raise DagflowError(
            f"{table.name} is at {redacted(location)}, and dagflow writes to tables on local disks and on S3"
        )
    return absolute(location)


def columns_of(schema: Schema) -> pa.Schema:
    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(each.name, exact_type(each.type, without_large), each.nullable) for each in found])


def partition_fields(table: IcebergTable, handle: Handle) -> tuple[PartitionField, ...]:
    fields, columns = [], {field.name for field in handle.schema().fields}
    for field in handle.spec().fields:
        column, transform = handle.schema().find_column_name(field.source_id) or "?", str(field.transform)
        kind, _, width = transform.rstrip("]").partition("[")
        text = column if kind == IDENTITY else f"{kind}({width}, {column})" if width else f"{kind}({column})"
        found = PartitionField.parse(text)
        if (found.transform, found.width) != (kind, int(width or 0)) or column not in columns:
            raise DagflowError(f"{table.name} is partitioned by {transform} of {column}, which dagflow does not write")
        fields.append(found)
    return tuple(fields)


def require_writable(table: IcebergTable, handle: Handle) -> None:
    """Refuse a table in which added files would break a rule that only its own writers know."""
    if handle.metadata.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
        version = handle.metadata.format_version
        raise no_writing(table, f"version {version} of the format, which pyiceberg does not write")
    for field in handle.schema().fields:
        if field.initial_default is not None or field.write_default is not None:
            clause = f"a default for column {field.name}, which files that are added to it would not respect"
            raise no_writing(table, clause)
    partition_by = partition_fields(table, handle)
    require_same_partitioning(table, [str(field) for field in partition_by])
    if table.upsert_by:
        require_keys(table, columns_of(handle.schema()), partition_by)
        require_no_deletes(table.name, handle.current_snapshot(), handle.io)


class IcebergTarget(TableTarget, Target):
    """Takes windows as snapshots of a table: the marker is a property of it, set in the commit of the snapshot."""

    def __init__(self, table: IcebergTable, storage: StorageContext) -> None:
        super().__init__(table)
        self.table: IcebergTable = table
        self.storage = storage
        self._handle: Handle | None = None

    @cached_property
    def catalog(self) -> TableCatalog:
        return TableCatalog(self.table, self.storage)

    def shape(self) -> TableShape:
        table = self.table
        handle = None if table.has_no_catalog else self.catalog.load()
        if handle is None:
            location = table.location or _reachable(table, join(self.catalog.new_location(), DATA))
            return TableShape(location, None, table.partition_by)
        require_writable(table, handle)
        columns, partition_by = columns_of(handle.schema()), partition_fields(table, handle)
        return TableShape(data_location(table, handle), columns, partition_by, taken=taken_names(table, handle))

    def reader(self) -> TableReader:
        handle = None if self.table.has_no_catalog else self.catalog.load()
        if handle is None:
            raise DagflowError(f"{self.name} is not in its catalog", hint="check namespace and name")
        there, snapshot = handle, handle.current_snapshot()
        taken = f"snapshot {snapshot.snapshot_id}" if snapshot is not None else "no snapshot"

        def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            with refusals(self.table):
                scan = there.scan(selected_fields=tuple(names))
                read = WholeScan(there.metadata, there.io, scan.projection())
                yield from read.to_table(scan.plan_files()).select(list(names)).to_batches()

        version = f"{taken}, schema {handle.schema().schema_id} of {handle.metadata.table_uuid}"
        return TableReader(version, columns_of(handle.schema()), batches)

    def open(self, writer: str) -> TargetState:
        self._handle = self.catalog.load()
        if self._handle is not None:
            require_writable(self.table, self._handle)
        return IcebergState(self, writer, self._handle)

    def finish(self, files: Sequence[PendingFile]) -> None:
        remove(self.storage, (file for file in files if facts_of_file(file).keys))

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        return None if self._handle is None else columns_of(self._handle.schema())

    def taken(self) -> Mapping[str, str]:
        return taken_names(self.table, self._handle)

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        fields = fields_of_file(files[-1])
        with refusals_before(self.table):
            if self._handle is None:
                metadata = new_table(columns, fields)
            elif known == columns:
                metadata = self._handle.metadata
            else:
                metadata = _change(self.table, self._handle, columns, files[-1:]).table_metadata
            # Files that wait may be of another partitioning as long as the table does not exist: none of them is in it.
            for facts in (facts_of_file(file) for file in files if fields_of_file(file) == fields):
                for texts in (facts.partition.values(), *(piece.values for piece in pieces_of(facts))):
                    partition_record(metadata, texts)

    def rows(self) -> pa.RecordBatchReader | None:
        handle = self.catalog.load()
        return None if handle is None else handle.scan().to_arrow_batch_reader()


class IcebergState(MergedState[DataFile]):
    """A table at one moment, or none yet."""

    def __init__(self, target: IcebergTarget, writer: str, handle: Handle | None) -> None:
        self._table = target.table
        self._storage = target.storage
        self._catalog = target.catalog
        self._writer = writer
        self._handle = handle
        self._key = writer.replace("/", ".")

    def _property(self, name: str) -> str | None:
        return None if self._handle is None else self._handle.metadata.properties.get(f"{self._key}.{name}")

    @property
    def marker(self) -> int:
        """The property of this writer: snapshots expire, and properties stay."""
        return int(self._property("window") or 0)

    @property
    def version(self) -> str:
        found = None if self._handle is None else self._handle.current_snapshot()
        return "" if found is None else f"snapshot {found.snapshot_id}"

    def decision(self) -> str | None:
        return self._property("decision")

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add the files in one snapshot; the first one creates the table."""
        files, last = [file for window in windows for file in window.files], windows[-1]
        facts = facts_of_file(last.files[0])
        with refusals(self._table):
            transaction = self._transaction(files)
            summary = self._mark(transaction, _marks_of(last))
            if facts.keys:
                rows = newest_rows(self._storage, files, facts.keys, columns_of(transaction.table_metadata.schema()))
                upsert(self._table.name, transaction, *rows, facts.keys, fields_of_file(last.files[0]), summary)
            else:
                with transaction.update_snapshot(snapshot_properties=summary).merge_append() as append:
                    for added in _data_files(transaction, files):
                        append.append_data_file(added)
            transaction.commit_transaction()

    def _transaction(self, files: Sequence[PendingFile]) -> Transaction:
        """A transaction that takes files: it adds their columns, and creates the table if it does not exist."""
        known = pa.schema([]) if self._handle is None else columns_of(self._handle.schema())
        # A decided window is committed as decided, even if the app has changed since.
        taken = taken_names(self._table, self._handle)
        columns = merged_columns(self._table, files, known, may_grow=True, taken=taken)
        if self._handle is None:
            return self._creation(columns, files)
        return _change(self._table, self._handle, columns, files)

    def _mark(self, transaction: Transaction, properties: Mapping[str, str]) -> dict[str, str]:
        """Set properties of this writer, and return those for the summary of the snapshot."""
        transaction.set_properties({f"{self._key}.{name}": value for name, value in properties.items()})
        return {"dagflow.writer": self._writer, **{f"dagflow.{name}": value for name, value in properties.items()}}

    @property
    def replays(self) -> int:
        return int(self._property("replay") or 0)

    def _shown(self, files: Sequence[PendingFile]) -> dict[str, DataFile]:
        names = {name_of(file.final_url) for file in files}
        return {} if self._handle is None else shown_files(self._table.name, self._handle, names)

    def not_shown(self, files: Sequence[PendingFile]) -> tuple[list[PendingFile], list[Merge[DataFile]]]:
        with refusals(self._table):
            shown = self._shown(files)
            gone = [file for file in files if name_of(file.final_url) not in shown]
            history = None if self._handle is None else history_of(self._handle)
            return gone, history.merges_of(name_of(file.final_url) for file in gone) if history is not None else []

    def replace(self, replay: DecidedReplay) -> None:
        with refusals(self._table):
            transaction = self._transaction(replay.files)
            marks = {"replay": str(replay.number)} | ({} if replay.window is None else _marks_of(replay.window))
            summary = self._mark(transaction, marks)
            _, merges = self.not_shown(replay.removed)
            merged = (file for each in merges for file in each.after.values())
            removed = [*self._shown(replay.removed).values(), *merged]
            replace_files(transaction, removed, _data_files(transaction, replay.files), summary)
            transaction.commit_transaction()

    def _creation(self, columns: pa.Schema, files: Sequence[PendingFile]) -> Transaction:
        """A transaction that creates the table: it fails if the table exists by now."""
        catalog, identifier = self._catalog.catalog, self._catalog.identifier
        catalog.create_namespace_if_not_exists(identifier[:-1])
        self._require_own_place(files[0])
        location = _url("file:", files[0].final_url.rpartition(f"/{DATA}/")[0])
        draft = new_schema(columns)
        spec = new_spec(draft, fields_of_file(files[0]))
        transaction = catalog.create_table_transaction(identifier, draft, location, spec, properties=_NEW_TABLE)
        return with_names(transaction)

    def _require_own_place(self, file: PendingFile) -> None:
        """Refuse to create a table from files that are at the location of another one."""
        table = self._table
        locations = [table.location or _reachable(table, join(self._catalog.new_location(), DATA)) for _ in range(2)]
        # For a catalog that gives a new table another location each time, this shows nothing.
        if locations[0] == locations[1]:
            require_decided_for(table, locations[0], [*facts_of_file(file).partition], [file])


def _marks_of(window: DecidedWindow) -> dict[str, str]:
    return {"window": str(window.window_id), "decision": window.decision}


def _change(table: IcebergTable, handle: Handle, columns: pa.Schema, files: Sequence[PendingFile]) -> Transaction:
    """A transaction that fails if the table's newest snapshot is another one by now."""
    fields = [str(field) for field in partition_fields(table, handle)]
    require_decided_for(table, data_location(table, handle), fields, files)
    there = {field.name: field.type for field in columns_of(handle.schema())}
    new = [field for field in columns if field.name not in there]
    wider = [field for field in columns if there.get(field.name, field.type) != field.type]
    transaction = with_names(OneCommit(_newest(handle)))
    if new or wider:
        with transaction.update_schema() as update:
            # Not union_by_name(), which builds the type of the whole table anew for each column.
            for field in wider:
                widen_column(update, (field.name,), there[field.name], field.type)
            add_columns(update, (), new)
    return transaction


def fields_of_file(file: PendingFile) -> list[PartitionField]:
    return [PartitionField.parse(text) for text in facts_of_file(file).partition]


class OneCommit(Transaction):
    """A transaction that is sent once, and leaves everything unchanged if that fails.

    pyiceberg would send it again after a conflict, and so a driver that was frozen would add a window twice. It would
    also remove its manifests, and so a table would be lost whose catalog had taken the first attempt.
    """

    def commit_transaction(self) -> Handle:
        self._snapshot_producers = []
        return super().commit_transaction()


def _newest(handle: Handle) -> Handle:
    """A table without its older snapshots, which a transaction would copy a dozen times and does not use.

    The catalog applies the changes to the whole table.
    """
    newest = handle.current_snapshot()
    kept = {"snapshots": [] if newest is None else [newest], "snapshot_log": []}
    metadata = handle.metadata.model_copy(update=kept)
    return Handle(handle.name(), metadata, handle.metadata_location, handle.io, handle.catalog, handle.config)


def taken_names(table: IcebergTable, handle: Handle | None) -> dict[str, str]:
    """Names that no new column of an existing table may have; see TableShape."""
    if handle is None:
        return {}
    taken: dict[str, str] = {}
    for spec, field in zip(handle.spec().fields, partition_fields(table, handle), strict=True):
        if spec.name != str(field):
            taken |= taken_by_partition(spec.name, field)
    there, mapping = {each.name for each in handle.schema().fields}, handle.name_mapping()
    for mapped in () if mapping is None else mapping.root:
        now = handle.schema().find_column_name(mapped.field_id or -1)
        for name in {*mapped.names} - there:
            taken[name] = (
                f"a new column '{name}': a column of that name was {f'renamed to {now!r}' if now else 'dropped'}, and "
                "would come back with its old values"
            )
    return taken


def _data_files(transaction: Transaction, files: Sequence[PendingFile]) -> Iterator[DataFile]:
    """Files as entries of the manifests of a table that takes them."""
    metadata = transaction.table_metadata
    return (data_file(metadata, file, _url(metadata.location, file.final_url)) for file in files)


def _url(like: str, url: str) -> str:
    """A location as a table at another one names it: a path gets the scheme that the other one has."""
    return f"file://{url}" if like.startswith("file:") and is_local(url) else url
