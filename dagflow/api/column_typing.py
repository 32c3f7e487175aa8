"""The columns of streams, as far as they are known before anything runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from dagflow.api.operator import Capability
from dagflow.api.records import RECORD

UNDECLARED = {"dagflow.undeclared": "true"}
"""Metadata of a field that is not known to be there; see StreamColumns.with_names."""


@dataclass(frozen=True, slots=True)
class StreamColumns:
    """The columns that the records of a stream have.

    Attributes:
        schema: Those that are known, with their types; of raw records the column `record`.
        others: The type of all columns beside them, whose names are not known; None where there are no others.
        is_raw: Whether the records are bytes.
    """

    schema: pa.Schema
    others: pa.DataType | None = None
    is_raw: bool = False

    @classmethod
    def raw(cls) -> StreamColumns:
        """The one column of raw records, of bytes."""
        return cls(pa.schema([(RECORD, pa.binary())]), is_raw=True)

    def with_names(self, names: Iterable[str]) -> pa.Schema:
        """The schema, with those of the names that may be among the others, which are marked as UNDECLARED."""
        if self.others is None:
            return self.schema
        missing = dict.fromkeys(name for name in names if name not in self.schema.names)
        return pa.schema([*self.schema, *(pa.field(name, self.others, metadata=UNDECLARED) for name in missing)])


class ColumnChecked(Capability):
    """Declares an operator that can tell whether it takes columns, before records with these come."""

    @abstractmethod
    def check_arriving(self, arriving: StreamColumns) -> None:
        """Called when an app is planned, before anything runs, and once more after prepare().

        Args:
            arriving: What arrives at the port `input`.

        Raises:
            LookupError: It lacks a column that each record must have.
            ValueError: The operator would refuse each record that has such columns.
        """


class ColumnTyped(Capability):
    """Declares an operator that can tell the columns of what it emits from those of what it takes in at `input`."""

    @abstractmethod
    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """Called when an app is planned, before anything runs.

        Args:
            port: An output port.
            arriving: What arrives at the port `input`; None where that is not known, or there is no such port.

        Returns:
            What leaves at the port; None where that is not known.

        Raises:
            PropertyTextError: A text of the operator's properties does not fit what arrives.
            LookupError: What arrives lacks a column, or has none.
            ValueError: It does not fit for another reason.
        """


class ColumnTraced(ColumnTyped):
    """Declares an operator that can also tell which columns of `input` each column is made of."""

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """Called where the lineage of a column is asked for, before anything runs.

        Args:
            port: An output port.
            column: A column of what leaves there.
            arriving: What arrives at the port `input`.

        Returns:
            The columns of what arrives that it is made of. By default the one of its name, or all where there is none.
        """
        is_passed_on = column in arriving.schema.names or arriving.others is not None
        return [column] if is_passed_on else arriving.schema.names


def type_name(type: object) -> str:
    """A type as an app would write it."""
    return str(type).replace("decimal128(", "decimal(").replace("date32[day]", "date32").replace(", tz=", ", ")
