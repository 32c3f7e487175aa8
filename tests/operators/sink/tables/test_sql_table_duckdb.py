"""Tables of DuckDB keep the laws of targets and of databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dagflow.errors import StorageError
from tests.operators.sink.tables.sql_contract import SqlContract, SqlTargetContract
from tests.operators.sink.test_table_writer import columns


class Duckdb(SqlTargetContract):
    """A table in a file, which DuckDB itself reads and changes."""

    def given(self, root: Path) -> str:
        return f"duckdb:{root / 'shop.db'}#main.my orders"

    def execute(self, root: Path, statement: str) -> list[Any]:
        with duckdb.connect(str(root / "shop.db")) as connection:
            return list(connection.execute(statement.format('main."my orders"')).fetchall())


class TestDuckdbTables(Duckdb, SqlContract):
    """Each window has the same columns."""


@pytest.mark.nightly
class TestGrowingDuckdbTarget(Duckdb):
    """Each window has a column that the table lacks."""

    grows = True


@pytest.mark.nightly
class TestReplayedDuckdbTarget(Duckdb):
    """Rows say which file they came with."""

    keeps_parts = True


class TestUpsertingDuckdbTarget(Duckdb):
    """Each window is added by its keys."""

    keys = ("n",)


def test_names_are_those_of_the_database(tmp_path: Path) -> None:
    """It takes names without regard to case, and so finds a table that another program spells otherwise."""
    database = TestDuckdbTables()
    database.execute(tmp_path, 'CREATE TABLE main."MY Orders" (n INTEGER, twice INTEGER GENERATED ALWAYS AS (2 * n))')
    (row,) = database.written(tmp_path, columns(n=[4], twice=[1])).to_pylist()
    assert (row["n"], row["twice"]) == (4, 8) and '"twice": 1' in row["_rescued"]


def test_columns_become_wider(tmp_path: Path) -> None:
    """In the transaction of the rows, so that no value is rescued."""
    batches = [columns(n=pa.array([value], kind)) for value, kind in ((1, pa.int16()), (2**40, pa.int64()))]
    rows = TestDuckdbTables().written(tmp_path, *batches)
    assert rows.schema == pa.schema([("n", pa.int64())]) and rows["n"].to_pylist() == [1, 2**40]


def test_parts_of_columns(tmp_path: Path) -> None:
    """Structs, lists and maps are those of Arrow; a new member of a struct is rescued."""
    kind = pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))])
    value = {"a": [1, None], "m": [("k", 5)]}
    wider = columns(s=pa.array([{"a": [2], "m": [], "more": 1}], pa.struct([*kind, ("more", pa.int64())])))
    first, second = TestDuckdbTables().written(tmp_path, columns(s=pa.array([value], kind)), wider).to_pylist()
    assert first["s"] == value and second["s"] == {"a": [2], "m": []}
    assert '"s": {"more": 1}' in second["_rescued"]


def test_columns_that_are_left_to_the_database(tmp_path: Path) -> None:
    """It computes them, or has them in a type of its own; a record's value of that name is rescued."""
    database = TestDuckdbTables()
    database.execute(tmp_path, "CREATE TABLE {} (n INTEGER, twice INTEGER GENERATED ALWAYS AS (2 * n), p UUID, j JSON)")
    (row,) = database.written(tmp_path, columns(n=[4], twice=[1], p=["x"])).to_pylist()
    assert (row["n"], row["twice"], row["p"]) == (4, 8, None)
    assert '"twice": 1' in row["_rescued"] and '"p": "x"' in row["_rescued"]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """It is left as it is."""
    (tmp_path / "shop.db").write_text("notes" * 10000)
    with pytest.raises(StorageError, match=r"DuckDB refused: .*not a valid DuckDB database file"):
        TestDuckdbTables().target(tmp_path).shape()
    assert (tmp_path / "shop.db").read_text().startswith("notes")
