"""Tables of PostgreSQL keep the laws of targets and of databases, on a real server."""

from __future__ import annotations

import contextlib
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import adbc_driver_postgresql.dbapi
import numpy as np
import pyarrow as pa
import pytest

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.api.transactions import DecidedWindow
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, StorageError
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.storage.pending import PendingFile
from dagflow.storage.publishing import publish_all
from operators.sink.tables.base import DataFiles
from operators.sink.tables.sql_table import DatabaseTable, PostgresTable
from operators.sink.tables.table_files import FactOrigin
from tests.operators.sink.tables.postgres_server import DyingServer, Server, running_server
from tests.operators.sink.tables.sql_contract import STORAGE, SqlContract, SqlTargetContract
from tests.operators.sink.test_table_writer import app, columns

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[Server]:
    """One server for all tests of this file; each has a table of its own."""
    with running_server() as found:
        Postgres.address = found.address
        yield found


class Postgres(SqlTargetContract):
    """A table of a server, which a client of its own reads and changes."""

    address: ClassVar[str] = ""

    def given(self, root: Path) -> str:
        return f"postgres:public.my orders {zlib.crc32(str(root).encode())}"

    def options(self, root: Path) -> Mapping[str, Any]:
        return {"connection": self.address, "staging": str(root / "staging")}

    def file(self, root: Path, rows: pa.Table) -> PendingFile:
        """A file that names a table with the rows, as a task makes it."""
        outputs = TaskOutputs(STORAGE, "attempt", "process")
        self.begun(root, outputs, rows).end_window()
        (file,) = outputs.take_finished()
        publish_all(STORAGE, [file], durability="process")
        return file

    def begun(self, root: Path, outputs: TaskOutputs, rows: pa.Table) -> DataFiles:
        """The files of a task that has written rows, and has not ended."""
        context = OperatorContext(operator="orders", outputs=outputs)
        files = self.table(root).files(context, None, FactOrigin("orders", keys=self.keys))
        files.begin_window(1)
        for batch in rows.to_batches():
            files.write(RecordBatch(batch))
        return files

    @contextlib.contextmanager
    def lost(self, root: Path, file: PendingFile) -> Iterator[None]:
        name = "_dagflow_" + Path(file.final_url).stem
        self.execute(root, f'ALTER TABLE public."{name}" RENAME TO hidden')
        yield
        self.execute(root, f'ALTER TABLE public.hidden RENAME TO "{name}"')

    def staged(self, root: Path) -> set[Any]:
        """The tables that tasks have loaded, and that are still there."""
        return {*self.execute(root, "SELECT tablename FROM pg_tables WHERE tablename LIKE '_dagflow_part%'")}

    def execute(self, root: Path, statement: str) -> list[Any]:
        table = self.given(root).partition(".")[2]
        connection = adbc_driver_postgresql.dbapi.connect(self.address, autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement.format(f'public."{table}"'))
            return list(cursor.fetchall()) if cursor.description else []


class TestPostgresTables(Postgres, SqlContract):
    """Each window has the same columns."""


class TestGrowingPostgresTarget(Postgres):
    """Each window has a column that the table lacks."""

    grows = True


class TestReplayedPostgresTarget(Postgres):
    """Rows say which file they came with."""

    keeps_parts = True


class TestUpsertingPostgresTarget(Postgres):
    """Each window is added by its keys."""

    keys = ("n",)


class Rekeyed(Postgres):
    """Files of rows with keys, for a table whose app has lost them meanwhile."""

    keys = ("n",)

    def table(self, root: Path) -> DatabaseTable:
        table = super().table(root)
        table.replace_by(())
        return table


def test_rows_have_the_keys_of_their_files(tmp_path: Path) -> None:
    """They may have waited in a group while the app changed."""
    for window in (1, 2):
        files = (*Rekeyed().files(tmp_path, 1), *Rekeyed().files(tmp_path, window))
        Rekeyed().target(tmp_path).open("w").commit([DecidedWindow(window, "d", files)])
    assert Rekeyed().rows(tmp_path) == Rekeyed().rows_of([1, 2])


class Attempted(Postgres):
    """Files of tasks of the writer `w`."""

    def table(self, root: Path) -> DatabaseTable:
        table = super().table(root)
        table.writer = "w"
        return table


def test_tables_of_attempts_that_were_never_decided_are_removed(tmp_path: Path) -> None:
    """With the transaction of their window, or of a later one; those of other writers stay."""
    database = Attempted()
    before = database.staged(tmp_path)
    *_, decided = (database.files(tmp_path, 1) for _ in range(3))
    other = TestPostgresTables().files(tmp_path, 1)
    database.target(tmp_path).open("w").commit([DecidedWindow(1, "d", tuple(decided))])
    assert database.staged(tmp_path) - before == {("_dagflow_" + Path(other[0].final_url).stem,)}
    database.target(tmp_path).open("").commit([DecidedWindow(1, "d", tuple(other))])
    assert database.staged(tmp_path) <= before
    assert database.rows(tmp_path) == database.rows_of([1, 1])


def test_a_task_that_fails_leaves_no_table(tmp_path: Path) -> None:
    """Its rows are in a transaction that is never committed, also where it has sent many."""
    database, rows = Postgres(), pa.table({"n": np.arange(2 << 20)})
    before = database.staged(tmp_path)
    files = database.begun(tmp_path, TaskOutputs(STORAGE, "attempt", "process"), rows)
    assert database.execute(tmp_path, "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'")
    del files
    assert database.staged(tmp_path) == before


def test_columns_become_wider(tmp_path: Path) -> None:
    """In the transaction of the rows, so that no value is rescued."""
    batches = [columns(n=pa.array([value], kind)) for value, kind in ((1, pa.int16()), (2**40, pa.int64()))]
    rows = TestPostgresTables().written(tmp_path, *batches)
    assert rows.schema == pa.schema([("n", pa.int64())]) and rows["n"].to_pylist() == [1, 2**40]


def test_what_postgres_does_not_have_is_rescued(tmp_path: Path) -> None:
    """Text with NUL, a struct, and a column of a name that each table has already."""
    batch = columns(n=[1, 2], t=["a\0b", "c"], s=[{"a": 1}, None], ctid=[7, None])
    first, second = TestPostgresTables().written(tmp_path, batch).to_pylist()
    assert (first["n"], first["t"], second["t"]) == (1, None, "c")
    for text in ('"s": {"a": 1}', '"t": "a\\u0000b"', '"ctid": 7'):
        assert text in first["_rescued"]


@pytest.mark.parametrize("rule", ["", " NOT NULL"])
def test_text_that_is_longer_than_its_column(tmp_path: Path, rule: str) -> None:
    """It is rescued, and its record is refused where there is no null; characters count, and not bytes."""
    database = TestPostgresTables()
    database.execute(tmp_path, f"CREATE TABLE {{}} (n integer, t varchar(3){rule})")
    batch = columns(n=[1, 2], t=["äöü", "abcd"])
    if rule:
        with pytest.raises(DagflowError, match=r"column 't' \(string\): 'abcd' has more than 3 characters"):
            database.written(tmp_path, batch)
        return
    first, second = database.written(tmp_path, batch).to_pylist()
    assert (first["t"], second["t"]) == ("äöü", None) and '"t": "abcd"' in second["_rescued"]


def test_names_that_the_server_would_cut(tmp_path: Path) -> None:
    """It cuts a name of more than 63 bytes without a word: such a column is rescued, and such a table refused."""
    longest = "ä" * 31 + "b"
    batches = [columns(**{"n": [1], longest: [2], longest + "c": [3]})] * 2
    rows = TestPostgresTables().written(tmp_path, *batches)
    assert rows.schema.names == ["n", longest, "_rescued"] and len(rows) == 2
    assert f'"{longest}c": 3' in rows["_rescued"].to_pylist()[1]
    with pytest.raises(ValueError, match="a name of PostgreSQL has 63 bytes at most"):
        PostgresTable(f"public.{longest}c", ())


def test_columns_that_are_left_to_the_database(tmp_path: Path) -> None:
    """It numbers or computes them, or has them in a type of its own; a record's value of that name is rescued."""
    database = TestPostgresTables()
    database.execute(
        tmp_path,
        "CREATE TABLE {} (id bigserial PRIMARY KEY, n integer, twice integer GENERATED ALWAYS AS (2 * n) STORED, "
        "p uuid NOT NULL DEFAULT gen_random_uuid())",
    )
    (row,) = database.written(tmp_path, columns(n=[4], twice=[1], p=["x"])).to_pylist()
    assert (row["id"], row["n"], row["twice"]) == (1, 4, 8) and len(str(row["p"])) == 36
    assert '"twice": 1' in row["_rescued"] and '"p": "x"' in row["_rescued"]


def test_a_column_that_the_user_may_not_add_is_named_with_the_statement(tmp_path: Path) -> None:
    """Another user owns the table: what the error says, run by the owner, lets the run continue."""
    database = TestPostgresTables()
    database.execute(tmp_path, "CREATE TABLE {} (n integer)")
    database.execute(tmp_path, "DROP TABLE IF EXISTS public._dagflow_markers")  # of the user of other tests
    database.execute(tmp_path, "CREATE ROLE loader LOGIN")
    database.execute(tmp_path, "GRANT SELECT, INSERT, DELETE, UPDATE ON {} TO loader")
    database.execute(tmp_path, "GRANT CREATE, USAGE ON SCHEMA public TO loader")
    address = database.address.replace("postgres@", "loader@")
    named = {"table": database.given(tmp_path), "staging": str(tmp_path / "staging"), "connection": address}
    loading = app(tmp_path, [columns(n=[1], more=[2])], commit={"every_millis": 0}, **named)
    with pytest.raises(StorageError, match="must be owner of table") as refused:
        run(loading, RunOptions(workers=1))
    (statement,) = re.findall(": (ALTER TABLE .*)", str(refused.value))
    database.execute(tmp_path, statement)
    run(loading, RunOptions(workers=1))
    assert database.execute(tmp_path, "SELECT n, more FROM {}") == [(1, 2)]


def test_a_server_that_dies_within_a_transaction_has_nothing_of_it(tmp_path: Path, server: Server) -> None:
    """And everything of those that it has answered; the window is taken when the server is back."""
    database = TestPostgresTables()
    target = database.target(tmp_path)
    target.open("w").commit([DecidedWindow(1, "d", tuple(database.files(tmp_path, 1)))])
    state_files = tuple(database.files(tmp_path, 2))
    with pytest.raises(StorageError, match=r"PostgreSQL refused: .+"), target.table.session(writes=True) as session:
        session.execute(f'INSERT INTO public."{target.table.path[-1]}" (n) VALUES (99)')
        server.stop("immediate")
    with pytest.raises(StorageError, match=r"PostgreSQL refused: .+"):
        target.open("w")
    server.start()
    state = target.open("w")
    assert state.marker == 1
    state.commit([DecidedWindow(2, "d", state_files)])
    assert database.rows(tmp_path) == database.rows_of([1, 2])


@pytest.mark.parametrize(
    ("moment", "first", "properties"), [("before", 3, {}), ("after", 2, {}), ("after", 2, {"upsert_by": "n"})]
)
def test_a_server_that_dies_at_a_commit(
    tmp_path: Path, server: Server, moment: Literal["before", "after"], first: int, properties: dict[str, Any]
) -> None:
    """At each of a run's commits, those that try and read included: the run goes on, and has each row once.

    Only the look before a run is not repeated, and ends it.
    """
    database, before = TestPostgresTables(), TestPostgresTables().staged(tmp_path)
    batches = [columns(n=[number], more=[2**number]) for number in range(2)]
    for at in itertools.count(first):
        root = tmp_path / str(at)
        with DyingServer(server, at, moment) as dying:
            named = {"table": database.given(root), "staging": str(root / "staging"), "connection": dying.address}
            run(app(root, batches, commit={"every_millis": 0}, **named, **properties), RunOptions(workers=1))
            if not dying.has_died:
                break
        assert database.rows(root) == [0, 1]
        assert not list((root / "staging").rglob("part-*"))
        assert database.staged(root) <= before
    assert at > 6


def test_a_transaction_that_is_still_on_its_way_is_waited_for(tmp_path: Path) -> None:
    """Its answer was lost, and the server ends it later: no row is there twice, whichever driver comes first."""
    database = TestPostgresTables()
    target = database.target(tmp_path)
    target.open("w").commit([DecidedWindow(1, "d", tuple(database.files(tmp_path, 1)))])
    before = target.open("w")
    with target.table.session(writes=True) as session:
        mark = 'UPDATE public._dagflow_markers SET "window" = 2 WHERE target = $1 AND "window" = 1'
        session.execute(mark, target.table.path[-1])
        patient = PostgresTable(".".join(target.table.path), ())
        patient.connect_by(f"{database.address}&options=-c%20lock_timeout%3D50ms", str(tmp_path / "staging"))
        impatient = patient.target(target.storage).open("w")
        files = tuple(database.files(tmp_path, 2))
        with pytest.raises(StorageError, match="lock timeout"):
            impatient.commit([DecidedWindow(2, "d", files)])
    with pytest.raises(StorageError, match="it has gone on from window 1"):
        before.commit([DecidedWindow(2, "d", tuple(database.files(tmp_path, 2)))])
    assert database.rows(tmp_path) == database.rows_of([1])


@pytest.mark.parametrize("connection", ["", "mysql://host/db", "host=localhost"])
def test_an_address_of_no_server_is_refused(connection: str) -> None:
    """With the form that it has, and without what was given, which may hold a password."""
    with pytest.raises(ValueError, match=r"postgres needs the address of a server: postgresql://USER@HOST/DATABASE$"):
        PostgresTable("public.orders", ()).connect_by(connection, "")


def test_a_password_is_in_no_message(tmp_path: Path) -> None:
    """Also where the server does not answer, or the address is damaged."""
    for address in (f"postgresql://me:secret-1@/db?host={tmp_path}", "postgresql://me:secret-1@host:port/db"):
        table = PostgresTable("public.orders", ())
        table.connect_by(address, "")
        with pytest.raises(DagflowError, match="refused") as error:
            table.target(TestPostgresTables().target(tmp_path).storage).shape()
        assert "secret-1" not in str(error.value)
