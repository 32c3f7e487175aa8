"""The columns of streams, as far as they are known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from dagflow.api.columns.column_values import type_name as type_name  # beside the columns that it names the types of
from dagflow.api.operator import Capability
from dagflow.api.records import RECORD
from dagflow.frozen import frozen

UNDECLARED = {"dagflow.undeclared": "true"}
"""Metadata of a field that may not exist; see StreamColumns.with_names."""


@frozen
class StreamColumns:
    """The columns of the records of a stream.

    Attributes:
        schema: The known columns, with their types; for raw records the column `record`.
        others: The type of all further columns, whose names are not known; None where there are none.
        is_raw: Whether the records are bytes.
    """

    schema: pa.Schema
    others: pa.DataType | None = None
    is_raw: bool = False

    @classmethod
    def raw(cls) -> StreamColumns:
        """The single column of raw records, of type binary."""
        return cls(pa.schema([(RECORD, pa.binary())]), is_raw=True)

    def with_names(self, names: Iterable[str]) -> pa.Schema:
        """The schema, with those of the names that may be among the others, marked as UNDECLARED."""
        if self.others is None:
            return self.schema
        missing = dict.fromkeys(name for name in names if name not in self.schema.names)
        return pa.schema([*self.schema, *(pa.field(name, self.others, metadata=UNDECLARED) for name in missing)])


class ColumnTyped(Capability):
    """Declares an operator that knows its columns before any records arrive; each method is optional.

    The arriving columns are those at the port `input`.
    """

    def check_arriving(self, arriving: StreamColumns) -> None:
        """Called when an app is planned, before anything runs, and once more after prepare().

        Raises:
            LookupError: A column is missing that each record must have.
            ValueError: The operator would refuse each record that has such columns.
        """

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that a port emits, None where they are not known; called when an app is planned.

        Args:
            arriving: None where they are not known, or there is no port `input`.

        Raises:
            PropertyTextError: A text in the operator's properties does not fit the arriving columns.
            LookupError: A column is missing, or there are none.
            ValueError: The arriving columns do not fit for another reason.
        """
        return None


class ColumnTraced(ColumnTyped):
    """Declares an operator that can also name the columns of `input` that each column is made from."""

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The arriving columns that a column is made from; by default the one of its name, or all if there is none.

        Called when the lineage of a column is requested, before anything runs.
        """
        is_passed_on = column in arriving.schema.names or arriving.others is not None
        return [column] if is_passed_on else arriving.schema.names
