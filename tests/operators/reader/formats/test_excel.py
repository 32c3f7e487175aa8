"""Workbooks: sheets, ranges, headers, types of cells, merged and empty ones, and cells with errors."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import openpyxl
import pyarrow as pa
import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import MemorySource, TableContract, block_of

DAY, MOMENT = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3)


def workbook(**sheets: Sequence[Sequence[Any]]) -> openpyxl.Workbook:
    """A workbook of sheets of rows."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return book


def saved(book: openpyxl.Workbook) -> bytes:
    """The bytes of a workbook."""
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def read(content: bytes, **options: Any) -> tuple[pa.Table, list[tuple[int, str]]]:
    """The rows, and the offsets and reasons of rejects."""
    made = RECORD_FORMATS.make({"type": "excel", **options})
    refused: list[bytes] = []
    accounting = ByteAccounting(listener=refused.append)
    block = block_of(content, 0, len(content))
    batches = [accounting.parse(made, batch).batch for batch in made.read(MemorySource(content), block, accounting)]
    assert accounting.covered == len(content)
    rejects = [(facts["offset"], facts["reason"]) for facts in map(json.loads, refused)]
    return pa.Table.from_batches([batch.to_arrow() for batch in batches]) if batches else pa.table({}), rejects


class TestSheets(TableContract):
    """All sheets of a workbook, the one of a name, and one without rows."""

    formats: ClassVar = [{"type": "excel", "sheet": "*"}]

    def files(self) -> Sequence[tuple[bytes, Sequence[dict[str, Any]]]]:
        """Workbooks."""
        rows = [[number, f"order {number}", number / 4] for number in range(9)]
        head = ["id", "name", "price"]
        book = workbook(One=[head, *rows[:4]], Two=[head], Three=[head, *rows[4:]])
        return [(saved(book), [dict(zip(head, row, strict=True)) for row in rows]), (saved(workbook(One=[head])), [])]

    def test_of_a_damaged_file_no_row_is_lost(self) -> None:
        """Each file is tried with few changes: a workbook is one archive."""
        super().test_of_a_damaged_file_no_row_is_lost()


def test_columns_have_the_types_of_their_cells() -> None:
    """Whole numbers where all are; text where they differ; null where a cell is empty."""
    head = ["n", "x", "day", "at", "time", "ok", "mixed", "long", "none"]
    rows: list[list[Any]] = [
        [1, 0.5, DAY, MOMENT, datetime.time(1, 2, 3), True, "a", datetime.timedelta(hours=30), None],
        [None, 2, None, DAY, None, False, 7, None, None],
    ]
    table, rejects = read(saved(workbook(One=[head, *rows])))
    types = [pa.int64(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.time64("us"), pa.bool_()]
    assert (table.schema.types, rejects) == ([*types, *[pa.string()] * 3], [])
    assert table.to_pylist()[0] == dict(zip(head, [*rows[0][:7], "30:00:00", None], strict=True))
    assert table.to_pylist()[1]["mixed"] == "7"


@pytest.mark.parametrize(
    ("options", "names", "rows"),
    [
        ({}, ["id", "name"], [[1, "a"], [2, "b"]]),
        ({"sheet": 2}, ["k"], [[7]]),
        ({"sheet": "Other", "header": 0}, ["C"], [["k"], ["7"]]),
        ({"range": "C4:D5", "header": 0}, ["C", "D"], [[1, "a"]]),
        ({"range": "D:D"}, ["name"], [["a"], ["b"]]),
        ({"header": 2}, ["1", "a"], [[2, "b"]]),
        ({"range": "C4:D6", "header": 0, "columns": ["n", "text"]}, ["n", "text"], [[1, "a"], [2, "b"]]),
    ],
)
def test_sheet_range_and_header_choose_the_cells(options: Any, names: list[str], rows: list[Any]) -> None:
    """Empty rows are none, and what lies beside the range is not read."""
    book = workbook(One=[[], [], [None, None, "id", "name"], [None, None, 1, "a"], [], [None, None, 2, "b"]])
    other = book.create_sheet("Other")
    other["C3"], other["C4"] = "k", 7
    table, _ = read(saved(book), **options)
    assert (table.schema.names, [[*row.values()] for row in table.to_pylist()]) == (names, rows)


def test_cells_with_errors_refuse_their_rows_with_sheet_and_cell() -> None:
    """So do formulas that were never computed; the values of others are those that were saved."""
    book = workbook(One=[["id", "x"], [1, 2], [3, "#DIV/0!"], [None, "=1/0"], [5, 6]])
    book["One"]["B3"].data_type = "e"
    table, rejects = read(saved(book))
    assert table.to_pylist() == [{"id": 1, "x": 2}, {"id": 5, "x": 6}]
    assert rejects == [
        (1, "column 'x': #DIV/0! is an error, in: cell B3 of sheet 'One'"),
        (2, "column 'x': the formula has no value, because it was never computed, in: cell B4 of sheet 'One'"),
    ]


def test_values_of_other_types_are_refused_with_sheet_and_cell() -> None:
    """Text is parsed as that of CSV, words may stand for null, and a number is not rounded."""
    rows: list[list[Any]] = [["id", "day"], ["7", DAY], [1.5, DAY], ["NA", "2024-01-01"], ["x", None], [8, MOMENT]]
    columns = {"day": "date32", "id": "int64"}
    table, rejects = read(saved(workbook(Data=rows)), columns=columns, null_values=["NA"])
    assert table.to_pylist() == [{"day": DAY, "id": 7}, {"day": datetime.date(2024, 1, 1), "id": None}]
    places = [(offset, reason.partition(", in: ")[2]) for offset, reason in rejects]
    assert places == [(1, "cell A3 of sheet 'Data'"), (3, "cell A5 of sheet 'Data'"), (4, "cell B6 of sheet 'Data'")]


def test_a_merged_range_has_its_value_once_or_in_all_of_its_cells() -> None:
    """By default a sum of the column stays right."""
    book = workbook(One=[["a", "b"], ["x", 1], [None, 2], [None, 3]])
    book["One"].merge_cells("A2:A4")
    assert read(saved(book))[0].column("a").to_pylist() == ["x", None, None]
    assert read(saved(book), merged="all")[0].column("a").to_pylist() == ["x", "x", "x"]


def test_a_merged_title_may_be_wider_than_the_columns() -> None:
    """What lies beyond the last cell is none."""
    book = workbook(One=[["a", "b"], ["x", 1]])
    book["One"].merged_cells.add("B1:D1")
    assert read(saved(book), merged="all")[0].to_pylist() == [{"a": "x", "b": 1}]


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        (
            lambda: saved(workbook(One=[["a"]])),
            {"sheet": "Two"},
            "there is no sheet 'Two'; the sheets are One",
        ),
        (lambda: saved(workbook(One=[["a"], [1]])), {"columns": ["b"]}, "the file has no column 'b'; it has a"),
        (
            lambda: saved(workbook(One=[["a", "a"], [1, 2]])),
            {},
            "sheet 'One' has several columns 'a'",
        ),
        (lambda: b"no workbook", {}, "the file cannot be read as a workbook"),
    ],
)
def test_a_workbook_without_the_sheet_or_columns_is_refused(
    content: Callable[[], bytes], options: Any, reason: str
) -> None:
    """As a whole, with what it has instead."""
    _, ((_, found),) = read(content(), **options)
    assert reason in found


@pytest.mark.parametrize(("text", "reason"), [("B2", "write B2:F100"), ("B3:A1", "has no cells"), ("1:2", "write B2")])
def test_a_range_that_is_none_is_a_mistake_of_the_app(text: str, reason: str) -> None:
    """It is found before anything is read."""
    with pytest.raises(ValueError, match=reason):
        RECORD_FORMATS.make({"type": "excel", "range": text})
