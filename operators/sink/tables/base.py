"""The base class of the kinds of tables: the columns of a table, and the target that takes the files of its windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.plugins import plugin_path
from dagflow.storage.context import StorageContext
from dagflow.storage.location import NAME_BYTES, is_local, partition_name
from operators.column_names import require_columns, shown_name, why_no_name
from operators.format_registry import imported
from operators.sink.columns.fitted_columns import goes_into
from operators.sink.columns.nested_types import nullable_type, stored_type, table_type
from operators.sink.columns.table_columns import OnNewColumn, OnTypeChange, TableColumns, schema_of_text
from operators.sink.columns.table_names import Path, TableNames, lower_case, require_names
from operators.sink.tables import TABLE_KINDS
from operators.sink.tables.partition_fields import IDENTITY, PartitionField, partitionable, require_partition_type
from operators.sink.tables.table_files import (
    DataFileFormat,
    FactOrigin,
    TableFiles,
    TableFormat,
    TableShape,
    stored_columns,
)


class DataFiles(Protocol):
    """Writes the rows of windows into files, which end with their window."""

    def begin_window(self, window_id: int) -> None: ...

    def write(self, batch: RecordBatch) -> None: ...

    def end_window(self) -> None: ...


@frozen
class TableReader:
    """One version of a table, which stays the same for this object.

    Attributes:
        version: A text that differs for each state of the table.
        columns: The columns of the version.
        batches: Gives the rows of the version, with some columns.
    """

    version: str
    columns: pa.Schema
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


class Table(ABC):
    """A table of one kind; an operator has it as a property, so it is pickled, and holds no connection.

    A subclass gives `name`, `format_name` and `target_class`; all else has defaults.

    Args:
        location: Location of its data files, absolute. For kinds with a catalog, that of the files of a new table;
            "" if the catalog decides it.
        partition_by: The fields by which the app partitions a new table.
        on_new_column: The app's policy for columns that the table lacks.
        on_type_change: The app's policy for values that are not of their column's type.
        catalog: The catalog that knows the table, for kinds that have one.

    Attributes:
        format_name: The format's name in messages.
        target_class: Where its TableTarget is, see target().
        file_format: The format of its data files, Parquet unless a kind has another one.
        least_bits: Bits of its narrowest whole numbers.
        time_type: Its type for times of day.
        why_no_type: What a message about a type that it lacks goes on with.
        stores_partition_columns: Whether data files hold the columns by which the table is partitioned.
        is_named: Whether the names of its files make them visible, instead of a transaction.
        takes_upserts: Whether rows may replace others with the same keys.
        takes_members: Whether structs of an existing table can get more members.
        keeps_files: Whether its data files stay where they are, and can be replaced by others, such as the same without
            some rows: its target's open() returns a ReplayableState.
        has_reader: Whether its target has reader(), so that Enrich can join records with it.
        has_groups: Whether windows wait for others unless an app says otherwise, so that files are few and large.
        upsert_by: The columns of these keys; none where rows are added.
        shape: The table as the run found it; before that, a new one.
        is_found: Whether the run has looked for it.
        writer: The name by which the target knows the operator that writes to it; "" before a run.
    """

    format_name: ClassVar[str]
    target_class: ClassVar[str]
    file_format: ClassVar[type[TableFormat]] = DataFileFormat
    least_bits: ClassVar[int] = 8
    time_type: ClassVar[pa.DataType] = pa.time64("us")
    why_no_type: ClassVar[str] = ""
    stores_partition_columns: ClassVar[bool] = False
    is_named: ClassVar[bool] = False
    takes_upserts: ClassVar[bool] = False
    takes_members: ClassVar[bool] = False
    keeps_files: ClassVar[bool] = False
    has_reader: ClassVar[bool] = False
    has_groups: ClassVar[bool] = True

    upsert_by: tuple[str, ...] = ()
    is_found: bool = False
    writer: str = ""

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str],
        *,
        on_new_column: OnNewColumn = "fail",
        on_type_change: OnTypeChange = "widen",
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.location = location
        self.on_new_column: OnNewColumn = on_new_column
        self.on_type_change: OnTypeChange = on_type_change
        self.catalog = dict(catalog or {})
        self.partition_by = tuple(PartitionField.parse(text) for text in partition_by)
        self.shape = TableShape(location, None, self.partition_by)
        for part in self.partition_by:
            if why := why_no_name(part.column):
                raise ValueError(f"partition_by: no table has a column {shown_name(part.column)}: {why}")
            if len(partition_name(part.name, None).encode()) > NAME_BYTES:
                raise ValueError(f"partition_by: {shown_name(part.name)} is too long for the name of a directory")

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name in messages."""

    @property
    def may_grow(self) -> bool:
        """Whether an existing table gets the columns that it lacks."""
        return self.on_new_column == "add"

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The type of a column, for one of Arrow's that is not nested.

        Raises:
            ValueError: The kind of table has no such type.
        """
        if (stored := stored_type(kind, self.least_bits, self.time_type)) is None:
            raise ValueError(f"{self.format_name} has no type for {type_name(kind)}{self.why_no_type}")
        return stored

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        """The type that a column of an existing table can be widened to, so that it takes all values of another type.

        Args:
            there: The type of the column.
            given: The other type, one of the table's.

        Returns:
            The type, `there` itself where that takes them; None where the column cannot take them.
        """
        return there if there == given else None

    @property
    def is_near(self) -> bool:
        """Whether the table can be read without a network, so that its columns are known before a run."""
        return is_local(self.location) and not self.is_on_server

    @property
    def is_on_server(self) -> bool:
        """Whether a server has it, or its catalog."""
        return False

    def columns_as(self, decided: str) -> TableColumns:
        """The columns in a task, as decided; "" for those that the table had when the run began."""
        shape = replace(self.shape, columns=schema_of_text(decided)) if decided else self.shape
        partition_by = [field.column for field in shape.partition_by]
        return TableColumns(
            self.name,
            self.column_type,
            shape.columns,
            partition_by,
            upsert_by=self.upsert_by,
            on_new_column=self.on_new_column,
            on_type_change=self.on_type_change,
            wider=self.wider_type,
            takes_members=self.takes_members,
            names=self.names(shape),
            left_out=[] if self.stores_partition_columns else partition_by,
        )

    def holdable(
        self, rows: pa.RecordBatch, required: Iterable[str]
    ) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
        """Rows that the table can hold, and the values that it cannot, although they are of their columns' types.

        Returns:
            The rows, with values as readers will see them; and by column and row why a value would not be seen so.
        """
        return partitionable(rows, self.shape.partition_by, required, in_files=self.stores_partition_columns)

    def files(self, context: OperatorContext, target_bytes: int | None, origin: FactOrigin) -> DataFiles:
        """The data files of a window in a task, of the table's file_format.

        Args:
            context: The context of the operator that writes them.
            target_bytes: The size at which a file ends and the next one begins; None for no limit.
            origin: What their facts say beside their rows: a file without facts of it is not in the table.
        """
        stores, format = self.stores_partition_columns, self.file_format.of
        return TableFiles(context, self.shape, target_bytes, origin, stores_partition_columns=stores, format=format)

    def target(self, storage: StorageContext) -> Any:
        """What takes the files of windows; called in the driver, which may have packages that executors lack."""
        target: Any = imported("target", self.target_class)
        return target(self, storage)

    def current_shape(self, storage: StorageContext) -> TableShape:
        """The shape that the table has now, or that it would get.

        Raises:
            DagflowError: The table cannot be read, or not be written to.
        """
        shape: TableShape = self.target(storage).shape()
        return shape

    def connect_by(self, connection: str, staging: str) -> None:
        """Take the address of the server that has the table, and the location where its files wait; "" for none.

        Raises:
            ValueError: The kind of table has no server, or needs one.
        """
        if connection or staging:
            given = "connection" if connection else "staging"
            raise ValueError(f"{given}: {self.name} is not on a server; it is for postgres:SCHEMA.TABLE")

    def keep_parts(self) -> None:
        """Let rows say which file they came with.

        Raises:
            ValueError: The kind of table knows it without.
        """
        raise ValueError(f"metadata_columns: part is for tables of databases; {self.name} knows its files without it")

    def replace_by(self, keys: Sequence[str]) -> None:
        """Let rows replace those with the same keys.

        Raises:
            ValueError: The kind of table cannot, a key is named twice, or a partition column is no key.
        """
        if keys and not self.takes_upserts:
            raise ValueError(
                f"upsert_by: rows are replaced by transactions, and {self.name} has none; use table: delta:PATH, or "
                "another kind"
            )
        if len(set(keys)) < len(keys):
            raise ValueError("upsert_by names a column twice")
        self.upsert_by = tuple(keys)
        self.require_keys_of(self.partition_by)

    def require_keys_of(self, partition_by: Sequence[PartitionField]) -> None:
        """Refuse keys that may be in several partitions of the table: the rows of one key would have no order."""
        others = [each.column for each in partition_by if each.column not in self.upsert_by]
        if self.upsert_by and others:
            raise ValueError(
                f"upsert_by: the table is partitioned by '{others[0]}', so that one key may be in several partitions; "
                f"add '{others[0]}' to upsert_by, or do not partition by it"
            )

    def require_replaceable(  # noqa: B027  # most kinds replace rows of all columns
        self, columns: pa.Schema, partition_by: Sequence[PartitionField]
    ) -> None:
        """Refuse columns that prevent the kind of table from replacing rows.

        Raises:
            ValueError: Rows with such a column cannot be replaced.
        """

    def spelled(self, path: Path) -> Hashable:
        """What the kind of table distinguishes a field by, of all columns and their members.

        Args:
            path: The name of the column, and those of members in it, from the outside to the inside.
        """
        return lower_case(path)

    def names(self, shape: TableShape) -> TableNames:
        """The names of the columns of a table, by which others are judged."""
        partition_by = (*self.partition_by, *shape.partition_by)
        kept = [*(each.column for each in partition_by), *self.upsert_by]
        return TableNames(self.spelled, shape.columns or (), kept, shape.taken)

    def require_plain(self, kind: str) -> None:
        """Refuse partitioning by anything but columns."""
        for each in self.partition_by:
            if each.transform != IDENTITY:
                raise ValueError(
                    f"partition_by: {kind} is partitioned by columns, and {each} is a transform, which iceberg has; "
                    f"add a column of {each.name} to the records"
                )
        if self.catalog:
            raise ValueError(f"catalog: {kind} has none; it is for iceberg:NAMESPACE.NAME")


def table_class(kind: str) -> type[Table]:
    """The class of a kind of table; it is imported when it is asked for.

    Raises:
        LookupError: There is no such kind.
    """
    paths = {form.partition(":")[0]: path for form, path in TABLE_KINDS.items()}
    path = paths.get(kind) or plugin_path("targets", kind)
    if path is None:
        raise LookupError(kind)
    return cast(type[Table], imported("table", path))


def require_types(table: Table, shape: TableShape, expected: pa.Schema) -> None:
    """Refuse columns of which an existing table could take no value."""
    there = {} if shape.columns is None else {field.name: nullable_type(field.type) for field in shape.columns}
    others = [
        f"'{field.name}' is {type_name(there[field.name])} there, and {type_name(field.type)} in the records"
        for field in expected
        if field.name in there and not _may_fit(table, field.type, there[field.name])
    ]
    if others:
        raise ValueError(
            f"{table.name} could take no value of some columns: {'; '.join(others)}; give them the types of the table, "
            "with columns of the reader or a cast in a Select, or other names"
        )


def _may_fit(table: Table, kind: pa.DataType, there: pa.DataType) -> bool:
    """Whether a value of a type may fit into a column of another one, or widen it."""
    if pa.types.is_null(kind) or (pa.types.is_nested(kind) and pa.types.is_nested(there)):
        return True
    try:
        kind = table_type(kind, table.column_type)
    except ValueError:
        return True  # no table of the kind has such a column, which is reported when it arrives
    return goes_into(kind, there) or table.wider_type(there, kind) is not None


def require_takes(table: Table, shape: TableShape, expected: pa.Schema) -> None:
    """Refuse the columns of all records, those that the writer adds included, if none could be written to a table."""
    given = [field for field in expected if not pa.types.is_null(field.type)]
    if (shape.columns is None or table.may_grow) and table.on_new_column not in ("rescue", "ignore"):
        there = () if shape.columns is None else shape.columns.names
        try:
            require_names(table.names(shape), table.name, [each for each in given if each.name not in there], {})
        except DagflowError as error:
            raise ValueError(str(error)) from error
    if shape.columns is not None:
        if missing := [each.name for each in shape.columns if not each.nullable and each.name not in expected.names]:
            raise ValueError(
                f"{table.name} allows no null in column '{missing[0]}', which no record has; "
                "give it a value in a Select, or let the column allow nulls"
            )
        return
    fields = shape.partition_by
    # No rows, so that only the columns are checked.
    columns = TableColumns(
        table.name, table.column_type, None, on_new_column=table.on_new_column, names=table.names(shape)
    )
    rows, _ = columns.fit(pa.RecordBatch.from_pylist([], schema=expected))
    require_columns(rows, [field.column for field in fields])
    table.require_replaceable(rows.schema, fields)
    for field in fields:
        field.values(rows.column(field.column))
        if field.transform == IDENTITY:
            require_partition_type(rows.schema.field(field.column))
    if not (table.stores_partition_columns or table.upsert_by):
        stored_columns(rows.schema, [field.column for field in fields])
