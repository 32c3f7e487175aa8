"""Transactions of databases, as tables use them; only the driver imports this."""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """A column of a table in a database.

    Attributes:
        name: Its name.
        kind: The type of its values; None where dagflow writes no such values.
        is_required: Whether it allows no null.
        why_none: Why it takes no values of records; "" if it does.
    """

    name: str
    kind: pa.DataType | None
    is_required: bool
    why_none: str = ""


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

    def rows(self, path: Path, columns: Sequence[SqlColumn]) -> pa.Table:
        """All rows of a table."""
        names = ", ".join(quoted(column.name) for column in columns)
        found = self.execute(f"SELECT {names} FROM {name_of(path)}")
        values = zip(*found, strict=True) if found else [()] * len(columns)
        return pa.table(
            {column.name: _of_values(list(given), column.kind) for column, given in zip(columns, values, strict=True)}
        )

    @abstractmethod
    def sql_type(self, kind: pa.DataType) -> str:
        """The type of a new column."""

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


def _of_values(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values as the database's package gives them, in the type of their column."""
    if kind is None:
        return pa.array([None if value is None else str(value) for value in values], pa.string())
    if pa.types.is_decimal(kind):
        texts = (f"{value:.{kind.scale}f}" if isinstance(value, float) else str(value) for value in values)
        values = [None if value is None else text for value, text in zip(values, texts, strict=True)]
    if pa.types.is_time(kind):
        values = [datetime.time.fromisoformat(value) if isinstance(value, str) else value for value in values]
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(values).cast(kind)
