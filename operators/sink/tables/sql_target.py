"""Tables of databases as transactional targets; only the driver imports it, for it needs the database's package."""

from __future__ import annotations

import contextlib
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.transactions import (
    DecidedReplay,
    DecidedWindow,
    ReplayableState,
    Target,
    TargetState,
    UnversionedState,
)
from dagflow.errors import StorageError
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of as file_name
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

GIVEN = "_dagflow_given"
"""The temporary table of rows that replace others."""

_BATCH_ROWS = 1 << 16

PART = "_dagflow_part"
"""The column that says which file a row came with, so that a replay can take it out."""


def part_of(file: PendingFile) -> int:
    """What the rows of a file have in that column."""
    return int.from_bytes(hashlib.sha256(file_name(file.final_url).encode()).digest()[:8], "big", signed=True)


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
        return super().why_not_replayed or (
            ""
            if self.table.keeps_parts
            else "the database does not know which rows a window has added, unless metadata_columns has part"
        )

    def found(self, session: SqlSession) -> list[SqlColumn]:
        """The columns of the table; none if it does not exist."""
        kept = "in which dagflow keeps which file a row came with"
        columns = session.columns(self.table.path)
        return [
            SqlColumn(PART, None, is_required=False, why_none=kept) if each.name == PART else each for each in columns
        ]

    def shape(self) -> TableShape:
        self._look()
        known, table = self.known([]), self.table
        if known is not None:
            for column in self._columns:
                if column.why_none and column.is_required:
                    raise no_writing(table, f"a column '{column.name}' that allows no null, and {column.why_none}")
            if table.upsert_by:
                require_keys(table, known, ())
        longest = {column.name: column.longest for column in self._columns if column.longest is not None}
        return TableShape(table.location, known, (), taken=self.taken(), longest=longest)

    def _look(self, *writers: str) -> list[tuple[int, str | None]]:
        """Read the columns of the table, and the newest window of each writer in it, with the decision about it."""
        self._columns, marks = [], {}
        if self.is_there():
            with self.session(writes=False) as session:
                self._columns = self.found(session)
                # Markers of a table that was removed say nothing of another one of its name.
                if self._columns and session.columns(self.markers):
                    query = f'SELECT writer, "window", decision FROM {name_of(self.markers)} WHERE target = ?'
                    rows = session.execute(query, self.table.path[-1])
                    marks = {writer: (int(window), decision) for writer, window, decision in rows}
        return [marks.get(writer, (0, None)) for writer in writers]

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        return schema_of(self._columns) if self._columns else None

    def taken(self) -> dict[str, str]:
        return taken_in(self._columns)

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        """Try a transaction without rows, and take it back: the database may have rules that only it knows."""
        if columns == self._tried:
            return
        with self.session(writes=True) as session:
            SqlState(self, "", (0, None), 0).take(session, DecidedWindow(1, "", tuple(files)), [])
            _add(session, self.table.path, columns, [])
            session.execute("ROLLBACK")
            session.execute("BEGIN")
        self._tried = columns

    def finish(self, files: Sequence[PendingFile]) -> None:
        remove(self.storage, files)

    def load(self, session: SqlSession, file: PendingFile, columns: pa.Schema, part: int | None) -> None:
        """Load the rows of a file into the table, with `part` in the column that is for it."""
        opened = self.storage.open_file(file.final_url)
        with opened as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
            own = pa.schema([columns.field(name).with_nullable(True) for name in parquet.schema_arrow.names])
            schema = own if part is None else own.append(pa.field(PART, pa.int64()))
            batches = (
                pa.record_batch([*with_columns(batch, own), pa.repeat(part or 0, len(batch))][: len(schema)], schema)
                for batch in parquet.iter_batches(_BATCH_ROWS)
            )
            _add(session, self.table.path, schema, batches)

    def load_newest(
        self, session: SqlSession, files: Sequence[PendingFile], keys: Sequence[str], columns: pa.Schema
    ) -> None:
        """Load the last row of each key into the table GIVEN, with REMOVED where it shall only leave."""
        rows, gone = newest_rows(self.storage, files, keys, columns)
        marked = with_columns(gone, rows.schema).append_column(REMOVED, pa.repeat(pa.scalar(True), len(gone)))
        rows = pa.concat_tables([with_columns(rows, marked.schema), marked])
        _add(session, (GIVEN,), rows.schema, rows.to_batches(_BATCH_ROWS), is_temporary=True)

    def clear(self, session: SqlSession, writer: str, newest: int) -> None:  # most leave nothing there
        """Remove what attempts at the windows of a writer, up to the newest one, have left in the database."""

    def open(self, writer: str) -> TargetState:
        newest, (replays, _) = self._look(writer, replays_of(writer))
        return SqlState(self, writer, newest, replays)

    def rows(self) -> pa.RecordBatchReader | None:
        if not self.is_there():
            return None
        with contextlib.ExitStack() as stack:
            session = stack.enter_context(self.session(writes=False))
            columns = [each for each in self.found(session) if each.name != PART]
            if not columns:
                return None
            rows, held = session.rows(self.table.path, columns), stack.pop_all()

        def parts() -> Iterator[pa.RecordBatch]:
            with held:
                yield from rows

        return pa.RecordBatchReader.from_batches(rows.schema, parts())


_MARKER_COLUMNS = (
    'writer VARCHAR(300) NOT NULL, target VARCHAR(300) NOT NULL, "window" BIGINT NOT NULL, decision TEXT, '
    "PRIMARY KEY (writer, target)"
)


def replays_of(writer: str) -> str:
    """The writer whose marker is the newest replay of a writer."""
    return f"{writer}/replays"


class SqlState(UnversionedState, ReplayableState):
    """The marker of a writer at one moment, and that of its replays."""

    def __init__(self, target: SqlTarget, writer: str, newest: tuple[int, str | None], replays: int) -> None:
        super().__init__(*newest)
        self._target = target
        self._writer = writer
        self._replays = replays

    @property
    def replays(self) -> int:
        return self._replays

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Load the rows of all files, if the marker is still the one that was read."""
        files, last = tuple(file for window in windows for file in window.files), windows[-1]
        with self._target.session(writes=True) as session:
            self.take(session, DecidedWindow(last.window_id, last.decision, files), files)
            self._target.clear(session, self._writer, last.window_id)

    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        if not self._target.is_there():
            return list(files)
        with self._target.session(writes=False) as session:
            return self._missing(session, files)

    def _missing(self, session: SqlSession, files: Sequence[PendingFile]) -> list[PendingFile]:
        """The files of which the table has not as many rows as they had."""
        counts: dict[int, int] = {}
        if PART in (column.name for column in self._target.found(session)):
            query = f"SELECT {PART}, count(*) FROM {name_of(self._target.table.path)} WHERE {_within(files)} GROUP BY 1"
            counts = dict(session.execute(query)) if files else {}
        return [file for file in files if counts.get(part_of(file), 0) != file.records]

    def replace(self, replay: DecidedReplay) -> None:
        """Delete the rows of files, and load those of others, if no marker has moved."""
        with self._target.session(writes=True) as session:
            self._mark(session, replays_of(self._writer), self._replays, DecidedWindow(replay.number, "", ()))
            if self._missing(session, replay.removed):
                raise StorageError("another program has changed it meanwhile", url=self._target.name)
            if replay.removed:
                session.execute(f"DELETE FROM {name_of(self._target.table.path)} WHERE {_within(replay.removed)}")
            if replay.window is not None:
                self._mark(session, self._writer, self.marker, replay.window)
            self._add_files(session, replay.files, replay.files)
            newest = self.marker if replay.window is None else replay.window.window_id
            self._target.clear(session, self._writer, newest)

    def take(self, session: SqlSession, window: DecidedWindow, loaded: Sequence[PendingFile]) -> None:
        """Set the marker, change the columns as files of a window need it, and load the rows of some of them."""
        self._mark(session, self._writer, self.marker, window, is_new=not self._target.found(session))
        self._add_files(session, window.files, loaded)

    def _add_files(self, session: SqlSession, files: Sequence[PendingFile], loaded: Sequence[PendingFile]) -> None:
        if not files:
            return
        table, keys, found = self._target.table, facts_of_file(files[-1]).keys, self._target.found(session)
        require_decided_for(table, table.location, (), loaded)
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(table, files, schema_of(found), may_grow=True, taken=taken_in(found))
        keeps_parts = self._change(session, found, columns, keys)
        if keys:
            self._upsert(session, loaded, keys, columns)
            return
        for file in loaded:
            self._target.load(session, file, columns, part_of(file) if keeps_parts else None)

    def _mark(
        self, session: SqlSession, writer: str, before: int, window: DecidedWindow, *, is_new: bool = False
    ) -> None:
        """Set a marker first: another transaction that would set it waits, and then finds it moved."""
        markers, own = name_of(self._target.markers), (writer, self._target.table.path[-1])
        if not session.columns(self._target.markers):
            # It may be there, and hidden from a user without rights to it, which the next statement says.
            session.execute(f"CREATE TABLE IF NOT EXISTS {markers} ({_MARKER_COLUMNS})")
        if is_new:
            session.execute(
                f"DELETE FROM {markers} WHERE target = ? AND (writer = ? OR writer = ?)",
                own[1],
                writer,
                replays_of(writer),
            )
        session.execute(f"INSERT INTO {markers} VALUES (?, ?, 0, NULL) ON CONFLICT DO NOTHING", *own)
        change = (
            f'UPDATE {markers} SET "window" = ?, decision = ? WHERE writer = ? AND target = ? AND "window" = ? '
            "RETURNING 1"
        )
        if not session.execute(change, window.window_id, window.decision, *own, before):
            raise StorageError(f"it has gone on from window {before}", url=self._target.name)

    def _change(self, session: SqlSession, found: Sequence[SqlColumn], columns: pa.Schema, keys: Sequence[str]) -> bool:
        """Make the table, or add the columns that it lacks and widen those that are too narrow.

        Returns:
            Whether rows say which file they came with.
        """
        table, there = self._target.table, {column.name: column.kind for column in found}
        place = name_of(table.path)
        if table.keeps_parts and PART not in there:
            columns = columns.append(pa.field(PART, pa.int64()))
        if not found:
            session.make(table.path, columns)
            if keys and (index := self._target.index_of_keys()) is not None:
                session.execute(f"CREATE INDEX {index} ON {place} ({', '.join(map(quoted, keys))})")
            return table.keeps_parts
        for field in columns:
            kind = f"{quoted(field.name)} {{}}{session.sql_type(field.type)}"
            if field.name not in there:
                session.execute(f"ALTER TABLE {place} ADD COLUMN {kind.format('')}")
            elif there[field.name] != field.type:
                session.execute(f"ALTER TABLE {place} ALTER COLUMN {kind.format('TYPE ')}")
        return table.keeps_parts or PART in there

    def _upsert(
        self, session: SqlSession, files: Sequence[PendingFile], keys: Sequence[str], columns: pa.Schema
    ) -> None:
        """Replace the rows that have the keys of the given ones, and add the others; a null equals a null."""
        place, given, names = name_of(self._target.table.path), quoted(GIVEN), ", ".join(map(quoted, columns.names))
        mark = f"CAST(NULL AS BOOLEAN) AS {REMOVED}"
        session.execute(f"CREATE TEMPORARY TABLE {given} AS SELECT {names}, {mark} FROM {place} WHERE 1 = 0")
        self._target.load_newest(session, files, keys, columns)
        own = ", ".join(map(quoted, keys))
        # An index of the keys serves this statement, and not the other one.
        session.execute(f"DELETE FROM {place} WHERE ({own}) IN (SELECT {own} FROM {given})")
        has_null = " OR ".join(f"{key} IS NULL" for key in map(quoted, keys))
        if session.execute(f"SELECT 1 FROM {given} WHERE {has_null} LIMIT 1"):
            same = " AND ".join(f"{given}.{key} IS NOT DISTINCT FROM {place}.{key}" for key in map(quoted, keys))
            session.execute(f"DELETE FROM {place} WHERE EXISTS (SELECT 1 FROM {given} WHERE {same})")
        session.execute(f"INSERT INTO {place} ({names}) SELECT {names} FROM {given} WHERE {REMOVED} IS NULL")


def _within(files: Iterable[PendingFile]) -> str:
    """The condition that a row came with one of some files."""
    return f"{PART} IN ({', '.join(str(part_of(file)) for file in files)})"


def _add(
    session: SqlSession, path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, is_temporary: bool = False
) -> None:
    rows = map(session.prepared, batches)
    schema = session.prepared(pa.RecordBatch.from_pylist([], schema)).schema
    session.add(path, pa.RecordBatchReader.from_batches(schema, rows), is_temporary=is_temporary)
