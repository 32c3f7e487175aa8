"""Workbooks of Excel, and of programs that write such files."""

from __future__ import annotations

import datetime
import itertools
import posixpath
import re
import string
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.properties import Count
from dagflow.late import LateModule
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.format_registry import require_package
from operators.reader.byte_source import ByteSource
from operators.reader.scanning.tabular import RowUnit, TableFile, Tabular, tiled

_calamine: Any = LateModule("python_calamine")

_RANGE = re.compile(r"([A-Z]{1,3})([0-9]{0,7}):([A-Z]{1,3})([0-9]{0,7})")
_LETTERS = ["".join(each) for count in (1, 2, 3) for each in itertools.product(string.ascii_uppercase, repeat=count)]
_NUMBERS = {letters: number for number, letters in enumerate(_LETTERS)}
_WHOLE = 10**15
"""Excel keeps 15 digits of a number."""

# A cell with an error, or with a formula and no value, in the XML of a sheet.
_WRONG = re.compile(
    rb"<(?:\w+:)?c\b(?=[^>]*\br=\"([A-Z]+)([0-9]+)\")"
    rb"(?:(?=[^>]*\bt=\"e\")[^>]*>(?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?v>([^<]*)<"
    rb"|[^>]*>\s*<(?:\w+:)?f\b[^>]*?(?:/>|>[^<]*</(?:\w+:)?f>)\s*(?:<(?:\w+:)?v\s*/>\s*)?</(?:\w+:)?c>)",
    re.DOTALL,
)
_MAY_BE_WRONG = re.compile(rb"<(?:\w+:)?f\b|\bt=\"e\"")

# Places in the XML of a sheet: one behind column AF, or behind the last row; and those of all cells with content.
_FAR = re.compile(rb"""r=["'](?:[Aa][G-Zg-z]|[B-Zb-z][A-Za-z]|[A-Za-z]{3}|[A-Za-z]+[0-9]{8})""")
_FILLED = re.compile(rb"""<(?:\w+:)?c\s(?:[^>]*\s)?r=["']([A-Za-z]+)([0-9]+)["'](?:[^>]*[^>/])?>""")
_MOST_CELLS = 1 << 25
"""Cells from A1 to the last one of a sheet, also empty ones: calamine gives each of them."""

_MOST_BYTES = 1 << 30
"""Bytes of the parts of a workbook when they are decompressed."""

_BOOK = ("workbook.xml", "_rels/workbook.xml.rels")
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class Excel(Tabular):
    """The rows of sheets of workbooks: .xlsx, .xlsm, .xlsb, .xls and .ods. A row is below the header, and not empty.

    Cells have the values that they were saved with. A row that has a cell with an error, or with a formula that was
    never computed, is refused. A workbook is read as a whole, by the block that has its first byte.
    """

    name: ClassVar[str] = "excel"
    title: ClassVar[str] = "a workbook"
    unit_name: ClassVar[str] = "sheet"

    sheet: Annotated[
        str | Annotated[int, Field(ge=1)],
        Field(description="name or number of the sheet; '*' for all sheets, which have the same header"),
    ] = 1
    range: Annotated[
        str | None, Field(description="the cells to read, such as B2:F100 or B:F; default: all that have values")
    ] = None
    header: Annotated[
        Count,
        Field(
            ge=0,
            description="the row that names the columns, counted from the first that has a value; 0: none, and columns "
            "names them, or they have their letters",
        ),
    ] = 1
    merged: Annotated[
        Literal["first", "all"],
        Field(
            description="which of the cells of a merged range have its value: the first one, or all; others are null"
        ),
    ] = "first"
    null_values: Annotated[
        list[str], Field(description="words that mean null, such as [NA, '-']", default_factory=list)
    ]

    def check_properties(self) -> None:
        """Find the range."""
        super().check_properties()
        require_package("it", "python_calamine", "excel")
        self.area = _area_of(f"A:{_LETTERS[-1]}" if self.range is None else self.range)

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the workbook, if the block has a sheet of it."""
        table = known if known is not None and not known.units(block) else WorkbookFile(source, self)
        return table, table

    def place_of_value(self, row: int, column: str) -> str:
        """The cell, in the workbook that was read last."""
        table: WorkbookFile = self._opened[1]
        unit = next(unit for unit in reversed(table.all_units) if unit.first_row <= row)
        sheet = table.sheets[unit.index]
        return sheet.cell(sheet.columns[column], sheet.numbers[row - unit.first_row])


class Sheet:
    """A sheet that was read.

    Args:
        errors: Its cells that have no value, and why, by row and column from 0.

    Attributes:
        columns: The columns of records, each with its number in the sheet, from 0.
        numbers: The number in the sheet of each row that is not empty, from 0.
        values: The values of each column in these rows, until the workbook has them.
        reasons: Which of these rows are refused because a cell has no value, and why.
    """

    def __init__(self, format: Excel, found: Any, errors: Mapping[tuple[int, int], str]) -> None:
        null, (numbers, places) = {"", *format.null_values}, format.area
        cells = [[None if cell in null else cell for cell in row] for row in found.to_python(skip_empty_area=False)]
        for (top, left), (bottom, right) in (found.merged_cell_ranges or ()) if format.merged == "all" else ():
            for row in cells[top : bottom + 1]:
                row[left : right + 1] = [cells[top][left]] * len(row[left : right + 1])
        rows = ((at, row[places.start : places.stop]) for at, row in enumerate(cells) if at in numbers)
        # A cell with an error has no value, and its row is not empty for that.
        wrong = {at for at, column in errors if column in places}
        filled = {at: row for at, row in rows if at in wrong or any(cell is not None for cell in row)}
        head = min(filled, default=0) + format.header - 1
        body = {at: row for at, row in filled.items() if at > head}
        blank = [None] * max(map(len, filled.values()), default=0)
        given = dict(enumerate(() if format.header else format.columns or ()))
        self.name, self.columns, self.numbers = found.name, dict[str, int](), [*body]
        for at, title in enumerate(filled.get(head, blank) if format.header else blank):
            # A column without a title and without a value is none.
            if title is None and all(row[at] is None for row in body.values()):
                continue
            column = given.get(at) or (_LETTERS[places[at]] if title is None else text_of(title).strip())
            if column in self.columns and column in (format.columns or [column]):
                raise ValueError(f"sheet '{found.name}' has several columns '{column}'")
            self.columns.setdefault(column, places[at])
        self.values = {own: [row[at - places.start] for row in body.values()] for own, at in self.columns.items()}
        self.reasons = dict[int, str]()
        for (own, at), (place, number) in itertools.product(self.columns.items(), enumerate(body)) if errors else ():
            if error := errors.get((number, at)):
                self.reasons.setdefault(place, f"column '{own}': {error}{self.cell(at, number)}")

    def cell(self, column: int, row: int) -> str:
        """What messages call a cell."""
        return f", in: cell {_LETTERS[column]}{row + 1} of sheet '{self.name}'"


class WorkbookFile(TableFile):
    """A workbook that was read; nothing else is needed of its file."""

    def __init__(self, source: ByteSource, format: Excel) -> None:
        archive = _archive(source)
        workbook = _calamine.load_workbook(PythonFile(source, is_holder=False))
        names = _chosen(workbook.sheet_names, format.sheet)
        errors = {} if archive is None else _errors_in(archive, names)
        self.sheets = [Sheet(format, workbook.get_sheet_by_name(name), errors.get(name, {})) for name in names]
        is_typed, values = isinstance(format.columns, dict), dict[str, list[Any]]()
        for sheet in self.sheets:
            for name in self.sheets[0].columns:
                values.setdefault(name, []).extend(sheet.values.pop(name, [None] * len(sheet.numbers)))
        self._table = pa.table({name: _array(own, is_text=is_typed) for name, own in values.items()})
        self.schema = self._table.schema
        counts, size = [len(sheet.numbers) for sheet in self.sheets], source.size_bytes
        self.all_units = tiled([size * at // len(counts) for at in range(len(counts))], counts, size)

    def reasons(self, unit: RowUnit) -> Mapping[int, str]:
        """Why rows with errors are refused."""
        return self.sheets[unit.index].reasons

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        sheet = self.sheets[unit.index]
        if [*sheet.columns] != self.schema.names:
            raise ValueError(f"it has the columns {', '.join(sheet.columns)}, unlike the first sheet")
        yield from self._table.slice(unit.first_row, unit.rows).to_batches()


def _array(values: list[Any], *, is_text: bool) -> pa.Array:
    """Values in the type that all of them have, where numbers without a fraction are whole; as text if they differ."""
    kinds = {float if kind is int else kind for kind in map(type, values)} - {type(None)}
    if kinds == {datetime.date, datetime.datetime}:
        values = [datetime.datetime(*each.timetuple()[:3]) if type(each) is datetime.date else each for each in values]
    elif is_text or len(kinds) != 1 or datetime.timedelta in kinds:
        return pa.array([None if value is None else text_of(value) for value in values], pa.string())
    array = pa.array(values)
    is_whole = kinds == {float} and all(value is None or _is_whole(value) for value in values)
    return array.cast(pa.int64()) if is_whole else array


def _is_whole(value: float) -> bool:
    return float(value).is_integer() and abs(value) < _WHOLE


def text_of(value: Any) -> str:
    """A value as text, from which values of other types are made."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(int(value)) if _is_whole(value) else repr(value)
        case datetime.datetime():
            return value.isoformat().removesuffix("T00:00:00")
        case datetime.timedelta():
            minutes, seconds = divmod(int(value.total_seconds()), 60)
            return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return str(value)


def _chosen(names: Sequence[str], sheet: str | int) -> Sequence[str]:
    if sheet == "*":
        return names
    chosen = names[sheet - 1 : sheet] if isinstance(sheet, int) else [name for name in names if name == sheet]
    if not chosen:
        raise ValueError(f"there is no sheet {sheet!r}; the sheets are {', '.join(names)}")
    return chosen


def _area_of(text: str) -> tuple[range, range]:
    """The rows and the columns that Excel names, such as B2:F100 or B:F.

    Raises:
        ValueError: It names none.
    """
    found = _RANGE.fullmatch(text.strip().upper())
    if found is None:
        raise ValueError(f"range: {text!r} is none; write B2:F100, or B:F for whole columns")
    left, top, right, bottom = found.groups()
    rows, places = range(int(top or 1) - 1, int(bottom or 1 << 20)), range(_NUMBERS[left], _NUMBERS[right] + 1)
    if not (rows and places) or rows.start < 0:
        raise ValueError(f"range: {text!r} has no cells")
    return rows, places


def _archive(source: ByteSource) -> zipfile.ZipFile | None:
    """The archive that a workbook is; None for one of another kind.

    Raises:
        ValueError: Its parts are larger than _MOST_BYTES, or other than it tells.
    """
    try:
        archive = zipfile.ZipFile(PythonFile(source, is_holder=False))
    except zipfile.BadZipFile:
        return None
    if sum(part.file_size for part in archive.infolist()) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20:,} MiB when it is decompressed; save it as CSV")
    if damaged := archive.testzip():
        raise ValueError(f"its part {damaged} is damaged")
    return archive


def _place_of(match: re.Match[bytes]) -> tuple[int, int]:
    """Row and column of a cell, from 0; a column that no sheet has is behind all others."""
    return int(match[2]) - 1, _NUMBERS.get(match[1].decode().upper(), _MOST_CELLS)


def _errors_in(archive: zipfile.ZipFile, names: Sequence[str]) -> dict[str, dict[tuple[int, int], str]]:
    """The cells of an .xlsx file that calamine gives as empty although they show something, by sheet.

    Raises:
        ValueError: A sheet has cells so far from A1 that those between take more memory than others.
    """
    try:
        book, links = (ElementTree.fromstring(archive.read(f"xl/{part}")) for part in _BOOK)
    except (KeyError, ElementTree.ParseError):
        return {}  # of another kind
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    parts = {each.get("name"): targets.get(each.get(_RELATION), "") for each in book.iterfind(".//{*}sheet")}
    found: dict[str, dict[tuple[int, int], str]] = {}
    for name in names:
        path = posixpath.join("/xl", parts.get(name, ""))[1:]
        content = archive.read(path) if path in archive.namelist() else b""
        filled = [_place_of(match) for match in _FILLED.finditer(content)] if _FAR.search(content) else []
        row, column = (max(line) for line in zip(*filled or [(0, 0)], strict=True))
        if (cells := (row + 1) * (column + 1)) > _MOST_CELLS:
            raise ValueError(
                f"sheet '{name}' has {cells:,} cells from A1 to {_LETTERS[column]}{row + 1}, more than "
                f"{_MOST_CELLS:,}; clear those that lie far away, or save it as CSV"
            )
        wrong = _WRONG.finditer(content) if _MAY_BE_WRONG.search(content) else ()
        never = "the formula has no value, because it was never computed"
        found[name] = {_place_of(match): f"{match[3].decode()} is an error" if match[3] else never for match in wrong}
    return found
