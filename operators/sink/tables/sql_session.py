"""Transactions of databases, as tables use them: what a statement, a type and the columns of a table are in each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.frozen import frozen
from operators.sink.columns.nested_types import stored_type, table_type

_DECIMAL = re.compile(r"(?:text_)?(?:decimal|numeric)\((\d+), ?(\d+)\)", re.IGNORECASE)


@frozen
class SqlColumn:
    """A column of a table in a database.

    Attributes:
        is_required: Whether it allows no null.
        why_none: Why it takes no values of records; "" if it does.
        longest: Most characters of its text; None for no limit.
    """

    name: str
    kind: pa.DataType | None
    is_required: bool
    why_none: str = ""
    longest: int | None = None


def _column(
    kind: pa.DataType | None, name: str, sql_type: str, is_required: bool, is_filled: bool, why: str, *longest: int
) -> SqlColumn:
    why = why or ("" if kind else f"which is {sql_type or 'without a type'}, a type that dagflow does not write")
    return SqlColumn(name, kind, bool(is_required) and not (why and is_filled), why, *longest)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Names in a statement."""
    return ", ".join(map(quoted, names))


def name_of(path: tuple[str, ...]) -> str:
    """A table in a statement."""
    return ".".join(map(quoted, path))


class SqlSession:
    """One transaction of a database.

    Attributes:
        cursor: A cursor of a connection without transactions of its own.
        statement: The newest statement; "" if it had values.
        package: The module that has `connect` and `Error`; it is imported with the first transaction.
        columns_query: For a table: its columns with name, type, whether null is forbidden, whether the database has a
            value where a record has none, why records may have none, and perhaps most characters.
        types: Types by their names; of several names for one type, new columns have the last one.
        has_index: Whether a new table gets an index of upsert_by.
        passing: How codes of errors begin that another attempt may not find: the database is not there, starts, ends,
            or has too much to do.
    """

    package: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {"autocommit": True}
    columns_query: ClassVar[str]
    types: ClassVar[Mapping[str, pa.DataType]] = {}
    has_index: ClassVar[bool] = True
    passing: ClassVar[tuple[str, ...]] = ()

    cursor: Any
    statement = ""

    def begin(self, *, writes: bool) -> None:
        self.execute("BEGIN")

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """The rows that a statement returns; $1, $2 and so on stand for the values, and come first in this order."""
        self.statement = "" if values else statement
        self.cursor.execute(statement, values or None)
        return list(self.cursor.fetchall()) if self.cursor.description else []

    def add(self, path: tuple[str, ...], rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        """Append rows to a table."""
        self.statement, schema = "", {"db_schema_name": path[-2]} if len(path) > 1 else {}
        self.cursor.adbc_ingest(path[-1], rows, mode="append", temporary=is_temporary, **schema)

    def found(self, query: str) -> pa.RecordBatchReader:
        """The rows of a query, in types that the database's package finds."""
        self.cursor.execute(query)
        return self.cursor.fetch_record_batch()

    def columns(self, path: tuple[str, ...]) -> list[SqlColumn]:
        """The columns of a table; none if it does not exist."""
        rows = self.execute(self.columns_query, *path)
        kinds = {sql_type: self.kind_of(sql_type) for sql_type in {row[1] for row in rows}}
        return [_column(kinds[row[1]], *row) for row in rows]

    def kind_of(self, sql_type: str) -> pa.DataType | None:
        """The type of the values of a column; None where dagflow has no such type."""
        if number := _DECIMAL.fullmatch(sql_type):
            digits, scale = map(int, number.groups())
            return pa.decimal128(digits, scale) if scale <= digits <= 38 else None
        return self.types.get(sql_type)

    def sql_type(self, kind: pa.DataType) -> str:
        """The type of a new column."""
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision}, {kind.scale})"
        return {own: name for name, own in self.types.items()}[kind]

    def make(self, path: tuple[str, ...], columns: pa.Schema, *more: str) -> None:
        """Make a table, with more columns as statements have them."""
        made = (f"{quoted(field.name)} {self.sql_type(field.type)}" for field in columns)
        self.execute(f"CREATE TABLE {name_of(path)} ({', '.join((*made, *more))})")


_NUMBER_DIGITS = 15
"""Digits of a decimal that SQLite keeps as a number: its doubles hold so many."""

_AFFINITIES = {
    **dict.fromkeys(("INT", "BIGINT"), pa.int64()),
    **dict.fromkeys(("CHAR", "CLOB", "TEXT"), pa.string()),
    "BLOB": pa.binary(),
    **dict.fromkeys(("REAL", "FLOA", "DOUB", "DOUBLE"), pa.float64()),
}
"""As SQLite finds them, in this order, in the names of types whose values have no form of their own."""


class SqliteSession(SqlSession):
    """A transaction of SQLite."""

    package = "adbc_driver_sqlite.dbapi"
    columns_query = """
        SELECT name, upper(type), "notnull", hidden OR dflt_value IS NOT NULL,
            CASE WHEN hidden THEN 'which the database computes' ELSE '' END
        FROM pragma_table_xinfo($1) ORDER BY cid
    """
    types: ClassVar[Mapping[str, pa.DataType]] = {
        **_AFFINITIES,
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIME": pa.time64("us"),
        **dict.fromkeys(("DATETIME", "TIMESTAMP"), pa.timestamp("us")),
        "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    }

    def begin(self, *, writes: bool) -> None:
        self.execute("PRAGMA busy_timeout = 60000")  # milliseconds, in which others may end theirs
        self.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def add(self, path: tuple[str, ...], rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        """Decimals and times as text, which SQLite makes a number of in a column of numbers."""
        kinds = [
            pa.string() if pa.types.is_decimal(kind) or pa.types.is_temporal(kind) else kind
            for kind in rows.schema.types
        ]
        schema = pa.schema(zip(rows.schema.names, kinds, strict=True))
        super().add(path, rows.cast(schema), is_temporary=is_temporary)

    def sql_type(self, kind: pa.DataType) -> str:
        is_text = pa.types.is_decimal(kind) and kind.precision > _NUMBER_DIGITS
        return f"{'TEXT_' if is_text else ''}{super().sql_type(kind)}"

    def kind_of(self, sql_type: str) -> pa.DataType | None:
        if (kind := super().kind_of(sql_type)) is None:
            return next((own for word, own in _AFFINITIES.items() if word in sql_type), None)
        is_rounded = self.sql_type(kind).startswith("TEXT_") and not sql_type.startswith("TEXT_")
        return None if is_rounded else kind


_COLUMNS_QUERY = """
SELECT column_name::text, data_type::text || CASE data_type WHEN 'numeric' THEN
        coalesce('(' || numeric_precision || ',' || numeric_scale || ')', '') ELSE '' END,
    is_nullable = 'NO', is_generated = 'ALWAYS' OR is_identity = 'YES' OR column_default IS NOT NULL,
    CASE WHEN is_generated = 'ALWAYS' THEN 'which the database computes'
        WHEN is_identity = 'YES' OR column_default LIKE 'nextval(%' THEN 'which the database numbers' ELSE '' END,
    character_maximum_length::int
FROM information_schema.columns
WHERE table_catalog = current_database() AND {0}(table_schema::text) = {0}($1) AND {0}(table_name::text) = {0}($2)
ORDER BY ordinal_position
"""


class DuckdbSession(SqlSession):
    """A transaction of DuckDB, which gives types to columns as to those of Arrow."""

    package = "duckdb"
    options: ClassVar[Mapping[str, Any]] = {}
    has_index = False
    columns_query = _COLUMNS_QUERY.format("lower")  # case does not count

    def add(self, path: tuple[str, ...], rows: pa.RecordBatchReader, *, is_temporary: bool = False) -> None:
        names = listed(rows.schema.names)
        self.cursor.register("_dagflow_rows", rows)
        self.cursor.execute(f"INSERT INTO {name_of(path)} ({names}) SELECT {names} FROM _dagflow_rows")
        self.cursor.unregister("_dagflow_rows")

    def found(self, query: str) -> pa.RecordBatchReader:
        return self.cursor.sql(query).to_arrow_reader()

    def sql_type(self, kind: pa.DataType) -> str:
        return str(self.cursor.from_arrow(pa.table([pa.array([], kind)], ["value"])).types[0])

    def kind_of(self, sql_type: str) -> pa.DataType | None:
        """None also for a type whose values Arrow does not tell apart from others: such columns would get another."""
        found = self.found(f"SELECT CAST(NULL AS {sql_type})").schema.field(0).type
        # No column of a table has the last type.
        kind = table_type(found, lambda leaf: stored_type(leaf, 8, pa.time64("us")) or pa.large_binary())
        return kind if self.sql_type(kind) == sql_type else None


class PostgresSession(SqlSession):
    """A transaction of PostgreSQL."""

    package = "adbc_driver_postgresql.dbapi"
    columns_query = _COLUMNS_QUERY.format("")
    types: ClassVar[Mapping[str, pa.DataType]] = {
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "integer": pa.int32(),
        "bigint": pa.int64(),
        "real": pa.float32(),
        "double precision": pa.float64(),
        **dict.fromkeys(("character varying", "text"), pa.string()),
        "bytea": pa.binary(),
        "date": pa.date32(),
        "time without time zone": pa.time64("us"),
        "timestamp without time zone": pa.timestamp("us"),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
    }
    passing = ("08", "40", "53", "57")
