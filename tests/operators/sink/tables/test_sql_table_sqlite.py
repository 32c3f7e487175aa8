"""Tables of SQLite keep the laws of targets and of databases."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.engine.run import run
from dagflow.engine.window_repair import repair
from dagflow.errors import DagflowError, StorageError
from dagflow.plan.logical import grouped
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.table_writer import TableWriter
from operators.sink.tables.sql_table import SqliteFileTable
from tests.operators.sink.tables.sql_contract import SqlContract, SqlTargetContract
from tests.operators.sink.test_table_writer import app, columns


class Sqlite(SqlTargetContract):
    """A table in a file, which Python's own package reads and changes."""

    def given(self, root: Path) -> str:
        return f"sqlite:{root / 'shop 1%.db'}#my orders"

    def execute(self, root: Path, statement: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(root / "shop 1%.db")) as connection, connection:
            return connection.execute(statement.format('"my orders"')).fetchall()


class TestSqliteTables(Sqlite, SqlContract):
    """Each window has the same columns."""


class TestGrowingSqliteTarget(Sqlite):
    """Each window has a column that the table lacks."""

    grows = True


class TestReplayedSqliteTarget(Sqlite):
    """Rows say which file they came with."""

    keeps_parts = True


class TestUpsertingSqliteTarget(Sqlite):
    """Each window is added by its keys."""

    keys = ("n",)


def rows_of(root: Path, *batches: pa.RecordBatch, **properties: Any) -> list[dict[str, Any]]:
    """The rows that an app writes into a table of no other program."""
    rows: list[dict[str, Any]] = TestSqliteTables().written(root, *batches, **properties).to_pylist()
    return rows


def test_what_sqlite_does_not_have_is_rescued(tmp_path: Path) -> None:
    """NaN would become null without a word; a struct has no column."""
    batch = columns(n=[1, 2], x=[float("nan"), 0.5], s=[{"a": 1}, None])
    first, second = rows_of(tmp_path, batch)
    assert (first["n"], first["x"], second["x"]) == (1, None, 0.5)
    assert '"s": {"a": 1}' in first["_rescued"] and '"x": "nan"' in first["_rescued"]
    with pytest.raises(DagflowError, match=r"'x' .*is what SQLite has no value for"):
        rows_of(tmp_path / "2", batch, on_type_change="fail")


def test_columns_that_are_left_to_the_database(tmp_path: Path) -> None:
    """It computes them, or has them in a type of its own; a record's value of that name is rescued."""
    database = TestSqliteTables()
    database.execute(tmp_path, "CREATE TABLE {} (n INTEGER, twice INTEGER GENERATED ALWAYS AS (2 * n), p GEOGRAPHY)")
    (row,) = rows_of(tmp_path, columns(n=[4], twice=[1], p=["x"]))
    assert (row["n"], row["twice"], row["p"]) == (4, 8, None)
    assert '"twice": 1' in row["_rescued"] and '"p": "x"' in row["_rescued"]
    database.execute(tmp_path, "DROP TABLE {}")
    database.execute(tmp_path, "CREATE TABLE {} (n INTEGER, p GEOGRAPHY NOT NULL)")
    with pytest.raises(DagflowError, match="a column 'p' that allows no null, and which is GEOGRAPHY"):
        TestSqliteTables().target(tmp_path).shape()


def test_each_window_is_a_transaction(tmp_path: Path) -> None:
    """Without a window that merges others, unless an app asks for groups: a database does not need large files."""
    for commit, newest in ((None, 2), ({"bytes": 1 << 20}, 3)):
        root = tmp_path / str(newest)
        root.mkdir()
        batches, table = [columns(n=[1]), columns(n=[2])], TestSqliteTables().given(root)
        run(grouped(app(root, batches, table=table, commit=commit)), runtime=InlineRuntime)
        assert TestSqliteTables().rows(root) == [1, 2]
        assert TestSqliteTables().execute(root, 'SELECT "window" FROM _dagflow_markers') == [(newest,)]


@pytest.mark.parametrize("in_groups", [False, True])
@pytest.mark.nightly
def test_a_row_that_breaks_a_rule_of_the_database(tmp_path: Path, in_groups: bool) -> None:
    """The run ends with what the database says; repair takes the window back, and another table gets its rows."""
    TestSqliteTables().execute(tmp_path, "CREATE TABLE {} (n INTEGER CHECK (n < 10))")
    limits = {"commit": {"bytes": 1 << 20}} if in_groups else {}
    logical = app(tmp_path, [columns(n=[1, 20])], table=TestSqliteTables().given(tmp_path), **limits)
    with pytest.raises(
        DagflowError, match=r"CHECK constraint failed(.|\n)*dagflow repair .*/journal --window (1|2)"
    ) as error:
        run(grouped(logical), runtime=InlineRuntime)
    window = int(str(error.value).split("--window ")[1][0])
    repair(str(tmp_path / "journal"), window, StorageContext.default())
    writer = TableWriter(table=f"{TestSqliteTables().given(tmp_path)} 2", **limits)
    nodes = {**logical.operators, "table": replace(logical.operators["table"], operator=writer)}
    run(grouped(replace(logical, operators=nodes)), runtime=InlineRuntime)
    assert TestSqliteTables().execute(tmp_path, 'SELECT n FROM "my orders 2" ORDER BY n') == [(1,), (20,)]
    assert TestSqliteTables().rows(tmp_path) == [] and not list(tmp_path.rglob("part-*"))


def test_a_table_takes_the_place_of_one_that_was_renamed(tmp_path: Path) -> None:
    """As the refusal of --fresh advises: the old one keeps its index of keys, which does not hinder the new one."""
    database, keyed = TestSqliteTables(), {"table": TestSqliteTables().given(tmp_path), "upsert_by": ["k"]}
    database.written(tmp_path / "a", columns(k=["a"], n=[1]), **keyed)
    database.execute(tmp_path, 'ALTER TABLE {} RENAME TO "orders before"')
    database.written(tmp_path / "b", columns(k=["a"], n=[2]), **keyed)
    assert database.rows(tmp_path) == [2]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """It is left as it is."""
    path = tmp_path / "shop 1%.db"
    path.write_text("notes, and no database at all" * 10)
    with pytest.raises(StorageError, match=r"SQLite refused: .*not a database"):
        TestSqliteTables().target(tmp_path).shape()
    assert path.read_text().startswith("notes")


@pytest.mark.parametrize("location", ["out/shop.db", "#orders", "out/shop.db#", "s3://bucket/shop.db#orders"])
def test_a_location_that_names_no_table_is_refused(location: str) -> None:
    """With the form that it has."""
    with pytest.raises(ValueError, match=r"takes FILE#TABLE .* as in sqlite:out/shop\.db#orders"):
        SqliteFileTable(location, ())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("SQLite_stat1", "'SQLite_stat1' begins with sqlite_, as tables do that are not for apps"),
        ("_dagflow_markers", "'_dagflow_markers' begins with _dagflow_, as tables do that are not for apps"),
        ("a\0b", r"SQLite has no table .*: its name has the control character U\+0000"),
    ],
)
def test_a_name_that_no_table_can_have_is_refused(name: str, why: str) -> None:
    """Nothing is decided for a table that no transaction could make, or that dagflow itself needs."""
    with pytest.raises(ValueError, match=why):
        SqliteFileTable(f"out/shop.db#{name}", ())


def test_a_table_is_not_given_more_columns_than_sqlite_has(tmp_path: Path) -> None:
    """The others are rescued, and the rows of the window are there."""
    there = ", ".join(f"c{number} INTEGER" for number in range(1990))
    TestSqliteTables().execute(tmp_path, f"CREATE TABLE {{}} ({there})")
    (row,) = rows_of(tmp_path, columns(**{f"d{number}": [number] for number in range(20)}))
    assert 1995 < len(row) <= 2000
    assert '"d19": 19' in row["_rescued"]
