"""What a kind of table is: the columns that it has, and the target that takes the files of its windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext


@dataclass(frozen=True, slots=True)
class TableShape:
    """What tasks must know of a table.

    Attributes:
        columns: Its columns with their types; None where there is no table yet.
        partition_by: Its partition columns.
    """

    columns: pa.Schema | None
    partition_by: tuple[str, ...]


class Table(ABC):
    """A table of one kind; an operator has it as a property, so it is pickled, and holds no connection.

    Args:
        location: Where the data files are, an absolute URL.
        partition_by: The columns that the app partitions a new table by.
        may_grow: Whether a table that is there gets the columns that it lacks.
    """

    def __init__(self, location: str, partition_by: Sequence[str], *, may_grow: bool = False) -> None:
        self.location = location
        self.may_grow = may_grow
        self.partition_by = tuple(partition_by)

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

    @abstractmethod
    def shape(self) -> TableShape:
        """What there is now; called in the driver.

        Raises:
            DagflowError: The table cannot be read, or not be written to.
        """

    @abstractmethod
    def target(self, storage: StorageContext) -> Target:
        """What takes the files of windows."""
