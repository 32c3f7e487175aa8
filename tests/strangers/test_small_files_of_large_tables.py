"""Small files that hold very many rows, cells or types are refused, or read within the memory of a few batches."""

from __future__ import annotations

import io
import resource
import zipfile
import zlib
from collections import Counter
from typing import Any

import fastavro
import openpyxl
import pyarrow as pa
import pytest
from pyarrow import parquet

from dagflow.api.refused_records import Reject
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of
from tests.memory import in_own_process

MIB = 1 << 20


def read(format: Any, content: bytes) -> tuple[int, list[str]]:
    """How many rows a file has, and why others are refused."""
    rejects: list[bytes] = []
    made = RECORD_FORMATS.make(format)
    accounting = ByteAccounting(URL, Counter(), rejects.append)
    count = sum(map(len, made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)))
    return count, [Reject.from_bytes(reject).reason for reject in rejects]


def workbook(last: str, *others: str) -> bytes:
    """A workbook with values in one cell and others, by default in its first one and in the one below it."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    for place in (*(others or ("A1", "A2")), last):
        book.active[place] = place
    book.save(out)
    return out.getvalue()


@pytest.mark.parametrize("places", [["XFD1048576"], ["ALL100000"], ["AL1000000", "AL999999"]])
def test_a_sheet_whose_cells_lie_far_away_is_refused(places: list[str]) -> None:
    """The library would hold all cells before the last one, and end the process."""
    count, (reason,) = read("excel", workbook(*places))
    last = places[0]
    assert count == 0
    assert f"cells from A1 to {last}, more than 33,554,432; clear those that lie far away" in reason


@pytest.mark.parametrize("last", ["A3", "A9000", "XFD3"])
def test_a_sheet_that_is_only_wide_or_only_long_is_read(last: str) -> None:
    """So is one that was cleared."""
    assert read("excel", workbook(last)) == (2, [])


@pytest.mark.nightly
@pytest.mark.parametrize("size", [1025 * MIB, 1000])
def test_a_workbook_of_large_parts_or_false_sizes_is_refused(size: int) -> None:
    """However small it is as an archive."""
    out = io.BytesIO(workbook("A3"))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive, archive.open("x", "w") as part:
        for _ in range(size // 1000):
            part.write(b" " * 1000)
    content = out.getvalue()
    if size == 1000:
        content = content.replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    count, (reason,) = read("excel", content)
    assert count == 0
    assert "more than 1,024 MiB when it is decompressed" in reason or "its part x is damaged" in reason


def mib_of_repeated(format: str, is_nested: bool) -> tuple[int, int]:
    """How many rows a file has in which one long value is repeated, and how much memory they take."""
    values: pa.Array = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["x" * 100_000])
    if is_nested:
        values = pa.StructArray.from_arrays([values], ["b"])
    table, out = pa.table({"a": values}), io.BytesIO()
    if format == "parquet":
        parquet.write_table(table, out, store_schema=False)
    else:
        with pa.ipc.new_file(out, table.schema) as file:
            file.write_table(table)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, _ = read(format, out.getvalue())
    return count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


@pytest.mark.nightly
@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_a_long_value_of_a_dictionary_is_repeated_for_few_rows_at_once(format: str, is_nested: bool) -> None:
    """The values of all rows together have 500 MB."""
    count, mib = in_own_process(mib_of_repeated, format, is_nested)
    assert count == 5000
    assert mib < 150


def number(value: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    rest, parts = value << 1, b""
    while rest > 127:
        parts, rest = parts + bytes([rest & 127 | 128]), rest >> 7
    return parts + bytes([rest])


def avro(kind: Any, rows: int, content: bytes, codec: str = "null") -> bytes:
    """An Avro file whose records have one field, with one data block."""
    schema = {"type": "record", "name": "row", "fields": [{"name": "a", "type": kind}]}
    out, marker = io.BytesIO(), b"0123456789abcdef"
    fastavro.writer(out, schema, [], codec=codec, sync_marker=marker)
    return out.getvalue() + number(rows) + number(len(content)) + content + marker


def doubled(times: int) -> Any:
    """A record of two records, each of which is of two others, and so on."""
    kind: Any = {"type": "record", "name": "r0", "fields": [{"name": "a", "type": "int"}]}
    for at in range(times):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{at}"}]
        kind = {"type": "record", "name": f"r{at + 1}", "fields": fields}
    return kind


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (avro("null", 1 << 30, b""), "it has 1,073,741,824 rows in 0 bytes"),
        (avro({"type": "array", "items": "null"}, 1, number(1 << 30) + b"\0"), "an array of items without bytes"),
        (avro(doubled(40), 0, b""), "types, more than 16,384"),
    ],
)
def test_an_avro_file_that_says_it_holds_very_much_is_refused(content: bytes, reason: str) -> None:
    """What takes no bytes may be there any number of times."""
    count, (refused,) = read("avro", content)
    assert count == 0
    assert reason in refused


def test_an_avro_file_with_few_rows_of_no_bytes_is_read() -> None:
    """They may have been written; so may a record that stands for several columns."""
    assert read("avro", avro("null", 3, b"")) == (3, [])
    assert read("avro", avro(doubled(2), 1, bytes(4))) == (1, [])


def deflated(content: bytes) -> bytes:
    """Content without the head of zlib."""
    made = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return made.compress(content) + made.flush()


def mib_of(kind: str, size: int) -> tuple[int, list[str], int]:
    """Rows and reasons, and how much memory they take, of a data block of so many zeros."""
    count = size - 8
    rows, inner = (size, bytes(size)) if kind == "int" else (1, number(count) + bytes(count))
    content = avro(kind, rows, deflated(inner), "deflate")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_rows, reasons = read("avro", content)
    return read_rows, reasons, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


@pytest.mark.nightly
def test_a_data_block_of_high_ratio_takes_the_memory_of_a_batch() -> None:
    """However many rows it has; one that is too large is refused before it is decompressed whole."""
    rows, reasons, mib = in_own_process(mib_of, "int", 2 * MIB)
    assert (rows, reasons) == (2 * MIB, [])
    assert mib < 100
    rows, (reason,), _ = in_own_process(mib_of, "bytes", 300 * MIB)
    assert rows == 0
    assert "more than 268,435,456 when it is decompressed" in reason
