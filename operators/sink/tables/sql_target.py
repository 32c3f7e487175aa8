"""Tables of databases as transactional targets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.transactions import DecidedReplay, DecidedWindow, ReplayableState, Target, UnversionedState
from dagflow.errors import StorageError
from dagflow.late import compute as pc
from dagflow.storage.context import StorageContext
from dagflow.storage.location import name_of as file_name
from dagflow.storage.pending import PendingFile
from operators.sink.tables.sql_session import SqlColumn, SqlSession, listed, name_of, quoted
from operators.sink.tables.sql_table import GIVEN, ROW, DatabaseTable
from operators.sink.tables.table_files import TableShape, remove
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

_MARKER_COLUMNS = (
    'writer VARCHAR(300) NOT NULL, target VARCHAR(300) NOT NULL, "window" BIGINT NOT NULL, decision TEXT, '
    "replays BIGINT NOT NULL, PRIMARY KEY (writer, target)"
)

PART = "_dagflow_part"
"""The column that says which file a row came with, so that a replay can take it out."""


def part_of(file: PendingFile) -> int:
    """What the rows of a file have in that column."""
    return int.from_bytes(hashlib.sha256(file_name(file.final_url).encode()).digest()[:8], "big", signed=True)


class SqlTarget(TableTarget, Target):
    """Takes windows as transactions of a database, which set a marker's row."""

    def __init__(self, table: DatabaseTable, storage: StorageContext) -> None:
        super().__init__(table)
        self.table: DatabaseTable = table
        self.storage = storage
        self.markers = (*table.path[:-1], MARKERS)
        self._columns: list[SqlColumn] = []
        self._tried: pa.Schema | None = None

    @property
    def why_not_replayed(self) -> str:
        if self.table.upsert_by:
            return super().why_not_replayed
        why = "the database does not know which rows a window has added, unless metadata_columns has part"
        return "" if self.table.keeps_parts else why

    def look(self, session: SqlSession) -> list[SqlColumn]:
        """Read the columns of the table; none if it does not exist."""
        part = SqlColumn(PART, None, is_required=False, why_none="in which dagflow keeps which file a row came with")
        self._columns = [part if each.name == PART else each for each in session.columns(self.table.path)]
        return self._columns

    def shape(self) -> TableShape:
        self._look("")
        known, table = self.known([]), self.table
        for column in self._columns:
            if column.why_none and column.is_required:
                raise no_writing(table, f"a column '{column.name}' that allows no null, and {column.why_none}")
        if known is not None and table.upsert_by:
            require_keys(table, known, ())
        longest = {column.name: column.longest for column in self._columns if column.longest is not None}
        return TableShape(table.location, known, (), taken=self.taken(), longest=longest)

    def _look(self, writer: str) -> tuple[int, str | None, int]:
        """Read the columns of the table, and the newest window of a writer in it, its decision, and the last replay."""
        self._columns = []
        if self.table.may_be_there:
            with self.table.session(writes=False) as session:
                # Markers of a table that was removed say nothing of another one of its name.
                if self.look(session) and session.columns(self.markers):
                    query = f'SELECT "window", decision, replays FROM {name_of(self.markers)} WHERE writer = $1'
                    rows = session.execute(f"{query} AND target = $2", writer, self.table.path[-1])
                    for window, decision, replays in rows:
                        return int(window), decision, int(replays)
        return 0, None, 0

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        taking = [column for column in self._columns if not column.why_none]
        fields = [pa.field(column.name, column.kind, not column.is_required) for column in taking]
        return pa.schema(fields) if self._columns else None

    def taken(self) -> dict[str, str]:
        kept = (column for column in self._columns if column.why_none)
        return {column.name: f"values in the column '{column.name}', {column.why_none}" for column in kept}

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        """Try a transaction without rows, and take it back: the database may have rules that only it knows."""
        if columns == self._tried:
            return
        with self.table.session(writes=True) as session:
            SqlState(self, "", 0, None, 0).take(session, DecidedWindow(1, "", tuple(files)), [])
            session.add(self.table.path, columns.empty_table().to_reader())
            session.execute("ROLLBACK")
            session.execute("BEGIN")
        self._tried = columns

    def finish(self, files: Sequence[PendingFile]) -> None:
        remove(self.storage, files)

    def open(self, writer: str) -> SqlState:
        return SqlState(self, writer, *self._look(writer))

    def rows(self) -> pa.RecordBatchReader | None:
        self._look("")
        columns = [column for column in self._columns if column.name != PART]
        schema = pa.schema([(column.name, column.kind or pa.string()) for column in columns])
        names = (quoted(each.name) if each.kind else f"CAST({quoted(each.name)} AS TEXT)" for each in columns)
        query = f"SELECT {', '.join(names)} FROM {name_of(self.table.path)}"

        def batches() -> Iterator[pa.RecordBatch]:
            with self.table.session(writes=False) as session:
                for part in session.found(query):
                    yield pa.RecordBatch.from_arrays([*map(_of_kind, part.columns, schema.types)], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches()) if columns else None


def _of_kind(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as the database's package gives them, in the type of their column."""
    if values.type == kind or values.null_count == len(values):
        return values if values.type == kind else pa.nulls(len(values), kind)
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    if pa.types.is_time(kind):
        values = pc.binary_join_element_wise("1970-01-01", values, " ").cast(pa.timestamp("us"))
    return values.cast(kind)


class SqlState(UnversionedState, ReplayableState):
    """The marker of a writer at one moment, and the number of its newest replay."""

    replays: int = 0

    def __init__(self, target: SqlTarget, writer: str, newest: int, decision: str | None, replays: int) -> None:
        super().__init__(newest, decision)
        self._target = target
        self._writer = writer
        self.replays = replays

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Load the rows of all files, if the marker is still the one that was read."""
        files, last = tuple(file for window in windows for file in window.files), windows[-1]
        with self._target.table.session(writes=True) as session:
            self.take(session, DecidedWindow(last.window_id, last.decision, files), files)
            self._target.table.clear(session, self._writer, last.window_id)

    def missing(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        if not self._target.table.may_be_there:
            return list(files)
        with self._target.table.session(writes=False) as session:
            return self._missing(session, files)

    def _missing(self, session: SqlSession, files: Sequence[PendingFile]) -> list[PendingFile]:
        """The files of which the table has not as many rows as they had."""
        counts: dict[int, int] = {}
        if PART in (column.name for column in self._target.look(session)):
            query = f"SELECT {PART}, count(*) FROM {name_of(self._target.table.path)} WHERE {_within(files)} GROUP BY 1"
            counts = dict(session.execute(query)) if files else {}
        return [file for file in files if counts.get(part_of(file), 0) != file.records]

    def replace(self, replay: DecidedReplay) -> None:
        """Delete the rows of files, and load those of others, if no marker has moved."""
        newest, decision = self.marker, self.decision()
        if replay.window is not None:
            newest, decision = replay.window.window_id, replay.window.decision
        with self._target.table.session(writes=True) as session:
            self._mark(session, newest, decision, replay.number)
            if self._missing(session, replay.removed):
                raise StorageError("another program has changed it meanwhile", url=self._target.name)
            if replay.removed:
                session.execute(f"DELETE FROM {name_of(self._target.table.path)} WHERE {_within(replay.removed)}")
            self._add_files(session, replay.files, replay.files)
            self._target.table.clear(session, self._writer, newest)

    def take(self, session: SqlSession, window: DecidedWindow, loaded: Sequence[PendingFile]) -> None:
        """Set the marker, change the columns as files of a window need it, and load the rows of some of them."""
        self._mark(session, window.window_id, window.decision, self.replays)
        self._add_files(session, window.files, loaded)

    def _mark(self, session: SqlSession, window: int, decision: str | None, replays: int) -> None:
        """Set the marker first: another transaction that would set it waits, and then finds it moved."""
        markers, own = name_of(self._target.markers), (self._writer, self._target.table.path[-1])
        if not session.columns(self._target.markers):
            # It may be there, and hidden from a user without rights to it, which the next statement says.
            session.execute(f"CREATE TABLE IF NOT EXISTS {markers} ({_MARKER_COLUMNS})")
        if not self._target.look(session):
            session.execute(f"DELETE FROM {markers} WHERE writer = $1 AND target = $2", *own)
        session.execute(f"INSERT INTO {markers} VALUES ($1, $2, 0, NULL, 0) ON CONFLICT DO NOTHING", *own)
        change = (
            f'UPDATE {markers} SET "window" = $1, decision = $2, replays = $3 '
            'WHERE writer = $4 AND target = $5 AND "window" = $6 AND replays = $7 RETURNING 1'
        )
        if not session.execute(change, window, decision, replays, *own, self.marker, self.replays):
            raise StorageError(f"it has gone on from window {self.marker}", url=self._target.name)

    def _add_files(self, session: SqlSession, files: Sequence[PendingFile], loaded: Sequence[PendingFile]) -> None:
        if not files:
            return
        target, table, keys = self._target, self._target.table, facts_of_file(files[-1]).keys
        require_decided_for(table, table.location, (), loaded)
        there = {column.name: column.kind for column in target.look(session)}
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(table, files, target.known(files), may_grow=True, taken=target.taken())
        part = [pa.field(PART, pa.int64())] if table.keeps_parts or PART in there else []
        self._change(session, there, pa.schema([*columns, *part]), keys)
        if keys:
            self._upsert(session, loaded, keys, columns)
            return
        for file in loaded:
            table.load(session, target.storage, file, columns, {PART: part_of(file)} if part else {})

    def _change(
        self, session: SqlSession, there: Mapping[str, pa.DataType | None], columns: pa.Schema, keys: Sequence[str]
    ) -> None:
        """Make the table, or add the columns that it lacks and widen those that are too narrow."""
        place = name_of(self._target.table.path)
        if not there:
            session.make(self._target.table.path, columns)
            if keys and session.has_index:
                # Of any name: a table that another program has renamed keeps its index.
                session.execute(f"CREATE INDEX _dagflow_{os.urandom(8).hex()} ON {place} ({listed(keys)})")
            return
        for field in (field for field in columns if there.get(field.name, pa.null()) not in (None, field.type)):
            name, kind = quoted(field.name), session.sql_type(field.type)
            change = f"ALTER COLUMN {name} TYPE {kind}" if field.name in there else f"ADD COLUMN {name} {kind}"
            session.execute(f"ALTER TABLE {place} {change}")

    def _upsert(self, session: SqlSession, files: Sequence[PendingFile], keys: list[str], columns: pa.Schema) -> None:
        """Replace the rows that have the keys of the given ones, and add the newest others; a null equals a null."""
        place, (given,) = name_of(self._target.table.path), GIVEN
        names, own = listed(columns.names), listed(keys)
        more = f"CAST(NULL AS BOOLEAN) AS {REMOVED}, CAST(NULL AS BIGINT) AS {ROW}"
        session.execute(f"CREATE TEMPORARY TABLE {given} AS SELECT {names}, {more} FROM {place} WHERE 1 = 0")
        for number, file in enumerate(files):
            self._target.table.load(session, self._target.storage, file, columns, {ROW: number << 40})
        # An index of the keys serves this statement, and not the other one.
        session.execute(f"DELETE FROM {place} WHERE ({own}) IN (SELECT {own} FROM {given})")
        has_null = " OR ".join(f"{key} IS NULL" for key in map(quoted, keys))
        if session.execute(f"SELECT 1 FROM {given} WHERE {has_null} LIMIT 1"):
            same = " AND ".join(f"{given}.{key} IS NOT DISTINCT FROM {place}.{key}" for key in map(quoted, keys))
            session.execute(f"DELETE FROM {place} WHERE EXISTS (SELECT 1 FROM {given} WHERE {same})")
        newest = f"SELECT *, row_number() OVER (PARTITION BY {own} ORDER BY {ROW} DESC) AS _dagflow_age FROM {given}"
        kept = f"SELECT {names} FROM ({newest}) AS given WHERE _dagflow_age = 1 AND {REMOVED} IS NULL"
        session.execute(f"INSERT INTO {place} ({names}) {kept}")


def _within(files: Iterable[PendingFile]) -> str:
    """The condition that a row came with one of some files."""
    return f"{PART} IN ({', '.join(str(part_of(file)) for file in files)})"
