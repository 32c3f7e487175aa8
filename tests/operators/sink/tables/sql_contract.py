"""The laws of tables of databases, to be inherited for each database."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.api.transactions import DecidedWindow
from dagflow.engine.run import run
from dagflow.errors import DagflowError, StorageError
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.target_contract import TargetContract
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables.base import table_class
from operators.sink.tables.sql_table import DatabaseTable
from operators.sink.tables.sql_target import SqlTarget
from tests.operators.sink.test_table_writer import TYPES, app, columns

STORAGE = StorageContext.default()
ROWS = pa.schema([("n", pa.int64()), ("text", pa.string())])


class SqlTargetContract(TargetContract):
    """Two rows for each window, under the laws of all targets.

    A subclass says what the app names, and runs statements as another program does.
    """

    rows_name_files = True
    keys: Sequence[str] = ()
    grows: bool = False
    keeps_parts: bool = False

    @abstractmethod
    def given(self, root: Path) -> str:
        """The table below a directory, as YAML gives it."""

    @abstractmethod
    def execute(self, root: Path, statement: str) -> list[Any]:
        """The rows that a statement returns to another program; `{}` stands for the table."""

    def options(self, root: Path) -> Mapping[str, Any]:
        """Other properties of the writer that the table needs."""
        return {}

    def table(self, root: Path) -> DatabaseTable:
        """The table of an app."""
        kind, _, location = self.given(root).partition(":")
        table = table_class(kind)(location, (), on_new_column="add")
        table.connect_by(**{"connection": "", "staging": "", **self.options(root)})
        table.replace_by(self.keys)
        if self.keeps_parts:
            table.keep_parts()
        assert isinstance(table, DatabaseTable)
        return table

    def target(self, root: Path) -> SqlTarget:
        target = self.table(root).target(STORAGE)
        assert isinstance(target, SqlTarget)
        return target

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        name = f"text{window_id}" if self.grows else "text"
        return [self.file(root, pa.table({"n": [10 * window_id, 10 * window_id + 1], name: ["a", "b"]}))]

    def file(self, root: Path, rows: pa.Table) -> PendingFile:
        """A file of rows, in its place."""
        folder = Path(self.table(root).location)
        folder.mkdir(exist_ok=True, parents=True)
        path = folder / f"part-{os.urandom(8).hex()}.parquet"
        pq.write_table(rows, path)
        facts = FileFacts("orders", schema_text(rows.schema), keys=[*self.keys])
        return PendingFile(str(path), "", path.stat().st_size, rows.num_rows, facts=facts)

    @contextlib.contextmanager
    def lost(self, root: Path, file: PendingFile) -> Iterator[None]:
        """Within it, the rows of a file cannot be loaded."""
        content = Path(file.final_url).read_bytes()
        Path(file.final_url).write_bytes(content[:100])
        yield
        Path(file.final_url).write_bytes(content)

    def rows(self, root: Path) -> list[Any]:
        return sorted(number for (number,) in self.execute(root, "SELECT n FROM {}"))

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        return sorted(number for window_id in window_ids for number in (10 * window_id, 10 * window_id + 1))

    def change_by_others(self, root: Path) -> None:
        self.execute(root, "INSERT INTO {} (n) VALUES (-1)")
        self.execute(root, "ALTER TABLE {} ADD COLUMN later INTEGER")

    def others_rows(self) -> list[Any]:
        return [-1]

    def test_a_check_leaves_no_trace(self, tmp_path: Path) -> None:
        """It tries the transaction of a window, and takes it back."""
        target = self.target(tmp_path)
        target.open("w")
        target.check(self.files(tmp_path, 1))
        assert (self.target(tmp_path).open("w").marker, self.target(tmp_path).rows()) == (0, None)

    def test_what_the_database_never_takes_is_refused_before(self, tmp_path: Path) -> None:
        """No window is decided that no transaction could add: here the name is that of a view without a table."""
        self.execute(tmp_path, "CREATE VIEW {} AS SELECT CAST(1 AS INTEGER) AS n, CAST('a' AS TEXT) AS text")
        target = self.target(tmp_path)
        target.open("w")
        with pytest.raises(StorageError, match=r"refused: .+"):
            target.check(self.files(tmp_path, 1))


class SqlContract(SqlTargetContract):
    """What holds beside the laws of all targets."""

    def written(self, root: Path, *batches: pa.RecordBatch, **properties: Any) -> pa.Table:
        """Run an app over batches, one in each window; return what the table then has."""
        named = {"table": self.given(root), **self.options(root), "commit": {"every_millis": 0}, **properties}
        run(app(root, batches, **named), runtime=InlineRuntime)
        rows = self.target(root).rows()
        return pa.table({}) if rows is None else rows.read_all()

    def test_windows_are_short(self, tmp_path: Path) -> None:
        """The driver's transaction writes the rows of one while tasks are at work on others."""
        assert self.target(tmp_path).writes_again

    def test_files_of_rows_in_the_table_are_removed(self, tmp_path: Path) -> None:
        """Nothing else needs them."""
        files = self.files(tmp_path, 1)
        self.target(tmp_path).open("w").commit([DecidedWindow(1, "d", tuple(files))])
        self.target(tmp_path).finish(files)
        assert not list(Path(self.table(tmp_path).location).iterdir())

    def test_a_transaction_that_fails_half_way_changes_nothing(self, tmp_path: Path) -> None:
        """Neither rows of its first file, nor the marker, nor columns; the next one has all of them."""
        self.target(tmp_path).open("w").commit([DecidedWindow(1, "d", tuple(self.files(tmp_path, 1)))])
        files = [*self.files(tmp_path, 2), *self.files(tmp_path, 3)]
        with self.lost(tmp_path, files[1]), pytest.raises(Exception, match=r".+"):
            self.target(tmp_path).open("w").commit([DecidedWindow(3, "e", tuple(files))])
        assert self.rows(tmp_path) == self.rows_of([1])
        assert self.target(tmp_path).open("w").marker == 1
        self.target(tmp_path).open("w").commit([DecidedWindow(3, "e", tuple(files))])
        assert self.rows(tmp_path) == self.rows_of([1, 2, 3])

    def test_a_table_that_was_removed_begins_anew(self, tmp_path: Path) -> None:
        """The marker of the one before says nothing of it."""
        self.target(tmp_path).open("w").commit([DecidedWindow(1, "d", tuple(self.files(tmp_path, 1)))])
        self.execute(tmp_path, "DROP TABLE {}")
        state = self.target(tmp_path).open("w")
        assert state.marker == 0
        state.commit([DecidedWindow(2, "e", tuple(self.files(tmp_path, 2)))])
        assert self.rows(tmp_path) == self.rows_of([2])

    def test_types_come_back_as_they_are(self, tmp_path: Path) -> None:
        """A table that dagflow has made is one that it can add to: of each type, all values, in two windows."""
        table, seen = self.table(tmp_path), {}
        for number, (given, _, _) in enumerate(TYPES):
            if pa.types.is_nested(given.type):
                continue
            kind = table.column_type(given.type if not pa.types.is_dictionary(given.type) else pa.string())
            seen[f"c{number}"] = given, given.cast(kind)
        most = max(len(given) for given, _ in seen.values())
        batch = columns(
            **{
                name: pa.concat_arrays([given, pa.nulls(most - len(given), given.type)])
                for name, (given, _) in seen.items()
                if not pa.types.is_dictionary(given.type)
            }
        )
        rows = self.written(tmp_path, batch, batch)
        for name in batch.schema.names:
            expected = seen[name][1]
            column = rows[name].combine_chunks()
            assert column.type == expected.type, name
            assert column.slice(0, len(expected)).equals(expected), name
            assert column.slice(most, len(expected)).equals(expected), name
        assert self.target(tmp_path).shape().columns == rows.schema

    def test_newest_rows_of_keys(self, tmp_path: Path) -> None:
        """A null is a key as any other, also beside others; rows of other programs are replaced, too."""
        batch = columns(k=["a", None, "b", "a"], m=[1, 1, None, 1], n=[1, 2, 3, 4])
        rows = self.written(tmp_path, batch, upsert_by=["k", "m"])
        assert sorted(rows["n"].to_pylist()) == [2, 3, 4]
        self.execute(tmp_path, "INSERT INTO {} (k, m, n) VALUES ('a', 1, 9)")
        more = columns(k=["a", "b", None, "c"], m=[1, None, 1, 1], n=[10, 30, 20, 40])
        self.written(tmp_path / "another app", more, upsert_by=["k", "m"], table=self.given(tmp_path))
        assert self.rows(tmp_path) == [10, 20, 30, 40]

    def test_a_new_column_is_added(self, tmp_path: Path) -> None:
        """Earlier rows have nulls there; the columns of the table stay in their order."""
        rows = self.written(tmp_path, columns(n=[1]), columns(extra=["x"], n=[2]))
        assert rows.schema.names == ["n", "extra"]
        assert sorted(rows["extra"].to_pylist(), key=str) == [None, "x"]

    def test_a_value_that_does_not_fit_is_rescued(self, tmp_path: Path) -> None:
        """Text for a number, and a date that the database's readers do not have."""
        rows = self.written(tmp_path, columns(n=[1]), columns(n=["many"]))
        assert rows["n"].to_pylist() == [1, None]
        assert '"n": "many"' in rows["_rescued"].to_pylist()[1]
        late = self.written(tmp_path / "2", columns(day=pa.array([0, 3_000_000], pa.date32())))
        assert late["day"].null_count == 1 and "day" in (late["_rescued"].to_pylist()[1] or "")

    def test_a_table_of_another_program_is_added_to(self, tmp_path: Path) -> None:
        """With its types and names, whatever they are called; a record with a null that it forbids is refused."""
        self.execute(tmp_path, 'CREATE TABLE {} ("a ""b""" INTEGER, n INTEGER NOT NULL, "select" VARCHAR(20))')
        rows = self.written(tmp_path, columns(**{"select": ["x"], 'a "b"': [1], "n": [7]}))
        assert rows.to_pylist() == [{'a "b"': 1, "n": 7, "select": "x"}]
        other = tmp_path / "2"
        other.mkdir()
        self.execute(other, "CREATE TABLE {} (n INTEGER NOT NULL)")
        with pytest.raises(DagflowError, match="allows no null"):
            self.written(other, columns(n=pa.array([1, None], pa.int64())))
        assert self.rows(other) == []

    def test_partitions_are_refused(self, tmp_path: Path) -> None:
        """An app that names some is told why."""
        kind, _, location = self.given(tmp_path).partition(":")
        with pytest.raises(ValueError, match="has no partitions that an app could choose"):
            table_class(kind)(location, ("n",))
