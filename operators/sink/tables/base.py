"""The base class of the kinds of tables: the columns of a table, and the target that takes the files of its windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext
from dagflow.storage.partition_names import NAME_BYTES, partition_name
from operators.column_names import shown_name, why_no_name
from operators.sink.tables.partition_fields import IDENTITY, PartitionField
from operators.sink.tables.table_columns import OnNewColumn, OnTypeChange
from operators.sink.tables.table_names import Path, TableNames, lower_case


@dataclass(frozen=True, slots=True)
class TableShape:
    """The description of a table that tasks need.

    Attributes:
        location: Location of its data files, absolute.
        columns: Its columns with their types; None where there is no table yet.
        partition_by: The fields that it is partitioned by.
        files: Its files, if their names make them visible.
        taken: Names that no column may have, each with what the table cannot have then.
    """

    location: str
    columns: pa.Schema | None
    partition_by: tuple[PartitionField, ...]
    files: tuple[str, ...] = ()
    taken: Mapping[str, str] = field(default_factory=dict)


class Table(ABC):
    """A table of one kind; an operator has it as a property, so it is pickled, and holds no connection.

    Args:
        location: Location of its data files, absolute. For kinds with a catalog, that of the files of a new table;
            "" if the catalog decides it.
        partition_by: The fields by which the app partitions a new table.
        may_grow: Whether an existing table gets the columns that it lacks.
        catalog: The catalog that knows the table, for kinds that have one.

    Attributes:
        stores_partition_columns: Whether data files hold the columns by which the table is partitioned.
        is_named: Whether the names of its files make them visible, instead of a transaction.
        takes_upserts: Whether rows may replace others with the same keys.
        takes_members: Whether structs of an existing table can get more members.
        upsert_by: The columns of these keys; none where rows are added.
        on_new_column: The app's policy for columns that the table lacks.
        on_type_change: The app's policy for values that are not of their column's type.
    """

    stores_partition_columns: ClassVar[bool] = False
    is_named: ClassVar[bool] = False
    takes_upserts: ClassVar[bool] = False
    takes_members: ClassVar[bool] = False

    upsert_by: tuple[str, ...] = ()
    on_new_column: OnNewColumn = "fail"
    on_type_change: OnTypeChange = "widen"

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str],
        *,
        may_grow: bool = False,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        self.location = location
        self.may_grow = may_grow
        self.catalog = dict(catalog or {})
        self.partition_by = tuple(PartitionField.parse(text) for text in partition_by)
        for part in self.partition_by:
            if why := why_no_name(part.column):
                raise ValueError(f"partition_by: no table has a column {shown_name(part.column)}: {why}")
            if len(partition_name(part.name, None).encode()) > NAME_BYTES:
                raise ValueError(f"partition_by: {shown_name(part.name)} is too long for the name of a directory")

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's name in messages."""

    @abstractmethod
    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The type of a column, for one of Arrow's that is not nested.

        Raises:
            ValueError: The kind of table has no such type.
        """

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        """The type that a column of an existing table can be widened to, so that it takes all values of another type.

        Args:
            there: The type of the column.
            given: The other type, one of the table's.

        Returns:
            The type, `there` itself where that takes them; None where the column cannot take them.
        """
        return there if there == given else None

    @abstractmethod
    def shape(self, storage: StorageContext) -> TableShape:
        """The current shape of the table; called in the driver.

        Raises:
            DagflowError: The table cannot be read, or not be written to.
        """

    @abstractmethod
    def target(self, storage: StorageContext) -> Target:
        """What takes the files of windows; called in the driver."""

    def replace_by(self, keys: Sequence[str]) -> None:
        """Let rows replace those with the same keys.

        Raises:
            ValueError: The kind of table cannot, a key is named twice, or a partition column is no key.
        """
        if keys and not self.takes_upserts:
            raise ValueError(
                f"upsert_by: rows are replaced by transactions, and {self.name} has none; use table: delta:PATH or "
                "iceberg:NAMESPACE.NAME"
            )
        if len(set(keys)) < len(keys):
            raise ValueError("upsert_by names a column twice")
        self.upsert_by = tuple(keys)
        self.require_keys_of(self.partition_by)

    def require_keys_of(self, partition_by: Sequence[PartitionField]) -> None:
        """Refuse keys that may be in several partitions of the table: the rows of one key would have no order.

        Raises:
            ValueError: A partition field is of a column that is no key.
        """
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

        Args:
            columns: The columns of the table, as far as they are known.
            partition_by: The fields that it is partitioned by.

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
        """Refuse partitioning by anything but columns.

        Raises:
            ValueError: The app asks for a transform.
        """
        for each in self.partition_by:
            if each.transform != IDENTITY:
                raise ValueError(
                    f"partition_by: {kind} is partitioned by columns, and {each} is a transform, which iceberg has; "
                    f"add a column of {each.name} to the records"
                )
        if self.catalog:
            raise ValueError(f"catalog: {kind} has none; it is for iceberg:NAMESPACE.NAME")
