"""Delta tables as targets: the laws of all targets, and tables that others have made."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import AioSession
from deltalake import DeltaTable as Handle
from deltalake import Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from dagflow.api.transactions import DecidedWindow, Target
from dagflow.errors import DagflowError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.target_contract import TargetContract
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables.delta_log import DeltaLog
from operators.sink.tables.delta_table import DeltaTable
from operators.sink.tables.partition_fields import PartitionField

STORAGE = StorageContext.default()
ROWS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def numbers(window_id: int) -> list[int]:
    """The values of n in the rows of a window."""
    return [10 * window_id, 10 * window_id + 1]


def data_file(table: Path, window_id: int, schema: pa.Schema = ROWS) -> PendingFile:
    """A file of a window, in its place."""
    table.mkdir(exist_ok=True)
    path = table / f"part-{os.urandom(8).hex()}.parquet"
    values = {"n": numbers(window_id)}
    rows = pa.table({each.name: pa.array(values.get(each.name, ["a", "b"])).cast(each.type) for each in schema})
    pq.write_table(rows, path)
    facts = FileFacts("orders", schema_text(schema), nulls={"n": 0}, least={"n": 10 * window_id})
    return PendingFile(str(path), "", path.stat().st_size, 2, facts=facts)


class TestDeltaTarget(TargetContract):
    """Two rows for each window; others add, compact and change columns."""

    def target(self, root: Path) -> Target:
        """A table below the directory."""
        target: Target = DeltaTable(str(root / "table"), ()).target(STORAGE)
        return target

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file."""
        return [data_file(root / "table", window_id)]

    def rows(self, root: Path) -> list[Any]:
        """The numbers."""
        return sorted(Handle(str(root / "table")).to_pyarrow_table()["n"].to_pylist())

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """Two of them."""
        return sorted(n for window_id in window_ids for n in numbers(window_id))

    def change_by_others(self, root: Path) -> None:
        """Another program adds rows, compacts the table, and adds a column."""
        table = str(root / "table")
        write_deltalake(table, pa.table({"n": [-1]}), mode="append", schema_mode="merge")
        Handle(table).optimize.compact()
        Handle(table).alter.add_columns([Field("later", PrimitiveType("string"))])

    def others_rows(self) -> list[Any]:
        """What it has added."""
        return [-1]


class TestGrowingDeltaTarget(TestDeltaTarget):
    """Each window has a column that the table lacks, and is under the same laws."""

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file, whose texts have another name in each window."""
        return [data_file(root / "table", window_id, pa.schema([("n", pa.int64()), (f"text{window_id}", pa.string())]))]


class TestUpsertingDeltaTarget(TestDeltaTarget):
    """Each window is added by its keys, and is under the same laws."""

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file whose rows are distinguished by their numbers."""
        file = data_file(root / "table", window_id)
        assert file.facts is not None
        return [replace(file, facts=replace(file.facts, keys=["n"]))]

    def target(self, root: Path) -> Target:
        """A table in a directory."""
        table = DeltaTable(str(root / "table"), ())
        table.replace_by(["n"])
        target: Target = table.target(STORAGE)
        return target


def refused(path: Path, partition_by: Sequence[str] = ()) -> str:
    """Why a table cannot be written to."""
    with pytest.raises(DagflowError, match=r".+") as error:
        DeltaTable(str(path), partition_by).target(STORAGE).shape()
    return str(error.value)


def made(path: Path, partition_by: Sequence[str] = (), **configuration: str) -> Handle:
    """A table of another program."""
    schema = Schema.from_arrow(ROWS)
    return Handle.create(str(path), schema, partition_by=list(partition_by), configuration=configuration)


def test_tables_with_rules_of_their_own_are_refused(tmp_path: Path) -> None:
    """Added files would not respect them; what is refused is named."""
    made(tmp_path / "checked").alter.add_constraint({"positive": "n > 0"})
    assert "has delta.constraints.positive, which files that are added" in refused(tmp_path / "checked")
    field = Field("n", PrimitiveType("long"), metadata={"delta.generationExpression": "1"})
    with_expression = Schema([field, Field("text", PrimitiveType("string"))])
    Handle.create(str(tmp_path / "generated"), with_expression)
    assert "delta.generationExpression of column n" in refused(tmp_path / "generated")


def test_another_partitioning_is_refused(tmp_path: Path) -> None:
    """Both are named; without partition_by the table's own is taken."""
    made(tmp_path / "t", ["text"])
    assert "is partitioned by text, and partition_by says n\n" in refused(tmp_path / "t", ["n"])
    assert DeltaTable(str(tmp_path / "t"), ()).target(STORAGE).shape().partition_by == (PartitionField("text"),)


def test_a_table_that_forgets_markers_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run that is interrupted for longer would add a window twice."""
    made(tmp_path / "t", **{"delta.setTransactionRetentionDuration": "interval 1 days"})
    with caplog.at_level(logging.WARNING):
        DeltaTable(str(tmp_path / "t"), ()).target(STORAGE).shape()
    assert "forgets which windows it has after interval 1 days" in caplog.text


def test_a_directory_of_other_files_becomes_no_table(tmp_path: Path) -> None:
    """A mistake in the path is reported before anything is written."""
    (tmp_path / "notes.txt").touch()
    assert "the directory holds 1 files, such as notes.txt, and no Delta table" in refused(tmp_path)


def test_files_with_other_columns_are_refused_before_the_intent(tmp_path: Path) -> None:
    """Another type, or a column that the table lacks; files that lack a column are taken."""
    table = DeltaTable(str(tmp_path / "t"), ())
    target, other_type = table.target(STORAGE), ROWS.set(0, pa.field("n", pa.int32()))
    with pytest.raises(DagflowError, match="column 'n' is int32: it is int64 there"):
        target.check([data_file(tmp_path / "t", 1), data_file(tmp_path / "t", 1, other_type)])
    target.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "t", 1, ROWS.remove(1)),))])
    assert target.open("w").marker == 1
    with pytest.raises(DagflowError, match="has no column 'text' for string, and on_new_column is fail"):
        target.check([data_file(tmp_path / "t", 2)])
    target.check([data_file(tmp_path / "t", 2, ROWS.remove(1))])


def test_a_frozen_driver_adds_no_window_behind_its_columns(tmp_path: Path) -> None:
    """It may add a column that a decided window needs, and finds then that the window is there."""
    target = DeltaTable(str(tmp_path / "t"), ()).target(STORAGE)
    narrow = ROWS.remove(1)
    target.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "t", 1, narrow),))])
    stale = target.open("w")
    target.open("w").commit([DecidedWindow(2, "d", (data_file(tmp_path / "t", 2, narrow),))])
    with pytest.raises(StorageError, match="another driver has added a window meanwhile"):
        stale.commit([DecidedWindow(2, "e", (data_file(tmp_path / "t", 2),))])
    assert Handle(str(tmp_path / "t")).to_pyarrow_table().to_pydict() == {"n": [20, 21, 10, 11], "text": [None] * 4}


def test_a_decided_column_is_added_also_where_the_app_says_fail_now(tmp_path: Path) -> None:
    """And one that another program has added meanwhile is no error."""
    strict = DeltaTable(str(tmp_path / "t"), (), on_new_column="fail").target(STORAGE)
    strict.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "t", 1, ROWS.remove(1)),))])
    strict.open("w").commit([DecidedWindow(2, "d", (data_file(tmp_path / "t", 2),))])
    state, third = strict.open("w"), ROWS.append(pa.field("third", pa.string()))
    Handle(str(tmp_path / "t")).alter.add_columns([Field("third", PrimitiveType("string"))])
    window = DecidedWindow(3, "d", (data_file(tmp_path / "t", 3, third),))
    state.commit([window])
    assert Handle(str(tmp_path / "t")).to_pyarrow_table().num_rows == 6


def test_a_window_that_was_decided_for_another_place_is_refused(tmp_path: Path) -> None:
    """The app was changed between a crash and the next run; the file would be outside the table."""
    file = data_file(tmp_path / "before", 1)
    with pytest.raises(DagflowError, match=r"was decided for another table than .*after\n"):
        DeltaTable(str(tmp_path / "after"), ()).target(STORAGE).open("w").commit([DecidedWindow(1, "d", (file,))])


def test_a_broken_log_is_an_error_of_the_store(tmp_path: Path) -> None:
    """What deltalake says is passed on."""
    made(tmp_path / "t")
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text("torn")
    with pytest.raises(StorageError, match="deltalake: "):
        DeltaTable(str(tmp_path / "t"), ()).target(STORAGE).shape()


def test_the_newest_version_survives_a_power_loss(tmp_path: Path) -> None:
    """The log is synced; nothing of it changes."""
    target = DeltaTable(str(tmp_path / "t"), ()).target(STORAGE)
    target.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "t", 1),))])
    target.sync()
    assert target.open("w").version == "version 0"


def test_names_with_spaces_and_letters_of_all_scripts(tmp_path: Path) -> None:
    """Locations are paths, and not URLs."""
    target = DeltaTable(str(tmp_path / "Größe 100%"), ()).target(STORAGE)
    target.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "Größe 100%", 1),))])
    assert target.open("w").marker == 1


def test_a_state_does_not_go_on_with_its_target(tmp_path: Path) -> None:
    """The target has looked again and seen another driver's window: what was read before takes nothing."""
    table = tmp_path / "table"
    target = DeltaTable(str(table), ()).target(STORAGE)
    target.open("w").commit([DecidedWindow(1, "one", (data_file(table, 1),))])
    before = target.open("w")
    DeltaTable(str(table), ()).target(STORAGE).open("w").commit([DecidedWindow(2, "two", (data_file(table, 2),))])
    assert target.open("w").marker == 2
    assert before.marker == 1
    with pytest.raises(StorageError, match="it has gone on from version 0"):
        before.commit([DecidedWindow(2, "again", (data_file(table, 2),))])
    assert Handle(str(table)).to_pyarrow_table().num_rows == 4


def test_a_table_that_was_made_anew_is_read_anew(tmp_path: Path) -> None:
    """It has as many versions as the one before, or fewer, and none of its windows."""
    table = tmp_path / "table"
    target = DeltaTable(str(table), ()).target(STORAGE)
    for window_id in (1, 2):
        target.open("w").commit([DecidedWindow(window_id, f"{window_id}", (data_file(table, window_id),))])
    assert target.open("w").marker == 2
    shutil.rmtree(table)
    assert target.open("w").marker == 0
    for value in (7, 8):
        write_deltalake(str(table), pa.table({"n": [value]}), mode="append")
    state = target.open("w")
    assert (state.marker, state.version) == (0, "version 1")
    state.commit([DecidedWindow(3, "three", (data_file(table, 3),))])
    assert sorted(Handle(str(table)).to_pyarrow_table()["n"].to_pylist()) == [7, 8, 30, 31]


@pytest.mark.parametrize("count", [1, 100])
def test_many_new_columns_are_added_by_few_looks_at_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A look takes as long as there are columns, so that one for each would make a wide table slow."""
    target = DeltaTable(str(tmp_path / "table"), (), on_new_column="add").target(STORAGE)
    target.open("w").commit([DecidedWindow(1, "d", (data_file(tmp_path / "table", 1),))])
    looks, look = [], Handle.schema

    def noted(handle: Handle) -> Schema:
        looks.append(1)
        return look(handle)

    monkeypatch.setattr(Handle, "schema", noted)
    wide = pa.schema([*ROWS, *((f"c{number}", pa.string()) for number in range(count))])
    files = (data_file(tmp_path / "table", 2, wide),)
    state = target.open("w")
    target.check(files)
    state.commit([DecidedWindow(2, "d", files)])
    assert target.open("w").marker == 2 and len(looks) < 80


def test_the_log_is_not_read_again_from_its_beginning(tmp_path: Path) -> None:
    """Entries that were seen may be gone: another program has cleaned the log up behind a checkpoint."""
    table = tmp_path / "table"
    target = DeltaTable(str(table), ()).target(STORAGE)
    for window_id in range(1, 6):
        target.open("w").commit([DecidedWindow(window_id, f"{window_id}", (data_file(table, window_id),))])
    assert target.open("w").marker == 5
    for version in range(4):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    state = target.open("w")
    assert (state.marker, state.decision()) == (5, "5")


def test_deltalake_is_given_credentials_as_they_are_now(s3_server: str) -> None:
    """Credentials of a role are others an hour later, and a run may take longer."""
    session = AioSession()
    log = DeltaLog(DeltaTable("s3://bucket/table", ()), StorageContext({"s3": {"session": session}}))
    for key in ("first", "second"):
        session._credentials = AioCredentials(key, "secret")
        assert log.options()["aws_access_key_id"] == key
