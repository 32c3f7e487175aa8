"""Tables of PostgreSQL as transactional targets, through ADBC, which loads rows by COPY."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql.dbapi
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.records import RecordBatch
from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage.location import name_of as file_name
from dagflow.storage.location import redacted_within
from dagflow.storage.pending import FileFacts, PendingFile
from operators.sink.columns.table_columns import schema_text
from operators.sink.formats.base import FileEncoder, FileStream
from operators.sink.tables.sql_session import AdbcSession, Path, SqlColumn, SqlSession, name_of, quoted
from operators.sink.tables.sql_table import PostgresTable, staged_as
from operators.sink.tables.sql_target import GIVEN, PART, SqlTarget
from operators.sink.tables.table_files import DataFileFormat, FactOrigin, without_mark
from operators.sink.tables.table_target import fields_of

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

_LEFT = """
SELECT tablename::text FROM pg_tables
WHERE schemaname::text = ? AND starts_with(tablename::text, ?) AND tablename::text COLLATE "C" < ?
"""

_PLACEHOLDER = re.compile(r'"[^"]*"|(\?)')


_CHUNK_BYTES = 8 << 20
"""Bytes of rows that a task sends at once."""

_PAUSE_S = 2.0
"""Between two attempts of a task, in which a server may come back."""

_STAGED = "_dagflow_"
"""How the names of tables begin that tasks load; the rest is the name of the file."""


_FILE, _ROW = "_dagflow_number", "_dagflow_row"
"""The order of rows that replace others: that of their files, and in each that in which they were loaded."""


def _staged(table: PostgresTable, url: str) -> Path:
    """The table that has the rows of a file."""
    return table.path[0], _STAGED + file_name(url).partition(".")[0]


class PostgresTarget(SqlTarget):
    """A table of a server, in a schema that is there.

    Tasks load the rows into tables beside it, each named by a file of the window, and a transaction moves them.
    """

    table: PostgresTable

    def load(self, session: SqlSession, file: PendingFile, columns: pa.Schema, part: int | None) -> None:
        names = ", ".join(map(quoted, fields_of(file).names))
        more, value = ("", "") if part is None else (f", {PART}", f", {part}")
        staged = name_of(_staged(self.table, file.final_url))
        session.execute(f"INSERT INTO {name_of(self.table.path)} ({names}{more}) SELECT {names}{value} FROM {staged}")
        session.execute(f"DROP TABLE {staged}")

    def load_newest(
        self, session: SqlSession, files: Sequence[PendingFile], keys: Sequence[str], columns: pa.Schema
    ) -> None:
        parts = []
        for number, file in enumerate(files):
            own = fields_of(file).names
            values = (
                f"CAST({quoted(each.name) if each.name in own else 'NULL'} AS {session.sql_type(each.type)}) "
                f"AS {quoted(each.name)}"
                for each in columns
            )
            place = name_of(_staged(self.table, file.final_url))
            parts.append(f"SELECT {number} AS {_FILE}, {_ROW}, {REMOVED}, {', '.join(values)} FROM {place}")
        if parts:
            names, own = (", ".join(map(quoted, each)) for each in (columns.names, keys))
            session.execute(
                f"INSERT INTO {GIVEN} ({names}, {REMOVED}) SELECT DISTINCT ON ({own}) {names}, {REMOVED} FROM "
                f"({' UNION ALL '.join(parts)}) AS given ORDER BY {own}, {_FILE} DESC, {_ROW} DESC"
            )
        for file in files:
            session.execute(f"DROP TABLE {name_of(_staged(self.table, file.final_url))}")

    def clear(self, session: SqlSession, writer: str, newest: int) -> None:
        """Remove tables of attempts whose files were never decided."""
        schema, prefix = self.table.path[0], f"{_STAGED}{staged_as(writer)}-"
        for (name,) in session.execute(_LEFT, schema, prefix, f"{prefix}{newest + 1:08d}"):
            session.execute(f"DROP TABLE {name_of((schema, name))}")

    def is_there(self) -> bool:
        return True

    def index_of_keys(self) -> str:
        return ""  # the server gives it a name

    def session(self, *, writes: bool) -> AbstractContextManager[PostgresSession]:
        return _transaction(self.table, writes=writes)


@contextlib.contextmanager
def _transaction(table: PostgresTable, *, writes: bool) -> Iterator[PostgresSession]:
    with (
        _refusals(table),
        # Without transactions of the package's own.
        adbc_driver_postgresql.dbapi.connect(table.connection, autocommit=True) as opened,
        opened.cursor() as cursor,
    ):
        session = PostgresSession(cursor)
        session.execute("BEGIN" if writes else "BEGIN READ ONLY")
        yield session
        session.execute("COMMIT")


@contextlib.contextmanager
def _refusals(table: PostgresTable) -> Iterator[None]:
    try:
        yield
    except adbc_driver_manager.Error as error:
        # The server has said what it refuses, unless it is not there, starts, ends, or has too much to do.
        passes = (error.sqlstate or "08").startswith(("08", "40", "53", "57"))
        kind = TransientStorageError if passes else StorageError
        advice = "; ".join(getattr(error, "__notes__", ()))
        raise kind(f"PostgreSQL refused: {redacted_within(str(error))}", url=table.name, hint=advice) from error


@contextlib.contextmanager
def _patience() -> Iterator[None]:
    """Let some time pass before a task runs again that has found no server."""
    try:
        yield
    except TransientStorageError:
        time.sleep(_PAUSE_S)
        raise


class StagedFormat(DataFileFormat):
    """Files that name a table, into which a task loads their rows; the transaction of their window moves them."""

    _table: PostgresTable

    @classmethod
    def into(
        cls, table: PostgresTable, origin: FactOrigin, values: dict[str, str | None], fields: list[pa.Field]
    ) -> StagedFormat:
        """The format of files of a table."""
        format = cls.of(origin, values, fields)
        format._table = table
        return format

    @property
    def extension(self) -> str:
        return ".table"

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        return _StagedEncoder(self._table, self, stream, self.layout_of(batch))

    def facts_of(self, schema: pa.Schema, nulls: Mapping[str, int]) -> FileFacts:
        """The facts of a table with these columns, and so many nulls in each."""
        origin = self._origin
        causes = {name: origin.causes[name] for name in schema.names if name in origin.causes}
        return self.shared(
            FileFacts(origin.operator, schema_text(without_mark(schema)), nulls={**nulls}, causes=causes)
        )


class _StagedEncoder(FileEncoder):
    """Loads rows into a table of the file's name, in one transaction, which a task that fails does not commit."""

    def __init__(self, table: PostgresTable, format: StagedFormat, stream: FileStream, schema: pa.Schema) -> None:
        self._table, self._format, self._stream, self._schema = table, format, stream, schema
        self._nulls = Counter[str]()
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._transaction = contextlib.ExitStack()
        self._session: PostgresSession | None = None

    def write(self, rows: pa.RecordBatch) -> int:
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= _CHUNK_BYTES:
            self._send()
        return len(rows)

    def _send(self) -> None:
        held = (pa.Table.from_batches([rows]).cast(self._schema) for rows in self._held)
        rows = pa.concat_tables([self._schema.empty_table(), *held])
        self._nulls.update({name: rows[name].null_count for name in rows.column_names})
        path = _staged(self._table, self._stream.url)
        with _patience(), _refusals(self._table):
            if self._session is None:
                self._session = self._transaction.enter_context(_transaction(self._table, writes=True))
                numbers = [f"{_ROW} bigserial"] if self._table.upsert_by else []
                mark = [f"{REMOVED} boolean"] if numbers and REMOVED not in self._schema.names else []
                self._session.make(path, self._schema, *numbers, *mark)
            self._session.add(path, rows.to_reader())
        self._held, self._held_bytes = [], 0

    def finish(self) -> None:
        self._send()
        with _patience():
            self._transaction.close()
        self._stream.write(_staged(self._table, self._stream.url)[-1].encode())
        self._stream.facts = self._format.facts_of(self._schema, self._nulls)


_NOT_ALLOWED = "42501"


class PostgresSession(AdbcSession):
    """A transaction of a server."""

    def execute(self, statement: str, *values: Any) -> list[Any]:
        numbers = itertools.count(1)
        try:
            return super().execute(
                _PLACEHOLDER.sub(lambda found: f"${next(numbers)}" if found[1] else found[0], statement), *values
            )
        except adbc_driver_manager.Error as error:
            if error.sqlstate == _NOT_ALLOWED and not values:
                error.add_note(f"let the owner of the table run this, and continue the run: {statement}")
            raise

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
