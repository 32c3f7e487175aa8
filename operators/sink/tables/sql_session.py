"""Transactions of databases, as tables use them; only the driver imports this."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc


@frozen
class SqlColumn:
    """A column of a table in a database.

    Attributes:
        name: Its name.
        kind: The type of its values; None where dagflow writes no such values.
        is_required: Whether it allows no null.
        why_none: Why it takes no values of records; "" if it does.
        longest: Most characters of its text; None for no limit.
    """

    name: str
    kind: pa.DataType | None
    is_required: bool
    why_none: str = ""
    longest: int | None = None


Path = tuple[str, ...]
"""The names by which a database knows a table, from the outside to the inside."""


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def name_of(path: Path) -> str:
    """A table in a statement."""
    return ".".join(map(quoted, path))


class SqlSession(ABC):
    """One transaction of a database."""

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> list[Any]:
        """The rows that a statement returns; `?` stands for each of the values."""

    @abstractmethod
    def add(self, path: Path, rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        """Append rows to a table."""

    @abstractmethod
    def columns(self, path: Path) -> list[SqlColumn]:
        """The columns of a table; none if it does not exist."""

    @abstractmethod
    def found(self, query: str) -> pa.RecordBatchReader:
        """The rows of a query, in types that the database's package finds."""

    def rows(self, path: Path, columns: Sequence[SqlColumn]) -> pa.RecordBatchReader:
        """All rows of a table."""
        found = self.found(f"SELECT {', '.join(quoted(column.name) for column in columns)} FROM {name_of(path)}")
        kinds = [given.type if own.kind is None else own.kind for own, given in zip(columns, found.schema, strict=True)]
        schema = pa.schema(zip((column.name for column in columns), kinds, strict=True))
        parts = (zip(part.columns, kinds, strict=True) for part in found)
        batches = (pa.RecordBatch.from_arrays([*itertools.starmap(_of_kind, part)], schema=schema) for part in parts)
        return pa.RecordBatchReader.from_batches(schema, batches)

    @abstractmethod
    def sql_type(self, kind: pa.DataType) -> str:
        """The type of a new column."""

    def make(self, path: Path, columns: pa.Schema, *more: str) -> None:
        """Make a table, with more columns as statements have them."""
        made = (f"{quoted(field.name)} {self.sql_type(field.type)}" for field in columns)
        self.execute(f"CREATE TABLE {name_of(path)} ({', '.join((*made, *more))})")

    def prepared(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in types that the database's package takes."""
        return rows


class AdbcSession(SqlSession):
    """A transaction through a package of ADBC.

    Args:
        cursor: A cursor of a connection without transactions of its own.
    """

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, statement: str, *values: Any) -> list[Any]:
        self._cursor.execute(statement, values or None)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def add(self, path: Path, rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        schema = {"db_schema_name": path[-2]} if len(path) > 1 else {}
        self._cursor.adbc_ingest(path[-1], rows, mode="append", temporary=is_temporary, **schema)

    def found(self, query: str) -> pa.RecordBatchReader:
        self._cursor.execute(query)
        return self._cursor.fetch_record_batch()


def _of_kind(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as the database's package gives them, in the type of their column."""
    if values.type == kind:
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    if pa.types.is_time(kind):
        values = pc.binary_join_element_wise("1970-01-01", values, " ").cast(pa.timestamp("us"))
    return values.cast(kind)
