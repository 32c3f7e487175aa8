"""Tables of databases: tasks write files or load tables beside, and transactions of the driver take the rows over."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import importlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import StorageError, TransientStorageError
from dagflow.late import compute as pc
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import absolute, escaped, is_local, join, redacted, redacted_within
from dagflow.storage.location import name_of as file_name
from dagflow.storage.pending import FileFacts, PendingFile
from operators.column_names import shown_name, why_no_name
from operators.format_registry import require_package
from operators.sink.columns.nested_types import common_type, with_columns
from operators.sink.columns.table_columns import schema_of_text
from operators.sink.columns.table_names import MOST_NAMES, TableNames
from operators.sink.formats.base import ChunkedEncoder, FileEncoder, FileStream
from operators.sink.tables.base import DataFiles, Table
from operators.sink.tables.sql_session import DuckdbSession, PostgresSession, SqliteSession, SqlSession, listed, name_of
from operators.sink.tables.table_files import DataFileFormat, FactOrigin, TableFiles, TableShape

_NOT_ALLOWED = "42501"
"""The code of the error that only the owner of a table may change it."""

_BATCH_ROWS = 1 << 16

GIVEN = ("_dagflow_given",)
"""The temporary table of rows that replace others."""

ROW = "_dagflow_row"
"""The column that numbers them."""

Numbers = Mapping[str, int]


class DatabaseTable(Table):
    """A table of a database: tasks write files, and a transaction of the driver loads them.

    Attributes:
        session_class: Its transactions.
        extra: The extra of dagflow that has its package.
        place: The table, as the app gives it.
        path: The names by which the database knows the table, from the outside to the inside.
        has_parts: Whether columns may be structs, lists and maps.
        lacks_nan: Whether the database has no NaN.
        lacks_nul: Whether its text has no NUL.
        own_names: How names of tables begin, in lower case, that apps may not have.
        own_columns: Hidden columns that each table has already.
        most_columns: Most columns of a table.
        most_bytes: Most bytes of a name; None for no limit.
        address: The address of the database, as its package takes it.
        keeps_parts: Whether rows say which file they came with.
    """

    target_class: ClassVar[str] = "operators.sink.tables.sql_target.SqlTarget"
    session_class: ClassVar[type[SqlSession]]
    extra: ClassVar[str]
    takes_upserts: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    has_parts: ClassVar[bool] = False
    lacks_nan: ClassVar[bool] = False
    lacks_nul: ClassVar[bool] = False
    own_names: ClassVar[tuple[str, ...]] = ("_dagflow_",)
    own_columns: ClassVar[tuple[str, ...]] = ()
    most_columns: ClassVar[int] = MOST_NAMES
    most_bytes: ClassVar[int | None] = None

    place = address = ""
    keeps_parts = False

    def __init__(self, location: str, path: Sequence[str], partition_by: Sequence[str], **options: Any) -> None:
        if partition_by:
            raise ValueError(f"partition_by: a table of {self.format_name} has no partitions that an app could choose")
        super().__init__(location, (), **options)
        self.path = tuple(path)
        self.require_plain(self.extra)
        for name in self.path:
            if why := why_no_name(name):
                raise ValueError(f"table: {self.format_name} has no table {shown_name(name)}: {why}")
            if own := next(filter(name.lower().startswith, self.own_names), ""):
                raise ValueError(f"table: {shown_name(name)} begins with {own}, as tables do that are not for apps")
            if self.most_bytes and len(name.encode()) > self.most_bytes:
                raise ValueError(f"table: a name of {self.format_name} has {self.most_bytes} bytes at most")
        require_package(f"table: {self.extra}", self.session_class.package.partition(".")[0], self.extra)

    @property
    def name(self) -> str:
        return f"table {self.extra}:{self.place}"

    @contextlib.contextmanager
    def session(self, *, writes: bool, pause_s: float = 0.0) -> Iterator[SqlSession]:
        """A transaction, which is committed at the end, and rolled back after an error.

        Where the database may come back, the error follows after a pause.
        """
        package, session = importlib.import_module(self.session_class.package), self.session_class()
        try:
            with package.connect(self.address, **session.options) as opened, opened.cursor() as session.cursor:
                session.begin(writes=writes)
                yield session
                session.execute("COMMIT")
        except package.Error as error:
            code, said, advice = getattr(error, "sqlstate", None) or "08", redacted_within(str(error)), ""
            if code == _NOT_ALLOWED and session.statement:
                advice = f"let the owner of the table run this, and continue the run: {session.statement}"
            kind = TransientStorageError if code.startswith(session.passing) else StorageError
            time.sleep(pause_s if kind is TransientStorageError else 0.0)
            raise kind(f"{self.format_name} refused: {said}", url=self.name, hint=advice) from error

    @property
    def may_be_there(self) -> bool:
        """Whether the database has to be asked for the table."""
        return self.is_on_server or os.path.exists(self.address)

    def load(
        self, session: SqlSession, storage: StorageContext, file: PendingFile, columns: pa.Schema, numbers: Numbers
    ) -> None:
        """Add the rows of a file to the table, or to GIVEN where they are numbered.

        They get the columns in numbers, each with its value; that of ROW counts on from row to row.
        """
        columns, opened = columns.append(pa.field(REMOVED, pa.bool_())), storage.open_file(file.final_url)
        with opened as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
            own = [columns.field(name).with_nullable(True) for name in parquet.schema_arrow.names]
            schema = pa.schema([*own, *((name, pa.int64()) for name in numbers)])
            rows = pa.RecordBatchReader.from_batches(schema, _numbered(parquet, schema, numbers))
            session.add(GIVEN if ROW in numbers else self.path, rows, is_temporary=ROW in numbers)

    def clear(self, session: SqlSession, writer: str, newest: int) -> None:  # most leave nothing there
        """Remove what attempts at windows of a writer, up to the newest one, have left in the database."""

    def keep_parts(self) -> None:
        self.keeps_parts = True

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        return common_type(there, given)

    def names(self, shape: TableShape) -> TableNames:
        taken = {name: f"a column '{name}': {self.format_name} has one of its own" for name in self.own_columns}
        names = super().names(replace(shape, taken={**taken, **shape.taken}))
        names.most_names, names.most_bytes = self.most_columns, self.most_bytes
        names.why_no_parts = "" if self.has_parts else f"{self.format_name} has no structs, lists and maps"
        return names

    def holdable(
        self, rows: pa.RecordBatch, required: Iterable[str]
    ) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
        unheld: dict[str, dict[int, str]] = {}
        for field, column in zip(rows.schema, rows.columns, strict=True):
            for is_unheld, why in self._unheld(field, column):
                if numbers := pc.indices_nonzero(is_unheld).to_pylist():
                    unheld.setdefault(field.name, {}).update(dict.fromkeys(numbers, why))
        return rows, unheld

    def _unheld(self, field: pa.Field, column: pa.Array) -> Iterator[tuple[pa.Array, str]]:
        """Which values of a column the database cannot hold, and why."""
        types, kind, longest = pa.types, field.type, self.shape.longest.get(field.name)
        if self.lacks_nan and types.is_floating(kind):
            yield pc.is_nan(column), f"is what {self.format_name} has no value for"
        if self.lacks_nul and types.is_string(kind):
            yield pc.match_substring(column, "\0"), f"has a NUL, which {self.format_name} has not in text"
        if longest is not None:
            yield pc.greater(pc.utf8_length(column), longest), f"has more than {longest} characters"
        if types.is_date32(kind) or types.is_timestamp(kind):
            first, last = (pa.scalar(time, kind) for time in (datetime.datetime.min, datetime.datetime.max))
            is_out = pc.or_(pc.less(column, first), pc.greater(column, last))
            yield is_out, "is outside of the years 1 to 9999"


def _numbered(parquet: pq.ParquetFile, schema: pa.Schema, numbers: Numbers) -> Iterator[pa.RecordBatch]:
    position = 0
    for batch in parquet.iter_batches(_BATCH_ROWS):
        for name, number in numbers.items():
            rows = np.arange(position, position + len(batch)) if name == ROW else np.zeros(len(batch), np.int64)
            batch = batch.append_column(name, pa.array(number + rows))
        position += len(batch)
        yield with_columns(batch, schema)


class FileTable(DatabaseTable):
    """A table of a database that is one file of a local disk.

    Attributes:
        schemas: Names before that of the table, where the app gives none.
    """

    schemas: ClassVar[tuple[str, ...]] = ()

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        database, mark, table = location.rpartition("#")
        if not (database and mark and table) or not is_local(database):
            raise ValueError(
                f"table: {self.extra} takes FILE#TABLE with a file of a local disk, as in "
                f"{self.extra}:out/shop.db#orders; got {redacted(location)!r}"
            )
        self.address = absolute(database)
        self.place = f"{self.address}#{table}"
        path = [*self.schemas, *table.split(".", len(self.schemas))][-1 - len(self.schemas) :]
        super().__init__(f"{self.address}.dagflow/{escaped(table)}", path, partition_by, **options)


class SqliteFileTable(FileTable):
    """A table of SQLite.

    A column's type says how dagflow writes its values: SQLite itself has whole numbers of 64 bits, doubles, text and
    bytes. Decimals of up to 15 digits are numbers there, others and times are text.
    """

    format_name: ClassVar[str] = "SQLite"
    session_class: ClassVar[type[SqlSession]] = SqliteSession
    extra: ClassVar[str] = "sqlite"
    least_bits: ClassVar[int] = 64
    lacks_nan: ClassVar[bool] = True
    own_names: ClassVar[tuple[str, ...]] = ("_dagflow_", "sqlite_")
    most_columns: ClassVar[int] = 2000

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        return Table.wider_type(self, there, given)

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        stored = super().column_type(kind)
        return pa.float64() if pa.types.is_floating(stored) else stored


class DuckdbFileTable(FileTable):
    """A table of DuckDB, whose types are about those of Arrow."""

    format_name: ClassVar[str] = "DuckDB"
    session_class: ClassVar[type[SqlSession]] = DuckdbSession
    extra: ClassVar[str] = "duckdb"
    has_parts: ClassVar[bool] = True
    schemas: ClassVar[tuple[str, ...]] = ("main",)


_STAGED = "_dagflow_"
"""How the names of tables begin that tasks load; the rest is the name of the file."""


class PostgresTable(DatabaseTable):
    """A table of a server of PostgreSQL, in a schema that is there.

    Tasks load the rows into tables beside it, each named by a file of the window, and a transaction moves them.
    """

    format_name: ClassVar[str] = "PostgreSQL"
    session_class: ClassVar[type[SqlSession]] = PostgresSession
    extra: ClassVar[str] = "postgres"
    least_bits: ClassVar[int] = 16
    lacks_nul: ClassVar[bool] = True
    own_columns: ClassVar[tuple[str, ...]] = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")
    most_columns: ClassVar[int] = 1600
    most_bytes: ClassVar[int | None] = 63

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        path = location.split(".")
        if len(path) != 2 or not all(path):
            raise ValueError(f"table: postgres takes SCHEMA.TABLE, as in postgres:public.orders; got {location!r}")
        self.place = location
        super().__init__(absolute(f".dagflow-postgres/{escaped(location)}"), path, partition_by, **options)

    def connect_by(self, connection: str, staging: str) -> None:
        if not connection.startswith(("postgresql://", "postgres://")):
            raise ValueError("connection: postgres needs the address of a server: postgresql://USER@HOST/DATABASE")
        self.address = connection
        if staging:
            self.location = join(absolute(staging), escaped(self.place))
            self.shape = TableShape(self.location, None, ())

    @property
    def is_on_server(self) -> bool:
        return True

    def files(self, context: OperatorContext, target_bytes: int | None, origin: FactOrigin) -> DataFiles:
        """Files that name tables beside this one, into which the task loads the rows."""

        def format(*facts: Any) -> DataFileFormat:
            made = _StagedFormat.of(*facts)
            made._table = self
            return made

        prefix = _prefix_of(self.writer)
        return TableFiles(
            context, self.shape, None, origin, stores_partition_columns=True, format=format, prefix=prefix
        )

    def staged(self, url: str) -> tuple[str, str]:
        """The table that has the rows of a file."""
        return self.path[0], _STAGED + file_name(url).partition(".")[0]

    def load(
        self, session: SqlSession, storage: StorageContext, file: PendingFile, columns: pa.Schema, numbers: Numbers
    ) -> None:
        staged, facts = name_of(self.staged(file.final_url)), file.facts or FileFacts("")
        names = listed([*schema_of_text(facts.schema).names, *([REMOVED] if ROW in numbers else [])])
        more = (f"{number} + {ROW}" if name == ROW else str(number) for name, number in numbers.items())
        into = f"{name_of(GIVEN if ROW in numbers else self.path)} ({', '.join([names, *numbers])})"
        session.execute(f"INSERT INTO {into} SELECT {', '.join([names, *more])} FROM {staged}")
        session.execute(f"DROP TABLE {staged}")

    def clear(self, session: SqlSession, writer: str, newest: int) -> None:
        """Remove tables of attempts whose files were never decided."""
        names = "SELECT tablename::text FROM pg_tables WHERE schemaname::text = $1"
        first, last = (f"{_STAGED}{_prefix_of(writer)}-{end}" for end in ("", f"{newest:08d}~"))
        within = f'{names} AND tablename::text COLLATE "C" BETWEEN $2 AND $3'
        for (name,) in session.execute(within, self.path[0], first, last):
            session.execute(f"DROP TABLE {name_of((self.path[0], name))}")


def _prefix_of(writer: str) -> str:
    """How the names of files of a writer begin."""
    return f"part-{hashlib.sha256(writer.encode()).hexdigest()[:8]}"


class _StagedFormat(DataFileFormat):
    """Files that name a table, into which a task loads their rows; the transaction of their window moves them."""

    _table: PostgresTable

    @property
    def extension(self) -> str:
        return ".table"

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        return _StagedEncoder(self._table, self, stream, self.layout_of(batch))


_CHUNK_BYTES = 8 << 20
"""Bytes of rows that a task sends at once."""

_SENT_ROWS = 512
"""Rows that are sent at once: where they fit into a socket, the server takes them while the next are encoded."""

_PAUSE_S = 2.0
"""Between two attempts of a task, in which a server may come back."""


class _StagedEncoder(ChunkedEncoder):
    """Loads rows into a table of the file's name, in one transaction, which a task that fails does not commit."""

    def __init__(self, table: PostgresTable, format: _StagedFormat, stream: FileStream, schema: pa.Schema) -> None:
        super().__init__(stream, _CHUNK_BYTES, None)
        self._table, self._format, self._schema = table, format, schema
        self._path = table.staged(stream.url)
        self._nulls = Counter[str]()
        self._loading: SqlSession | None = None
        self._transaction = contextlib.ExitStack()

    def measure(self, rows: pa.RecordBatch, room: int) -> tuple[int, int]:
        return len(rows), max(1, rows.nbytes)

    def write_chunk(self, held: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches([rows.cast(self._schema) for rows in held], self._schema)
        with self._transaction as kept:
            if self._loading is None:
                self._loading = kept.enter_context(self._table.session(writes=True, pause_s=_PAUSE_S))
                numbers = [f"{ROW} bigserial"] if self._format._origin.keys else []
                mark = [f"{REMOVED} boolean"] if numbers and REMOVED not in self._schema.names else []
                self._loading.make(self._path, self._schema, *numbers, *mark)
            self._loading.add(self._path, rows.to_reader(_SENT_ROWS))
            self._transaction = kept.pop_all()
        self._nulls.update({name: rows[name].null_count for name in rows.column_names})

    def finish(self) -> None:
        super().finish()
        self._transaction.close()
        self.stream.write(self._path[-1].encode())
        self.stream.facts = replace(self._format.facts(self._schema), nulls={**self._nulls})
