"""Tables of PostgreSQL as transactional targets, through ADBC, which loads rows by COPY."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import pyarrow as pa

from dagflow.errors import StorageError
from dagflow.storage.location import redacted_within
from operators.sink.tables.sql_session import AdbcSession, Path, SqlColumn
from operators.sink.tables.sql_table import PostgresTable
from operators.sink.tables.sql_target import SqlTarget

_TYPES = {
    "character varying": pa.string(),
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time without time zone": pa.time64("us"),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}

_COLUMNS = """
SELECT column_name::text, data_type::text, numeric_precision::int, numeric_scale::int, is_nullable = 'NO',
    is_generated = 'ALWAYS' OR is_identity = 'YES' OR column_default IS NOT NULL,
    CASE WHEN is_generated = 'ALWAYS' THEN 'which the database computes'
    WHEN is_identity = 'YES' OR column_default LIKE 'nextval(%' THEN 'which the database numbers' ELSE '' END,
    character_maximum_length::int
FROM information_schema.columns WHERE table_schema::text = ? AND table_name::text = ? ORDER BY ordinal_position
"""

_PLACEHOLDER = re.compile(r'"[^"]*"|(\?)')


class PostgresTarget(SqlTarget):
    """A table of a server, in a schema that is there."""

    table: PostgresTable

    def is_there(self) -> bool:
        return True

    def index_of_keys(self) -> str:
        return ""  # the server gives it a name

    @contextlib.contextmanager
    def session(self, *, writes: bool) -> Iterator[PostgresSession]:
        try:
            # Without transactions of the package's own.
            with (
                adbc_driver_postgresql.dbapi.connect(self.table.connection, autocommit=True) as opened,
                opened.cursor() as cursor,
            ):
                session = PostgresSession(cursor)
                session.execute("BEGIN" if writes else "BEGIN READ ONLY")
                yield session
                session.execute("COMMIT")
        except adbc_driver_manager.Error as error:
            raise StorageError(f"PostgreSQL refused: {redacted_within(str(error))}", url=self.name) from error


class PostgresSession(AdbcSession):
    """A transaction of a server."""

    def execute(self, statement: str, *values: Any) -> list[Any]:
        numbers = itertools.count(1)
        return super().execute(
            _PLACEHOLDER.sub(lambda found: f"${next(numbers)}" if found[1] else found[0], statement), *values
        )

    def columns(self, path: Path) -> list[SqlColumn]:
        return [_column(*row) for row in self.execute(_COLUMNS, *path)]

    def sql_type(self, kind: pa.DataType) -> str:
        if pa.types.is_decimal(kind):
            return f"numeric({kind.precision}, {kind.scale})"
        return {own: name for name, own in _TYPES.items()}[kind]


def _column(
    name: str,
    sql_type: str,
    digits: int | None,
    scale: int | None,
    is_required: bool,
    is_filled: bool,
    why: str,
    longest: int | None,
) -> SqlColumn:
    """A column, from a row of _COLUMNS; the database fills some where no record has a value."""
    kind = _TYPES.get(sql_type)
    if sql_type == "numeric" and digits is not None and scale is not None and 0 <= scale <= digits <= 38:
        kind = pa.decimal128(digits, scale)
    why = why or ("" if kind else f"which is {sql_type}, a type that dagflow does not write")
    return SqlColumn(name, kind, is_required and not (why and is_filled), why, longest)
