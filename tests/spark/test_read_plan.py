"""A DataFrame has every record of its files once, whatever the cuts."""

from __future__ import annotations

import gzip
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import DagflowError
from dagflow.spark.dataframes import pairs
from dagflow.spark.read_plan import TASK_BYTES, columns_of, read_tasks
from dagflow.spark.source_options import BLOCK_BYTES, SourceOptions
from dagflow.spark.spark_rows import RowShape
from dagflow.spec.spark_master import usable_cores


def rows_of(keeps: Callable[[str], bool] | None = None, **given: Any) -> list[dict[str, Any]]:
    """The rows that Spark would get."""
    options = SourceOptions.of(given)
    shape = RowShape(columns_of(options), has_rejects=options.on_bad_record == "column")
    tasks = read_tasks(options, keeps)
    return [row for task in tasks for batch in task.rows(shape) for row in batch.to_pylist()]


@given(content=st.binary(max_size=60), block_size=st.integers(1, 20))
def test_each_record_is_there_once_with_its_place(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, block_size: int
) -> None:
    """The bytes at the offset are the record, and with the newlines that end them records are all of the file."""
    content = content.replace(b"\0", b"\n")
    path = tmp_path_factory.mktemp("cut") / "a.txt"
    path.write_bytes(content)
    given: dict[str, Any] = {"binary": "allow", "keep_delimiter": "true", "batch_bytes": 0, "compression": "none"}
    rows = rows_of(path=str(path), block_size=block_size, _file="true", _offset="true", **given)
    assert b"".join(row["record"] for row in rows) == content
    for row in rows:
        assert content[row["_offset"] :].startswith(row["record"])
        assert row["_file"] == str(path)


def test_quoted_newlines_are_no_ends_of_rows(tmp_path: Path) -> None:
    """At any cut: where each block begins is found out by a first pass."""
    rows = b"".join(b'%d,"a\nb ""%d""\n"\n' % (n, n) for n in range(200))
    (tmp_path / "a.csv").write_bytes(b"id,note\n" + rows)
    for block_size in (7, 100, 1 << 20):
        found = rows_of(path=str(tmp_path), record="csv", columns="{id: int64}", block_size=block_size, batch_bytes=0)
        assert found == [{"id": n, "note": f'a\nb "{n}"\n'} for n in range(200)]


def bytes_read() -> int:
    """How many bytes this process has read from files so far."""
    return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())[0])


def test_columns_are_found_without_a_first_pass_over_the_file(tmp_path: Path) -> None:
    """Only its beginning is read."""
    (tmp_path / "a.csv").write_bytes(b"id,note\n" + b'1,"a\nb"\n' * (2 << 20))
    options = SourceOptions.of({"path": str(tmp_path), "record": "csv"})
    columns_of(options)  # imports modules, whose files are read
    before = bytes_read()
    assert columns_of(options).names == ["id", "note"]
    assert bytes_read() - before < 8 << 20


def test_globs_and_compressed_files_are_read(tmp_path: Path) -> None:
    """As in an app; a pattern leaves out other files."""
    for number, name in enumerate(["a.log.gz", "b.log", "c.txt"]):
        data = b"%d\n" % number
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert [row["record"] for row in rows_of(path=f"{tmp_path}/*.log*")] == [b"0", b"1"]
    assert [row["record"] for row in rows_of(path=str(tmp_path), file_pattern=".*\\.txt")] == [b"2"]


def test_a_refused_record_ends_the_query_is_left_out_or_is_a_row(tmp_path: Path) -> None:
    """As on_bad_record says; a row of a refused record has its place and the reason, and no values."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,name\n1,a\nx,b\n3,c\n")
    given: dict[str, Any] = {"path": str(path), "record": "csv", "columns": "{id: int64}"}
    with pytest.raises(DagflowError, match=r"a\.csv offset 12(?s:.*)option\('on_bad_record', 'column'\)"):
        rows_of(**given)
    assert [row["id"] for row in rows_of(**given, on_bad_record="skip")] == [1, 3]
    rows = rows_of(**given, on_bad_record="column", _file="true", _offset="true")
    (bad,) = [row for row in rows if row["_bad_record"] is not None]
    assert (bad["id"], bad["name"], bad["_file"], bad["_offset"]) == (None, None, str(path), 12)
    assert '"reason": "' in bad["_bad_record"]
    assert len(rows) == 3


def test_files_are_left_out_before_they_are_read(tmp_path: Path) -> None:
    """A file that no row is wanted of need not even be readable, in a batch of small files or alone."""
    (tmp_path / "good.csv").write_bytes(b"id\n1\n")
    (tmp_path / "bad.csv").write_bytes(b"id\n1,2,3\n")
    for batch_bytes in (0, 1 << 20):
        rows = rows_of(
            lambda url: url.endswith("good.csv"),
            path=str(tmp_path),
            record="csv",
            columns=["id"],
            batch_bytes=batch_bytes,
        )
        assert rows == [{"id": "1"}]


def test_types_are_those_that_spark_has(tmp_path: Path) -> None:
    """Unsigned numbers become wider ones, times of nanoseconds those of microseconds; no value changes."""
    table = pa.table(
        {
            "u": pa.array([2**64 - 1], pa.uint64()),
            "t": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "Europe/Berlin")),
            "d": pa.array(["x"]).dictionary_encode(),
            "l": pa.array([[1, 2]], pa.large_list(pa.uint8())),
            "s": pa.array([{"a": b"x"}], pa.struct([("a", pa.large_binary())])),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    schema = columns_of(SourceOptions.of({"path": str(tmp_path), "record": "parquet"}))
    assert schema.types == [
        pa.decimal128(20, 0),
        pa.timestamp("us", "UTC"),
        pa.string(),
        pa.list_(pa.int16()),
        pa.struct([("a", pa.binary())]),
    ]
    (row,) = rows_of(path=str(tmp_path), record="parquet")
    assert row["u"] == 2**64 - 1
    assert row["t"].timestamp() == 1_700_000_000.123456
    assert (row["d"], row["l"], row["s"]) == ("x", [1, 2], {"a": b"x"})


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """In a file without it, and where a later file has one more than the first; nothing is null or lost silently."""
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,a\n")
    options = SourceOptions.of({"path": str(tmp_path), "record": "csv"})
    for shape, message in (
        (RowShape(pa.schema([("nam", pa.string())])), "no column 'nam'; did you mean 'name'"),
        (RowShape(pa.schema([("id", pa.string())]), is_whole=True), "have a column 'name', which those of the first"),
    ):
        with pytest.raises(DagflowError, match=message):
            [list(task.rows(shape)) for task in read_tasks(options)]
    pruned = RowShape(pa.schema([("name", pa.string())]))
    assert [batch.to_pylist() for task in read_tasks(options) for batch in task.rows(pruned)] == [[{"name": "a"}]]


def test_no_core_is_without_a_task_where_others_have_one_more(tmp_path: Path) -> None:
    """A query ends with its last task, so that three tasks on two cores take as long as four."""
    cores = usable_cores()
    with (tmp_path / "a.log").open("wb") as file:
        file.truncate(cores * TASK_BYTES + BLOCK_BYTES)
    assert len(read_tasks(SourceOptions.of({"path": str(tmp_path)}))) == 2 * cores


def test_a_location_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """And so is one without a record where the columns must be found in one."""
    with pytest.raises(DagflowError, match="no such file"):
        read_tasks(SourceOptions.of({"path": str(tmp_path / "none")}))
    (tmp_path / "a.csv").touch()
    with pytest.raises(DagflowError, match="no file has a record"):
        columns_of(SourceOptions.of({"path": str(tmp_path), "record": "csv"}))
    assert rows_of(path=str(tmp_path)) == []


def test_an_rdd_of_a_format_with_columns_has_the_bytes_of_its_records(tmp_path: Path) -> None:
    """As they are in the file, each with its offset, without the head; of a format of rows, their values."""
    (tmp_path / "a.csv").write_bytes(b'id,note\n1,"a\nb"\n2,c\n')
    pq.write_table(pa.table({"id": [7]}), tmp_path / "a.parquet")
    for name, record, expected in (
        ("a.csv", "csv", [(8, b'1,"a\nb"'), (16, b"2,c")]),
        ("a.parquet", "parquet", [(0, {"id": 7})]),
    ):
        options = SourceOptions.of({"path": str(tmp_path / name), "record": record, "block_size": 10})
        assert list(pairs(map(pickle.dumps, read_tasks(options, is_raw=True)))) == expected


def test_spark_gets_few_batches(tmp_path: Path) -> None:
    """Each costs it more than the bytes of a smaller one, which stay in the second-level cache."""
    (tmp_path / "a.txt").write_bytes(b"%0127d\n" % 0 * (BLOCK_BYTES >> 7))
    options = SourceOptions.of({"path": str(tmp_path), "record": "lines"})
    shape = RowShape(columns_of(options))
    assert sum(1 for task in read_tasks(options) for _ in task.rows(shape)) <= 6
