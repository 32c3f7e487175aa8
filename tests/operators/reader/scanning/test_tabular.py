"""Formats of rows: which columns are read, their types, and what is refused of a file."""

from __future__ import annotations

import datetime
import io
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.errors import StorageError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, HeaderError
from operators.reader.scanning.tabular import tiled
from operators.testing import MemorySource, block_of


def written(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a Parquet file."""
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def read(content: bytes, source: MemorySource | None = None, **options: Any) -> tuple[list[Any], list[Any]]:
    """The rows, and the rejects as offset, length and reason."""
    made = RECORD_FORMATS.make({"type": "parquet", **options})
    refused: list[bytes] = []
    accounting = ByteAccounting("a.parquet", Counter(), refused.append)
    rows: list[Any] = []
    block = block_of(content, 0, len(content))
    for batch in made.read(source or MemorySource(content), block, accounting):
        rows += accounting.parse(made, batch).batch.to_pylist()
    assert accounting.covered == len(content)
    assert not accounting.lost
    facts = map(json.loads, refused)
    return rows, [(reject["offset"], reject["length"], reject["reason"]) for reject in facts]


def test_only_the_columns_that_are_asked_for_are_read() -> None:
    """The bytes of other columns are never asked for."""

    class Counting(MemorySource):
        total = 0

        def read_into(self, offset: int, buffer: memoryview) -> int:
            count = super().read_into(offset, buffer)
            self.total += count
            return count

    content = written(pa.table({"a": range(10), "text": ["x" * 100_000] * 10}), use_dictionary=False, compression=None)
    source = Counting(content)
    rows, rejects = read(content, source, columns=["a"])
    assert (rows[9], rejects, source.total < 100_000) == ({"a": 9}, [], True)


def test_values_are_cast_and_rows_that_do_not_fit_are_refused() -> None:
    """The reject names the row, the column, and the value; a number that would be rounded does not fit."""
    table = pa.table({"n": [1, 300, 3, 4], "text": ["1", "2", "x", None], "part": [0.5, 2.0, 3.0, 4.0], "c": [0] * 4})
    rows, rejects = read(written(table, row_group_size=2), columns={"part": "int64", "text": "int64", "n": "int8"})
    assert rows == [{"part": 4, "text": None, "n": 4}]
    assert rejects == [
        (0, 0, "column 'part' (int64): '0.5' is not of this type, or would be rounded"),
        (1, 0, "column 'n' (int8): '300' is not of this type, or would be rounded"),
        (2, 0, "column 'text' (int64): 'x' is no whole number"),
    ]


def test_encoded_and_long_forms_of_types_become_plain_ones() -> None:
    """Operators meet one form of text, of lists and of values, whatever wrote the file."""
    encoded = {
        "a": pa.array(["x", "y"], pa.large_string()),
        "b": pa.array(["x", None]).dictionary_encode(),
        "c": pa.array([[b"x"], None], pa.large_list(pa.large_binary())),
        "d": pa.array([{"a": "x"}, None], pa.struct([("a", pa.large_string())])),
    }
    made = RECORD_FORMATS.make("parquet")
    content = written(pa.table(encoded))
    accounting = ByteAccounting()
    (batch,) = made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)
    plain = pa.struct([("a", pa.string())])
    expected = [pa.string(), pa.string(), pa.list_(pa.binary()), plain]
    assert accounting.parse(made, batch).batch.to_arrow().schema.types == expected


def test_a_column_that_is_missing_refuses_all_rows_unless_it_is_optional() -> None:
    """An optional one is null."""
    content = written(pa.table({"a": [1, 2, 3]}), row_group_size=2)
    reason = "the file has no column 'b'; it has a"
    rejects = [(0, 2, f"{reason}; 2 rows from row 0 on"), (2, 1, f"{reason}; 1 rows from row 2 on")]
    assert read(content, columns=["b"]) == ([], rejects)
    found, _ = read(content, columns={"a": "int64", "b": {"type": "date32", "optional": True}})
    assert found[0] == {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("table", "columns", "reason"),
    [
        (pa.table({"a": [[1]]}), {"a": "int64"}, "column 'a' is list<.*>, which cannot be cast to int64"),
        (pa.table({"a": ["x"]}), {"a": "list<int64>"}, "column 'a' is text, and no text is list<int64>"),
        (pa.table([[1], [2]], names=["a", "a"]), None, "the file has several columns 'a'"),
        (pa.table({"a": [1]}), ["b"], "the file has no column 'b'; it has a"),
    ],
)
def test_a_file_without_rows_for_the_app_ends_the_run_or_is_left_out(table: Any, columns: Any, reason: str) -> None:
    """Where no stream takes rejects, the error is one that on_error: skip takes."""
    content = written(table)
    made = RECORD_FORMATS.make({"type": "parquet", "columns": columns})
    with pytest.raises(HeaderError, match=reason):
        list(made.read(MemorySource(content), block_of(content, 0, len(content)), ByteAccounting(listener=None)))


def test_a_file_of_too_many_columns_is_refused() -> None:
    """Members of structs count, on all levels, and columns that are not read do not."""
    content = written(pa.table({"a": [1], "s": [{"b": 1, "c": [{"d": 1}]}]}))
    reason = "it has 5 columns, more than max_columns, 4; let columns name some; 1 rows from row 0 on"
    assert read(content, max_columns=4) == ([], [(0, 1, reason)])
    assert len(read(content, max_columns=5)[0]) == 1
    assert read(content, max_columns=1, columns=["a"]) == ([{"a": 1}], [])


def test_what_is_no_parquet_is_refused_as_a_whole() -> None:
    """The reject has all bytes of the file."""
    rows, ((offset, length, reason),) = read(b"a,b\n1,2\n")
    assert (rows, offset, length) == ([], 0, 8)
    assert reason.startswith("the file cannot be read as Parquet: ")


def test_a_row_group_that_is_damaged_is_refused_and_the_others_are_read() -> None:
    """Good data is not lost with bad."""
    content = bytearray(written(pa.table({"a": range(30_000)}), row_group_size=10_000, write_statistics=False))
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(1).column(0)
    content[group.data_page_offset : group.data_page_offset + 200] = bytes(200)
    rows, ((offset, length, reason),) = read(bytes(content))
    assert [row["a"] for row in rows] == [*range(10_000), *range(20_000, 30_000)]
    assert (offset, length) == (10_000, 10_000)
    assert reason.startswith("row group 2 cannot be read: ")


def test_a_store_that_fails_is_no_damage() -> None:
    """The error of the store passes, so that the task runs again."""

    class Failing(MemorySource):
        def read_into(self, offset: int, buffer: memoryview) -> int:
            raise StorageError("the store is away", url="a.parquet")

    content = written(pa.table({"a": [1]}))
    with pytest.raises(StorageError, match="the store is away"):
        read(content, Failing(content))


def test_long_values_are_read_few_at_a_time() -> None:
    """A batch has a bounded number of bytes."""
    content = written(pa.table({"text": ["x" * (1 << 20) + str(row) for row in range(64)]}), use_dictionary=False)
    made = RECORD_FORMATS.make("parquet")
    batches = made.read(MemorySource(content), block_of(content, 0, len(content)), ByteAccounting())
    assert max(map(len, batches)) <= 16


def test_dates_and_times_keep_their_values() -> None:
    """Also those with a zone, and those that are cast to text or to days."""
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    content = written(pa.table({"at": pa.array([at], pa.timestamp("us", "Europe/Paris"))}))
    rows, _ = read(content, columns={"at": "timestamp[us, UTC]"})
    assert rows == [{"at": at}]


def test_units_cover_a_file_whatever_its_footer_says() -> None:
    """Places out of order, or behind the end of the file, still give each byte one owner."""
    units = tiled([4, 900, 2, 5000], [1, 2, 3, 4], 1000)
    assert [(unit.start, unit.end, unit.first_row) for unit in units] == [
        (0, 900, 0),
        (900, 900, 1),
        (900, 999, 3),
        (999, 1000, 6),
    ]


@pytest.mark.parametrize("columns", [[], {}, ["a", "a"]])
def test_columns_that_say_nothing_are_refused(columns: Any) -> None:
    """An app that would read no column, or one twice, is wrong."""
    with pytest.raises(ValueError, match="columns: "):
        RECORD_FORMATS.make({"type": "parquet", "columns": columns})


def test_text_that_is_not_utf_8_refuses_its_row_alone() -> None:
    """Older writers put other encodings into columns of text."""
    texts = pa.array([b"a", b"\xff", None, b"\xc3\xa9"]).view(pa.string())
    rows, rejects = read(written(pa.table({"n": [1, 2, 3, 4], "text": texts})))
    assert rows == [{"n": 1, "text": "a"}, {"n": 3, "text": None}, {"n": 4, "text": "é"}]
    assert rejects == [(1, 0, "column 'text': Invalid UTF8 sequence at string index 0")]


def test_ascii_text_with_offsets_out_of_order_is_found() -> None:
    """The bytes are sound as a whole, and the lengths of single values lead out of them."""
    out, offsets = io.BytesIO(), pa.array([0, 2, 1, 4], pa.int32()).buffers()[1]
    texts = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"abcd"))
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), texts], ["n", "text"])
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    made, refused, content = RECORD_FORMATS.make("arrow"), list[bytes](), out.getvalue()
    accounting = ByteAccounting("a", Counter(), refused.append)
    (rows,) = made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)
    assert rows.to_arrow().column("n").to_pylist() == [1, 3]
    assert [json.loads(reject)["offset"] for reject in refused] == [1]


def test_a_file_with_more_rows_than_bytes_is_refused_with_all_of_them() -> None:
    """The rows of a reject are read again once the reason is gone: those behind its bytes as well."""
    content = written(pa.table({"a": pa.array([7] * 50_000)}), row_group_size=20_000)
    made, refused = RECORD_FORMATS.make("parquet"), list[bytes]()
    accounting = ByteAccounting("a.parquet", Counter(), refused.append)
    made.refuse(MemorySource(content), block_of(content, 0, len(content)), accounting, "its path lacks a column")
    assert len(content) < 50_000
    assert sum(json.loads(reject)["length"] for reject in refused) == 50_000
    assert accounting.covered == len(content)


def test_values_that_their_type_cannot_have_refuse_their_rows_alone() -> None:
    """Other writers check no precision, and no range of times."""
    out = io.BytesIO()
    prices = pa.Array.from_buffers(pa.decimal128(3, 2), 3, [None, pa.array([150, 0, 10**9, 0, 250, 0]).buffers()[1]])
    batch = pa.record_batch({"n": [1, 2, 3], "price": prices})
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    made, refused, content = RECORD_FORMATS.make("arrow"), list[bytes](), out.getvalue()
    accounting = ByteAccounting("a", Counter(), refused.append)
    (rows,) = made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)
    assert rows.to_arrow().column("n").to_pylist() == [1, 3]
    assert [json.loads(reject)["offset"] for reject in refused] == [1]
