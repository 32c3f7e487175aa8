"""Datasets of Parquet that an app writes and joins, as other programs read them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, StorageError
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.table_writer import TableWriter
from operators.sink.tables.parquet_dataset import ParquetDataset
from tests.operators.sink.test_table_writer import BATCHES, app, columns

STORAGE = StorageContext.default()


def write(root: Path, *batches: pa.RecordBatch, options: RunOptions = RunOptions(), **properties: Any) -> pa.Table:  # noqa: B008  # frozen
    """Run an app over batches, one in each window; return what the dataset then has."""
    run(app(root, batches, table=f"parquet:{root / 'table'}", **properties), options, runtime=InlineRuntime)
    return read(root)


def read(root: Path) -> pa.Table:
    """The rows of the dataset."""
    return ds.dataset(root / "table", format="parquet", partitioning="hive").to_table()


def names(root: Path) -> list[str]:
    """The files below the dataset that readers see."""
    return sorted(str(path.relative_to(root / "table")) for path in (root / "table").rglob("[!.]*.parquet"))


def refused(root: Path, partition_by: Sequence[str] = ()) -> str:
    """Why a dataset cannot be joined."""
    with pytest.raises(DagflowError, match=r".+") as error:
        ParquetDataset(str(root / "table"), partition_by).target(STORAGE).shape()
    return str(error.value)


def test_windows_are_files_in_directories_of_their_values(tmp_path: Path) -> None:
    """Names hold window, partition and number; a missing value and an empty text have the directory of Hive."""
    batch = columns(n=[1, 2, 3, 4], k=["a/b", "c", None, ""])
    found = write(tmp_path, batch, partition_by=["k"])
    assert names(tmp_path) == [
        "k=__HIVE_DEFAULT_PARTITION__/part-00000001-00000-0002.parquet",
        "k=a%2Fb/part-00000001-00000-0000.parquet",
        "k=c/part-00000001-00000-0001.parquet",
    ]
    assert sorted(zip(*found.select(["n", "k"]).to_pydict().values(), strict=True)) == [
        (1, "a/b"), (2, "c"), (3, None), (4, None),
    ]  # fmt: skip


def test_a_dataset_of_others_is_joined_as_it_is(tmp_path: Path) -> None:
    """Its types and its directories are taken; records with narrower numbers are given them."""
    pq.write_to_dataset(pa.table({"n": [1], "x": ["a"], "day": [dt.date(2026, 1, 2)]}), tmp_path / "table", ["day"])
    batch = columns(n=pa.array([2], pa.int16()), day=[dt.date(2026, 1, 3)], new=[True])
    found = write(tmp_path, batch).sort_by("n")
    assert found.select(["n", "x", "day"]).to_pydict() == {
        "n": [1, 2], "x": ["a", None], "day": ["2026-01-02", "2026-01-03"],
    }  # fmt: skip
    assert found.schema.field("n").type == pa.int64()
    assert [name.partition("/")[0] for name in names(tmp_path)] == ["day=2026-01-02", "day=2026-01-03"]


def test_a_second_run_adds_files(tmp_path: Path) -> None:
    """And the records of the first are not written again."""
    write(tmp_path, columns(n=[1], k=["a"]), partition_by=["k"])
    first = names(tmp_path)
    assert write(tmp_path, columns(n=[1], k=["a"]), columns(n=[2], k=["a"]), partition_by=["k"])["n"].to_pylist() == [
        1,
        2,
    ]
    assert set(first) < set(names(tmp_path))


@pytest.mark.parametrize("known", [False, True])
def test_files_of_one_column_in_two_types_are_refused(tmp_path: Path, known: bool) -> None:
    """Before the window is decided, and nothing of it is visible."""
    if known:
        pq.write_to_dataset(pa.table({"n": [1]}), tmp_path / "table")
    rows = columns(n=[1], x=[2]), columns(n=[1], x=["text"])
    with pytest.raises(DagflowError, match=r"column 'x' is string, and int64 in table"):
        write(tmp_path, *rows, on_type_change="fail")
    assert len(names(tmp_path)) == 1 + known, "the second window"


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    """Other files, other directories, several partitionings, types that differ, and broken files."""
    table = tmp_path / "table"
    pq.write_to_dataset(pa.table({"n": [1], "k": ["a"]}), table, ["k"])
    assert "is partitioned by k, and partition_by says n\n" in refused(tmp_path, ["n"])
    pq.write_table(pa.table({"n": ["text"]}), table / "k=a" / "other.parquet")
    assert "has files whose column 'n' is " in refused(tmp_path)
    (table / "k=a" / "other.parquet").write_bytes(b"PAR1 no footer PAR1")
    assert "other.parquet is no file of Parquet: " in refused(tmp_path)
    (table / "k=a" / "other.parquet").unlink()
    pq.write_table(pa.table({"n": [1]}), table / "other.parquet")
    assert "has files that are partitioned by k, and others, such as" in refused(tmp_path)
    (table / "other.parquet").rename(table / "notes.txt")
    assert f"holds notes.txt in {table}, which is neither a file of Parquet nor" in refused(tmp_path)
    (table / "notes.txt").rename(table / "_notes.txt")
    assert ParquetDataset(str(table), ["k"]).target(STORAGE).shape().columns == pa.schema([("n", pa.int64())])


def test_names_that_another_checkpoint_has_given_are_refused(tmp_path: Path) -> None:
    """Otherwise a window would find its place taken, when it is decided already."""
    write(tmp_path, columns(n=[1], k=["a"]), partition_by=["k"])
    (tmp_path / "other").mkdir()
    logical = app(tmp_path / "other", [columns(n=[1], k=["a"])], table=f"parquet:{tmp_path / 'table'}")
    with pytest.raises(StorageError, match="holds files that this checkpoint did not publish"):
        run(logical, runtime=InlineRuntime)


def test_fresh_removes_the_files_of_the_checkpoint(tmp_path: Path) -> None:
    """And no others."""
    pq.write_to_dataset(pa.table({"n": [0]}), tmp_path / "table")
    write(tmp_path, columns(n=[1]), columns(n=[2]))
    assert write(tmp_path, columns(n=[3]), options=RunOptions(fresh=True))["n"].to_pylist() == [0, 3]


def test_a_window_is_run_again_and_replaced(tmp_path: Path) -> None:
    """By the names of its files, as those of other writers are; a value that has moved takes its file along."""
    batches = [columns(n=[1, 2], k=["a", "b"]), columns(n=[3], k=["a"])]
    table = {"table": f"parquet:{tmp_path / 'table'}", "partition_by": ["k"]}
    run(app(tmp_path, batches, **table), runtime=InlineRuntime)
    name = str(len(BATCHES) - 2)
    BATCHES[name] = columns(n=[1, 20], k=["a", "c"])
    replay_windows(app(tmp_path, batches, **table), RunOptions(), [1], runtime=InlineRuntime)
    assert sorted(read(tmp_path)["n"].to_pylist()) == [1, 3, 20]
    assert [path.partition("/")[0] for path in names(tmp_path)] == ["k=a", "k=a", "k=c"]


def test_a_column_that_shall_not_be_added_stops_the_run(tmp_path: Path) -> None:
    """The columns that the dataset is partitioned by are no such columns, although no file has them."""
    pq.write_to_dataset(pa.table({"n": [1], "k": ["a"]}), tmp_path / "table", ["k"])
    assert len(write(tmp_path, columns(n=[1], k=["a"]), on_new_column="fail")) == 2
    logical = app(
        tmp_path,
        [columns(n=[1]), columns(n=[1], k=["a"], x=[1])],
        table=f"parquet:{tmp_path / 'table'}",
        on_new_column="fail",
    )
    with pytest.raises(DagflowError, match="has no column 'x' for int64; it has n"):
        run(logical, runtime=InlineRuntime)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        (
            {"partition_by": ["day(x)"]},
            r"parquet is partitioned by columns, and day\(x\) is a transform, which",
        ),
        ({"partition_by": ["_dagflow_window"]}, "readers pass over directories such as _dagflow_window=1, which"),
        ({"catalog": {"type": "sql"}}, "parquet has none; it is for iceberg:NAMESPACE.NAME"),
    ],
)
def test_what_a_dataset_cannot_have_is_refused(properties: dict[str, Any], reason: str) -> None:
    """With what would do."""
    with pytest.raises(ValueError, match=reason):
        TableWriter(table="parquet:out", **properties)
