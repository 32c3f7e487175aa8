"""Databases of SQLite as transactional targets, through ADBC."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite.dbapi
import pyarrow as pa

from dagflow.errors import StorageError
from operators.sink.tables.sql_session import AdbcSession, Path, SqlColumn, quoted
from operators.sink.tables.sql_table import SqliteFileTable
from operators.sink.tables.sql_target import SqlTarget

_PATIENCE_MS = 60_000
"""How long a transaction waits for one of another program."""

_NUMBER_DIGITS = 15
"""Digits of a decimal that SQLite keeps as a number: its doubles hold so many."""

_DECIMAL = re.compile(r"(?:TEXT_)?DECIMAL\((\d+), ?(\d+)\)|NUMERIC\((\d+), ?(\d+)\)")

_TYPES = {
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}
"""Types of columns whose values have a form of their own."""

_AFFINITIES = {
    "INT": pa.int64(),
    **dict.fromkeys(("CHAR", "CLOB", "TEXT"), pa.string()),
    "BLOB": pa.binary(),
    **dict.fromkeys(("REAL", "FLOA", "DOUB"), pa.float64()),
}
"""As SQLite finds them, in this order, in the names of other types."""


class SqliteFileTarget(SqlTarget):
    """A table in a file, which SQLite makes if it does not exist."""

    table: SqliteFileTable

    def is_there(self) -> bool:
        return os.path.exists(self.table.database)

    def index_of_keys(self) -> str:
        return quoted(f"{self.table.path[-1]} by its keys")

    @contextlib.contextmanager
    def session(self, *, writes: bool) -> Iterator[SqliteSession]:
        try:
            # Without transactions of the package's own.
            with (
                adbc_driver_sqlite.dbapi.connect(f"file:{_escaped(self.table.database)}", autocommit=True) as opened,
                opened.cursor() as cursor,
            ):
                session = SqliteSession(cursor)
                session.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
                session.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
                yield session
                session.execute("COMMIT")
        except adbc_driver_manager.Error as error:
            raise StorageError(f"SQLite refused: {error}", url=self.name) from error


def _escaped(path: str) -> str:
    """A path in a URI of SQLite."""
    return "".join(f"%{ord(letter):02x}" if letter in "%?#" else letter for letter in path)


class SqliteSession(AdbcSession):
    """A transaction of a file."""

    def columns(self, path: Path) -> list[SqlColumn]:
        (name,) = path
        rows = self.execute(f"PRAGMA table_xinfo({quoted(name)})")
        return [_column(*row) for row in rows]

    def sql_type(self, kind: pa.DataType) -> str:
        if pa.types.is_decimal(kind):
            text = "" if kind.precision <= _NUMBER_DIGITS else "TEXT_"
            return f"{text}DECIMAL({kind.precision}, {kind.scale})"
        return {own: name for name, own in [*_NAMES.items(), *_TYPES.items()]}[kind]

    def prepared(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Decimals and times as text, which SQLite makes a number of in a column of numbers."""
        types = pa.types
        columns = [
            column.cast(pa.string()) if types.is_decimal(column.type) or types.is_temporal(column.type) else column
            for column in rows.columns
        ]
        return pa.RecordBatch.from_arrays(columns, rows.schema.names)


_NAMES = {"BIGINT": pa.int64(), "TEXT": pa.string(), "BLOB": pa.binary(), "DOUBLE": pa.float64()}


def _column(number: int, name: str, sql_type: str, is_required: int, default: Any, key: int, hidden: int) -> SqlColumn:
    """A column, from a row of PRAGMA table_xinfo."""
    sql_type = sql_type.upper()
    kind = _TYPES.get(sql_type)
    if kind is None and (found := _DECIMAL.fullmatch(sql_type)):
        digits, scale = (int(each) for each in found.groups() if each is not None)
        holds = digits <= _NUMBER_DIGITS or sql_type.startswith("TEXT_")
        kind = pa.decimal128(digits, scale) if holds and scale <= digits <= 38 else None
    elif kind is None:
        kind = next((own for word, own in _AFFINITIES.items() if word in sql_type), None)
    why = "" if kind else f"which is {sql_type or 'without a type'}, a type that dagflow does not write"
    return SqlColumn(name, kind, bool(is_required), "which the database computes" if hidden else why)
