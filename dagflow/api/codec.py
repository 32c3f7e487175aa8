"""Stream codecs: which key each item of a stream has, so that items of one key meet in one partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagflow.api.records import RecordBatch


class StreamCodec(ABC):
    """Tells the keys of the items that cross an exchange.

    An app names a codec as `partition: {by: my_codecs.FirstWord}`; it is constructed without arguments, and
    travels to the executors.

    Guarantee: items whose keys are equal arrive in the same partition of the operator, in every window that has
    as many partitions, in every run and on every machine.
    """

    @abstractmethod
    def keys(self, items: Any) -> pa.Array:
        """The key of each item, in order; a null is a key like any other.

        Args:
            items: A RecordBatch, or a list of metadata tuples.

        Returns:
            One value per item: bytes, text, numbers or truth values.
        """

    def __str__(self) -> str:
        """What a plan shows."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class ByName(StreamCodec):
    """The values of a column, or of an attribute of metadata tuples.

    Attributes:
        name: The column; `record` for the whole of a raw record.
    """

    name: str

    def keys(self, items: RecordBatch | Sequence[Any]) -> pa.Array:
        """The column's, or the attribute's, values.

        Raises:
            LookupError: There is no such column or attribute.
        """
        if isinstance(items, RecordBatch):
            columns = items.to_arrow()
            if self.name not in columns.schema.names:
                has = ", ".join(columns.schema.names)
                raise LookupError(f"there is no column '{self.name}' to partition by; the records have {has}")
            return columns.column(self.name)
        try:
            return pa.array([getattr(item, self.name) for item in items])
        except AttributeError as error:
            kind = type(items[0]).__name__
            raise LookupError(f"there is no attribute '{self.name}' of {kind} to partition by") from error

    def __str__(self) -> str:
        return self.name
