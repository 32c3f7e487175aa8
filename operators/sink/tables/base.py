"""What a kind of table is: the columns that it has, and the target that takes the files of its windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dagflow.api.transactions import Target, TargetDecision
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from operators.sink.tables.partition_fields import IDENTITY, PartitionField


@dataclass(frozen=True, slots=True)
class TableShape:
    """What tasks must know of a table.

    Attributes:
        location: Where its data files are, an absolute location.
        columns: Its columns with their types; None where there is no table yet.
        partition_by: What it is partitioned by.
        files: Its files, where their names make them visible.
    """

    location: str
    columns: pa.Schema | None
    partition_by: tuple[PartitionField, ...]
    files: tuple[str, ...] = ()


class Table(ABC):
    """A table of one kind; an operator has it as a property, so it is pickled, and holds no connection.

    Args:
        location: Where its data files are, an absolute location; those of a new one, where a catalog decides it.
        partition_by: What the app partitions a new table by.
        may_grow: Whether a table that is there gets the columns that it lacks.
        catalog: The catalog that knows the table, for kinds that have one.

    Attributes:
        stores_partition_columns: Whether data files hold the columns by which the table is partitioned.
        is_named: Whether the names of its files make them visible, and no transaction.
        takes_upserts: Whether rows may take the place of others with the same keys.
        upsert_by: The columns of these keys; none where rows are added.
        on_new_column: What the app says about columns that the table lacks, for messages.
    """

    stores_partition_columns: ClassVar[bool] = False
    is_named: ClassVar[bool] = False
    takes_upserts: ClassVar[bool] = False

    upsert_by: tuple[str, ...] = ()
    on_new_column: str = "fail"

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

    @property
    @abstractmethod
    def name(self) -> str:
        """What messages call it."""

    @abstractmethod
    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The type of a column, for one of Arrow's that is not nested.

        Raises:
            ValueError: The kind of table has none.
        """

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        """The type that a column of a table that is there can get, so that it takes all values of another type.

        Args:
            there: The type of the column.
            given: The other type, one of the table's.

        Returns:
            The type, `there` itself where that takes them; None where the column cannot take them.
        """
        return there if there == given else None

    @abstractmethod
    def shape(self, storage: StorageContext) -> TableShape:
        """What there is now; called in the driver.

        Raises:
            DagflowError: The table cannot be read, or not be written to.
        """

    def target(self, storage: StorageContext) -> Target | None:
        """What takes the files of windows; None where their names make them visible."""
        return None

    def decide(self, files: Sequence[PendingFile]) -> TargetDecision | None:
        """What files of a window must be like that their names would make visible; a target decides by itself.

        Args:
            files: All such files of the window, also those of other operators.
        """
        return None

    def check(self, files: Sequence[PendingFile]) -> None:  # noqa: B027  # a target checks its own
        """Refuse files of a window that their names would make visible.

        Raises:
            DagflowError: Why the window must not be committed.
        """

    def replace_by(self, keys: Sequence[str]) -> None:
        """Let rows take the place of those with the same keys.

        Raises:
            ValueError: The kind of table cannot, or its partitions are not those of the keys.
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
        """Refuse keys that may be in several partitions of the table: rows of a key would have no order.

        Raises:
            ValueError: Some may.
        """
        others = [field.column for field in partition_by if field.column not in self.upsert_by]
        if self.upsert_by and others:
            raise ValueError(
                f"upsert_by: the table is partitioned by '{others[0]}', so that one key may be in several partitions; "
                f"add '{others[0]}' to upsert_by, or do not partition by it"
            )

    def require_replaceable(  # noqa: B027  # most kinds replace rows of all columns
        self, columns: pa.Schema, partition_by: Sequence[PartitionField]
    ) -> None:
        """Refuse columns with which the kind of table cannot replace rows.

        Args:
            columns: The columns of the table, as far as they are known.
            partition_by: What it is partitioned by.

        Raises:
            ValueError: There is one.
        """

    def require_distinct(  # noqa: B027  # most kinds know columns by their own names alone
        self, columns: pa.Schema, partition_names: Mapping[str, str], causes: Mapping[str, str]
    ) -> None:
        """Refuse columns that the kind of table cannot tell from members of others, or from its partitions.

        Args:
            columns: The columns of the table.
            partition_names: What its partition fields are called, each with what it is, as month(placed); without
                those that are called as their column.
            causes: Where the first record is that asked for a column, by column; as far as that is known.

        Raises:
            DagflowError: There is one.
        """

    def require_plain(self, kind: str) -> None:
        """Refuse partitioning by anything but columns.

        Raises:
            ValueError: The app asks for it.
        """
        for field in self.partition_by:
            if field.transform != IDENTITY:
                raise ValueError(
                    f"partition_by: {kind} is partitioned by columns, and {field} is a transform, which iceberg has; "
                    f"add a column of {field.name} to the records"
                )
        if self.catalog:
            raise ValueError(f"catalog: {kind} has none; it is for iceberg:NAMESPACE.NAME")
