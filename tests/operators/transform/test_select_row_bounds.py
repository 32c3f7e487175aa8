"""Statistics of a file say which of its rows a condition can be true of."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.capabilities import WantedRows
from dagflow.testing.apps import AppOutputs, run_app
from operators.expressions.expression import Expression
from operators.expressions.vectors import Rows
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import MemorySource, block_of
from operators.transform.select import Comparisons

KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i": (pa.int16(), st.integers(-3, 3)),
    "u": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "f": (pa.float32(), st.sampled_from([-math.inf, -0.0, 0.0, 0.5, math.inf, math.nan])),
    "d": (pa.decimal128(5, 2), st.integers(-150, 150).map(lambda cents: Decimal(cents) / 100)),
    "s": (pa.string(), st.text("aé\U0001f600", max_size=2)),
    "y": (pa.date32(), st.integers(-2, 2).map(lambda days: datetime.date(2024, 3, 1) + datetime.timedelta(days))),
    "n": (pa.timestamp("ns"), st.integers(-2, 2)),
    "m": (pa.timestamp("ms"), st.integers(-2, 2)),
}
CONSTANTS = {
    "i": ["0", "2", "1.5", "-2e0"],
    "u": ["1", "9223372036854775808"],
    "f": ["0", "0.25", "cast('nan' as double)", "-1e30"],
    "d": ["0", "0.505", "1e0"],
    "s": ["''", "'a'", "'é'"],
    "y": ["date '2024-03-01'", "'2024-02-29'"],
    "n": ["timestamp '1970-01-01 00:00:00'", "'1970-01-01'"],
    "m": ["timestamp '1970-01-01 00:00:00.001'"],
}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str]:
    """A column, and a condition of it."""
    name = draw(st.sampled_from(sorted(KINDS)))
    sign, constant = draw(st.sampled_from(["=", "<", "<=", ">", ">="])), draw(st.sampled_from(CONSTANTS[name]))
    form = draw(st.sampled_from(["{0} {1} {2}", "{2} {1} {0}", "{0} between {2} and {2}", "{0} {1} {2} and {0} = {0}"]))
    return name, form.format(name, sign, constant)


def rows_of(data: bytes, condition: Expression, *, skips: bool) -> tuple[list[Any], int]:
    """The rows of a file of which a condition is true, and how many rows were not read."""
    format = RECORD_FORMATS.make("parquet")
    format.wanted = WantedRows(Comparisons.of(condition)) if skips else WantedRows()
    source = MemorySource(data)
    accounting = ByteAccounting("memory", Counter())
    rows: list[Any] = []
    for batch in format.read(source, block_of(data, 0, len(data)), accounting):
        columns = batch.to_arrow()
        held = Rows(columns)
        mask = held.spread(held.truth(condition.bind_condition(columns.schema).compute(held).values))
        rows += columns.filter(mask).column(0).cast(pa.string()).to_pylist()
    assert accounting.covered == len(data)
    return rows, accounting.counters["skipped_rows"]


@settings(max_examples=40)
@given(condition=conditions(), data=st.data())
def test_no_row_is_skipped_of_which_a_condition_is_true(condition: tuple[str, str], data: st.DataObject) -> None:
    """For any values of any type whose statistics are used, also not a number, nulls, and constants of other types."""
    name, text = condition
    kind, values = KINDS[name]
    column = pa.array(data.draw(st.lists(st.none() | values, min_size=1, max_size=8)), kind)
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({name: column}), out, row_group_size=2)
    content, expression = out.getvalue().to_pybytes(), Expression.of(text)
    assert rows_of(content, expression, skips=True)[0] == rows_of(content, expression, skips=False)[0]


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("id > 850", 20),
        ("850 <= id and s < 'k0087'", 10),
        ("d = 1.5", 10),
        ("at >= '2024-02-05' and id + 1 > 0", 20),
        ("id = 5 or id = 900", 100),
    ],
)
def test_row_groups_that_cannot_match_are_not_read(condition: str, read: int, tmp_path: Path) -> None:
    """The rows are those of an app that reads all of them for an alternative."""
    out, all_read = (app_over(tmp_path, numbered(), f"where: {text}") for text in (condition, f"{condition} or id < 0"))
    assert (out.records["read.messages"], all_read.records["read.messages"]) == (read, 100)
    assert out.lines("out") == all_read.lines("out")


def test_columns_that_are_dropped_are_not_read(tmp_path: Path) -> None:
    """A file whose other columns are damaged gives those that are kept, and those of which others are computed."""
    data = bytearray(numbered())
    chunk = pq.ParquetFile(pa.BufferReader(bytes(data))).metadata.row_group(0).column(1)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = bytes(chunk.total_compressed_size)
    step = "class: Select\n    where: id < 20\n    keep: [at]\n    columns: {twice: id * 2}"
    lines = app_over(tmp_path, bytes(data), step).lines("out")
    assert lines[1:] == [b"2024-01-01T00:00:00.000000000,0", b"2024-01-01T10:00:00.000000000,20"]


def numbered() -> bytes:
    """A file of ten row groups, in the order of each column."""
    count, start = range(100), datetime.datetime(2024, 1, 1)
    columns = {
        "id": [10 * row for row in count],
        "s": [f"k{row:04}0" for row in count],
        "d": [Decimal(row) / 10 for row in count],
        "at": pa.array([start + datetime.timedelta(hours=10 * row) for row in count], pa.timestamp("ns")),
    }
    out = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), out, row_group_size=10)
    return bytes(out.getvalue().to_pybytes())


def app_over(tmp_path: Path, data: bytes, step: str) -> AppOutputs:
    """An app with one step between reader and writer."""
    path = tmp_path / "app.yaml"
    steps = f"steps:\n  - files: in\n  - read: parquet\n  - {step}\n  - write: out\n    format: csv\n"
    path.write_text(f"name: skips\n{steps}")
    return run_app(path, {"in/a.parquet": data})
