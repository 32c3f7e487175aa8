"""Databases of DuckDB as transactional targets."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from dagflow.errors import StorageError
from operators.sink.columns.nested_types import parts_of, table_type
from operators.sink.tables.sql_session import Path, SqlColumn, SqlSession, name_of, quoted
from operators.sink.tables.sql_table import DuckdbFileTable
from operators.sink.tables.sql_target import SqlTarget

_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}

_OTHER_TYPE = re.compile(
    r"\b(UUID|JSON|ENUM|HUGEINT|UHUGEINT|INTERVAL|BIT|UNION|TIMESTAMP_\w+|TIME_NS|TIME WITH TIME ZONE|BIGNUM|VARIANT|"
    r"GEOMETRY|UTINYINT|USMALLINT|UINTEGER|UBIGINT|NULL)\b|\[\d+\]"
)
"""Types whose values Arrow's types do not tell apart from others, or that have no table type of dagflow."""


_OF_TABLE = "database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
"""Rows about a table or a view; case does not count."""


class DuckdbFileTarget(SqlTarget):
    """A table in a file, which DuckDB makes if it does not exist."""

    table: DuckdbFileTable

    def is_there(self) -> bool:
        return os.path.exists(self.table.database)

    @contextlib.contextmanager
    def session(self, *, writes: bool) -> Iterator[DuckdbSession]:
        try:
            with duckdb.connect(self.table.database) as connection:
                connection.execute("BEGIN TRANSACTION")
                yield DuckdbSession(connection)
                connection.execute("COMMIT")
        except duckdb.Error as error:
            raise StorageError(f"DuckDB refused: {error}", url=self.name) from error


class DuckdbSession(SqlSession):
    """A transaction of a file."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, *values: Any) -> list[Any]:
        return list(self._connection.execute(statement, values).fetchall())

    def add(self, path: Path, rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        names = ", ".join(map(quoted, rows.schema.names))
        self._connection.register("_dagflow_rows", rows)
        self._connection.execute(f"INSERT INTO {name_of(path)} ({names}) SELECT {names} FROM _dagflow_rows")
        self._connection.unregister("_dagflow_rows")

    def columns(self, path: Path) -> list[SqlColumn]:
        schema, table = path if len(path) > 1 else ("main", *path)
        found = self.execute(
            f"SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE {_OF_TABLE} ORDER BY column_index",
            schema,
            table,
        )
        if not found:
            return []
        computed = self._computed(schema, table)
        kinds = self.found(f"SELECT * FROM {name_of(path)} LIMIT 0").schema
        return [
            _column(name, sql_type, kinds.field(name).type, not is_nullable, is_computed=name in computed)
            for name, sql_type, is_nullable in found
        ]

    def _computed(self, schema: str, table: str) -> set[str]:
        """Columns that the database computes, which only the text of the table shows."""
        texts = self.execute(f"SELECT sql FROM duckdb_tables() WHERE {_OF_TABLE}", schema, table)
        names = re.findall(r'("(?:[^"]|"")+"|\w+) [^,]*? GENERATED ALWAYS AS', str(texts))
        return {name[1:-1].replace('""', '"') if name.startswith('"') else name for name in names}

    def found(self, query: str) -> pa.RecordBatchReader:
        return self._connection.sql(query).to_arrow_reader()

    def sql_type(self, kind: pa.DataType) -> str:
        parts = [self.sql_type(part.type) for part in parts_of(kind)]
        if pa.types.is_struct(kind):
            named = zip(parts_of(kind), parts, strict=True)
            return f"STRUCT({', '.join(f'{quoted(part.name)} {text}' for part, text in named)})"
        if pa.types.is_map(kind):
            return f"MAP({', '.join(parts)})"
        if parts:
            return f"{parts[0]}[]"
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        return _TYPES[kind]


def _column(name: str, sql_type: str, kind: pa.DataType, is_required: bool, *, is_computed: bool) -> SqlColumn:
    if is_computed:
        return SqlColumn(name, None, is_required, "which the database computes")
    if _OTHER_TYPE.search(re.sub(r'"(?:[^"]|"")*"', "", sql_type)):
        return SqlColumn(name, None, is_required, f"which is {sql_type}, a type that dagflow does not write")
    return SqlColumn(name, table_type(kind, _in_utc), is_required)


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """The type of a column; DuckDB names the zone of its settings, in which it shows instants."""
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) and kind.tz else kind
