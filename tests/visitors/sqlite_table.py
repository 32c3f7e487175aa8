"""A transactional target of one's own: records become rows of a table in an SQLite database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from dagflow import InputPort, Operator, OperatorContext
from dagflow.api.context import RunPreparation
from dagflow.api.transactions import DecidedWindow, Target, TargetState, TransactionalSink, UnversionedState
from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join
from dagflow.storage.pending import FileFacts, PendingFile

_TABLES = (
    "CREATE TABLE IF NOT EXISTS records (record BLOB)",
    "CREATE TABLE IF NOT EXISTS markers (writer TEXT PRIMARY KEY, window INTEGER, decision TEXT)",
)


class SqliteTable(Operator, TransactionalSink):
    """Adds each record to the table `records` of a database, which is on the disk of the driver.

    Guarantee: readers of the table see all records of a window, or none, and each of them once.
    """

    database: str

    input = InputPort()

    def check_properties(self) -> None:
        """Fix the location now: executors have another working directory."""
        self._database = absolute(self.database)
        self._directory = f"{self._database}.files"

    def prepare(self, run: RunPreparation) -> None:
        """Take the directory of the files that carry records to the driver."""
        run.claim(self._directory)

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context

    def begin_window(self, window_id: int) -> None:
        """Called before the records of a window arrive."""
        self._records: list[bytes] = []

    @input.each
    def add(self, record: bytes) -> None:
        """Keep a record for the window's file."""
        self._records.append(record)

    def end_window(self) -> None:
        """Write the file, under a name that no other attempt gives."""
        if self._records and self._context.outputs is not None:
            file = self._context.outputs.open(join(self._directory, os.urandom(16).hex()))
            file.write(b"".join(record + b"\n" for record in self._records))
            file.close(records=len(self._records), facts=FileFacts(self._context.operator))

    def transaction_target(self, storage: StorageContext) -> Target:
        """The database."""
        return SqliteTarget(self._database)


class SqliteTarget(Target):
    """A database with a table of records and a table of markers."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The path of the database."""
        return f"database {self._path}"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose changes become visible together, or not at all."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                for statement in _TABLES:
                    connection.execute(statement)
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StorageError(f"the database refused: {error}", url=self._path) from error

    def open(self, writer: str) -> TargetState:
        """Read the writer's marker."""
        with self.transaction() as connection:
            return SqliteState(self, writer, *marker_in(connection, writer))

    def finish(self, files: Sequence[PendingFile]) -> None:
        """Remove files whose records are in the database."""
        for file in files:
            Path(file.final_url).unlink(missing_ok=True)


class SqliteState(UnversionedState):
    """The marker of a writer at one moment."""

    def __init__(self, target: SqliteTarget, writer: str, marker: int, decision: str | None) -> None:
        super().__init__(marker, decision)
        self._target = target
        self._writer = writer

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Add the records of all files, unless the marker has moved."""
        paths = [file.final_url for window in windows for file in window.files]
        with self._target.transaction() as connection:
            if marker_in(connection, self._writer)[0] != self.marker:
                raise StorageError("another driver has added a window", url=self._target.name)
            for path in paths:
                with open(path, "rb") as lines:
                    rows = ((line.removesuffix(b"\n"),) for line in lines)
                    connection.executemany("INSERT INTO records VALUES (?)", rows)
            marker = (self._writer, windows[-1].window_id, windows[-1].decision)
            connection.execute("INSERT OR REPLACE INTO markers VALUES (?, ?, ?)", marker)


def marker_in(connection: sqlite3.Connection, writer: str) -> tuple[int, str | None]:
    """The newest window of a writer, and which decision it was."""
    found = connection.execute("SELECT window, decision FROM markers WHERE writer = ?", (writer,)).fetchone()
    return found or (0, None)
