"""Tables of databases as transactional targets; only the driver imports it, for it needs the database's package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.api.transactions import DecidedWindow, Target, TargetState, UnversionedState
from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from dagflow.storage.python_file import PythonFile
from operators.sink.columns.nested_types import with_columns
from operators.sink.tables.sql_session import Path, SqlColumn, SqlSession, name_of, quoted
from operators.sink.tables.sql_table import DatabaseTable
from operators.sink.tables.table_files import TableShape, newest_rows, remove
from operators.sink.tables.table_target import (
    TableTarget,
    facts_of_file,
    merged_columns,
    no_writing,
    require_decided_for,
    require_keys,
)

MARKERS = "_dagflow_markers"
"""The table of markers: one row for each writer of each table beside it."""

_GIVEN = "_dagflow_given"
"""The temporary table of rows that replace others."""

_BATCH_ROWS = 1 << 16


def schema_of(columns: Sequence[SqlColumn]) -> pa.Schema:
    """The columns that take values of records."""
    return pa.schema([pa.field(each.name, each.kind, not each.is_required) for each in columns if not each.why_none])


def taken_in(columns: Sequence[SqlColumn]) -> dict[str, str]:
    """Names of the columns that take none, each with what the table cannot have."""
    return {each.name: f"values in the column '{each.name}', {each.why_none}" for each in columns if each.why_none}


class SqlTarget(TableTarget, Target):
    """Takes windows as transactions of a database, which set a marker's row."""

    def __init__(self, table: DatabaseTable, storage: StorageContext) -> None:
        super().__init__(table)
        self.table: DatabaseTable = table
        self.storage = storage
        self._columns: list[SqlColumn] = []
        self._tried: pa.Schema | None = None

    @abstractmethod
    def session(self, *, writes: bool) -> AbstractContextManager[SqlSession]:
        """A transaction, which is committed at the end, and rolled back after an error.

        Args:
            writes: Whether it changes the database.

        Raises:
            StorageError: The database refused, or the outcome is not known.
        """

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there may be a table; the database is not asked."""

    def index_of_keys(self) -> str | None:
        """The name of the index of upsert_by of a new table, in a statement; None for no index."""
        return None

    @property
    def markers(self) -> Path:
        """The names of the table of markers."""
        return (*self.table.path[:-1], MARKERS)

    @property
    def why_not_replayed(self) -> str:
        return "the database does not know which rows a window has added"

    def shape(self) -> TableShape:
        self._look()
        known, table = self.known([]), self.table
        if known is not None:
            for column in self._columns:
                if column.why_none and column.is_required:
                    raise no_writing(table, f"a column '{column.name}' that allows no null, and {column.why_none}")
            if table.upsert_by:
                require_keys(table, known, ())
        return TableShape(table.location, known, (), taken=self.taken())

    def _look(self, writer: str = "") -> tuple[int, str | None]:
        """Read the columns of the table, and the newest window of a writer in it, with the decision about it."""
        self._columns = []
        if not self.is_there():
            return 0, None
        with self.session(writes=False) as session:
            self._columns = session.columns(self.table.path)
            # Markers of a table that was removed say nothing of another one of its name.
            if not (self._columns and writer and session.columns(self.markers)):
                return 0, None
            query = f'SELECT "window", decision FROM {name_of(self.markers)} WHERE writer = ? AND target = ?'
            rows = session.execute(query, writer, self.table.path[-1])
        return (int(rows[0][0]), rows[0][1]) if rows else (0, None)

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        return schema_of(self._columns) if self._columns else None

    def taken(self) -> dict[str, str]:
        return taken_in(self._columns)

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        """Try a transaction without rows, and take it back: the database may have rules that only it knows."""
        if columns == self._tried:
            return
        with self.session(writes=True) as session:
            SqlState(self, "", 0, None).take(session, DecidedWindow(1, "", tuple(files)), [])
            _add(session, self.table.path, columns, [])
            session.execute("ROLLBACK")
            session.execute("BEGIN")
        self._tried = columns

    def finish(self, files: Sequence[PendingFile]) -> None:
        remove(self.storage, files)

    def open(self, writer: str) -> TargetState:
        return SqlState(self, writer, *self._look(writer))

    def rows(self) -> pa.Table | None:
        if not self.is_there():
            return None
        with self.session(writes=False) as session:
            columns = session.columns(self.table.path)
            return session.rows(self.table.path, columns) if columns else None


_MARKER_COLUMNS = (
    'writer VARCHAR(300) NOT NULL, target VARCHAR(300) NOT NULL, "window" BIGINT NOT NULL, decision TEXT, '
    "PRIMARY KEY (writer, target)"
)


class SqlState(UnversionedState):
    """The marker of a writer at one moment."""

    def __init__(self, target: SqlTarget, writer: str, marker: int, decision: str | None) -> None:
        super().__init__(marker, decision)
        self._target = target
        self._writer = writer

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Load the rows of all files, if the marker is still the one that was read."""
        files, last, table = [file for window in windows for file in window.files], windows[-1], self._target.table
        require_decided_for(table, table.location, (), files)
        with self._target.session(writes=True) as session:
            self.take(session, DecidedWindow(last.window_id, last.decision, tuple(files)), files)

    def take(self, session: SqlSession, window: DecidedWindow, loaded: Sequence[PendingFile]) -> None:
        """Set the marker, change the columns as files of a window need it, and load the rows of some of them."""
        table, keys = self._target.table, facts_of_file(window.files[-1]).keys
        found = session.columns(table.path)
        self._mark(session, window, is_new=not found)
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(table, window.files, schema_of(found), may_grow=True, taken=taken_in(found))
        self._change(session, found, columns, keys)
        if keys:
            _upsert(session, table.path, newest_rows(self._target.storage, loaded, keys, columns), keys)
            return
        for file in loaded:
            self._load(session, file, columns)

    def _mark(self, session: SqlSession, window: DecidedWindow, *, is_new: bool) -> None:
        """Set the marker first: another transaction that would set it waits, and then finds it moved."""
        markers, own = name_of(self._target.markers), (self._writer, self._target.table.path[-1])
        if not session.columns(self._target.markers):
            session.execute(f"CREATE TABLE {markers} ({_MARKER_COLUMNS})")
        if is_new:
            session.execute(f"DELETE FROM {markers} WHERE writer = ? AND target = ?", *own)
        session.execute(f"INSERT INTO {markers} VALUES (?, ?, 0, NULL) ON CONFLICT DO NOTHING", *own)
        change = (
            f'UPDATE {markers} SET "window" = ?, decision = ? WHERE writer = ? AND target = ? AND "window" = ? '
            "RETURNING 1"
        )
        if not session.execute(change, window.window_id, window.decision, *own, self.marker):
            raise StorageError(f"it has gone on from window {self.marker}", url=self._target.name)

    def _change(self, session: SqlSession, found: Sequence[SqlColumn], columns: pa.Schema, keys: Sequence[str]) -> None:
        """Make the table, or add the columns that it lacks and widen those that are too narrow."""
        table, there = self._target.table, {column.name: column.kind for column in found}
        place = name_of(table.path)
        if not found:
            made = ", ".join(f"{quoted(field.name)} {session.sql_type(field.type)}" for field in columns)
            session.execute(f"CREATE TABLE {place} ({made})")
            if keys and (index := self._target.index_of_keys()) is not None:
                session.execute(f"CREATE INDEX {index} ON {place} ({', '.join(map(quoted, keys))})")
            return
        for field in columns:
            kind = f"{quoted(field.name)} {{}}{session.sql_type(field.type)}"
            if field.name not in there:
                session.execute(f"ALTER TABLE {place} ADD COLUMN {kind.format('')}")
            elif there[field.name] != field.type:
                session.execute(f"ALTER TABLE {place} ALTER COLUMN {kind.format('TYPE ')}")

    def _load(self, session: SqlSession, file: PendingFile, columns: pa.Schema) -> None:
        opened = self._target.storage.open_file(file.final_url)
        with opened as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
            schema = pa.schema([columns.field(name).with_nullable(True) for name in parquet.schema_arrow.names])
            batches = parquet.iter_batches(_BATCH_ROWS)
            _add(session, self._target.table.path, schema, (with_columns(batch, schema) for batch in batches))


def _add(
    session: SqlSession, path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, is_temporary: bool = False
) -> None:
    rows = map(session.prepared, batches)
    schema = session.prepared(pa.RecordBatch.from_pylist([], schema)).schema
    session.add(path, pa.RecordBatchReader.from_batches(schema, rows), is_temporary=is_temporary)


def _upsert(session: SqlSession, path: Path, rows: pa.Table, keys: Sequence[str]) -> None:
    """Replace the rows that have the keys of the given ones, and add the others; a null equals a null."""
    place, given, names = name_of(path), quoted(_GIVEN), ", ".join(map(quoted, rows.column_names))
    session.execute(f"CREATE TEMPORARY TABLE {given} AS SELECT {names} FROM {place} WHERE 1 = 0")
    _add(session, (_GIVEN,), rows.schema, rows.to_batches(_BATCH_ROWS), is_temporary=True)
    own = ", ".join(map(quoted, keys))
    # An index of the keys serves this statement, and not the other one.
    session.execute(f"DELETE FROM {place} WHERE ({own}) IN (SELECT {own} FROM {given})")
    if any(rows[key].null_count for key in keys):
        same = " AND ".join(f"{given}.{key} IS NOT DISTINCT FROM {place}.{key}" for key in map(quoted, keys))
        session.execute(f"DELETE FROM {place} WHERE EXISTS (SELECT 1 FROM {given} WHERE {same})")
    session.execute(f"INSERT INTO {place} ({names}) SELECT {names} FROM {given}")
