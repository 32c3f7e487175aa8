"""Workbooks of Excel, and of programs that write such files."""

from __future__ import annotations

import datetime
import functools
import posixpath
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.properties import Count
from dagflow.frozen import frozen
from dagflow.storage.python_file import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.scanning.tabular import RowUnit, TableFile, Tabular, tiled

_RANGE = re.compile(r"([A-Z]{1,3})([0-9]{0,7}):([A-Z]{1,3})([0-9]{0,7})", re.IGNORECASE)
_LAST_ROW = 1 << 20
_WHOLE = 10**15
"""Excel keeps 15 digits of a number."""

# A cell with an error, or with a formula and no value, in the XML of a sheet.
_CELL = rb"<(?:\w+:)?c\b(?=[^>]*\br=\"([A-Z]+)([0-9]+)\")"
_ERROR = re.compile(_CELL + rb"(?=[^>]*\bt=\"e\")[^>]*>(?:(?!</(?:\w+:)?c>).)*?<(?:\w+:)?v>([^<]*)<", re.DOTALL)
_NO_VALUE = re.compile(
    _CELL + rb"[^>]*>\s*<(?:\w+:)?f\b[^>]*?(?:/>|>[^<]*</(?:\w+:)?f>)\s*(?:<(?:\w+:)?v\s*/>\s*)?</(?:\w+:)?c>"
)
_FORMULA = re.compile(rb"<(?:\w+:)?f\b")

# Places in the XML of a sheet: one behind column AF, or behind the last row; and those of all cells with content.
_FAR = re.compile(rb"""r=["'](?:[Aa][G-Zg-z]|[B-Zb-z][A-Za-z]|[A-Za-z]{3}|[A-Za-z]+[0-9]{8})""")
_FILLED = re.compile(rb"""<(?:\w+:)?c\s(?:[^>]*\s)?r=["']([A-Za-z]+)([0-9]+)["'](?:[^>]*[^>/])?>""")
_MOST_CELLS = 1 << 25
"""Cells between the first and the last one of a sheet, also empty ones: calamine holds each of them."""

_MOST_BYTES = 1 << 30
"""Bytes of the parts of a workbook when they are decompressed."""

_MIDNIGHT = functools.partial(datetime.datetime.combine, time=datetime.time())
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class Area(NamedTuple):
    """Cells of a sheet: first and last row and column, from 0."""

    top: int
    left: int
    bottom: int
    right: int

    @classmethod
    def of(cls, text: str) -> Area:
        """The cells that Excel names, such as B2:F100 or B:F.

        Raises:
            ValueError: It names none.
        """
        found = _RANGE.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"range: {text!r} is none; write B2:F100, or B:F for whole columns")
        top, bottom = int(found[2] or 1) - 1, int(found[4] or _LAST_ROW) - 1
        area = cls(top, _number_of(found[1]), bottom, _number_of(found[3]))
        if area.top > area.bottom or area.left > area.right or area.top < 0:
            raise ValueError(f"range: {text!r} has no cells")
        return area


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
        _calamine()
        self._area = None if self.range is None else Area.of(self.range)

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the workbook, if the block has a sheet of it."""
        if known is not None and not any(block.start <= unit.start < block.end for unit in known.all_units):
            return known, known
        table = WorkbookFile(source, self)
        return table, table

    def place_of_value(self, row: int, column: str) -> str:
        """The cell, in the workbook that was read last."""
        table: WorkbookFile = self._opened[1]
        unit = next(unit for unit in reversed(table.all_units) if unit.first_row <= row)
        return table.sheets[unit.index].place(row - unit.first_row, column)

    def sheet_of(self, workbook: Any, name: str, errors: Mapping[tuple[int, int], str]) -> Sheet:
        """Read a sheet, with the cells that have errors.

        Raises:
            ValueError: Two columns that are asked for have one name.
        """
        found = workbook.get_sheet_by_name(name)
        cells = found.to_python(skip_empty_area=False)
        for (top, left), (bottom, right) in (found.merged_cell_ranges or ()) if self.merged == "all" else ():
            for row in cells[top : bottom + 1]:
                row[left : right + 1] = [cells[top][left]] * (right + 1 - left)
        area = self._area or Area(0, 0, _LAST_ROW, len(cells[0]) if cells else 0)
        null = {"", *self.null_values}
        rows = [
            (at, [None if cell in null else cell for cell in row[area.left : area.right + 1]])
            for at, row in enumerate(cells[area.top : area.bottom + 1], area.top)
        ]
        # A cell with an error has no value, and its row is not empty for that.
        wrong = {at for at, column in errors if area.left <= column <= area.right}
        filled = [(at, row) for at, row in rows if at in wrong or any(cell is not None for cell in row)]
        head = next((at for at, _ in filled), 0) + self.header - 1
        titles = dict(rows).get(head, []) if self.header else []
        body = [(at, row) for at, row in filled if at > head]
        columns, named = dict[str, int](), [] if self.header else [*(self.columns or ())]
        for place in range(max((len(row) for _, row in filled), default=0)):
            title = titles[place] if place < len(titles) else None
            # A column without a title and without a value is none.
            if title is None and all(row[place] is None for _, row in body):
                continue
            given = named[place] if place < len(named) else None
            column = given or (_letters(area.left + place) if title is None else text_of(title).strip())
            if column in columns and column in (self.columns or [column]):
                raise ValueError(f"sheet '{name}' has several columns '{column}'")
            columns.setdefault(column, area.left + place)
        values = [[row[place - area.left] for place in columns.values()] for _, row in body]
        return Sheet(name, columns, values, [at for at, _ in body], errors)


@frozen
class Sheet:
    """A sheet that was read.

    Attributes:
        columns: The columns of records, each with its number in the sheet, from 0.
        values: The values of each row that is not empty.
        numbers: The number of each of these rows in the sheet, from 0.
        errors: Cells that have no value, and why, by row and column of the sheet.
    """

    name: str
    columns: Mapping[str, int]
    values: list[list[Any]]
    numbers: list[int]
    errors: Mapping[tuple[int, int], str]

    def place(self, row: int, column: str) -> str:
        """What messages call a cell."""
        return f", in: cell {_letters(self.columns[column])}{self.numbers[row] + 1} of sheet '{self.name}'"

    def reasons(self) -> dict[int, str]:
        """Why rows with errors are refused."""
        found: dict[int, str] = {}
        for name, column in self.columns.items() if self.errors else ():
            for at, number in enumerate(self.numbers):
                if error := self.errors.get((number, column)):
                    found.setdefault(at, f"column '{name}': {error}{self.place(at, name)}")
        return found


class WorkbookFile(TableFile):
    """A workbook that was read; nothing else is needed of its file."""

    def __init__(self, source: ByteSource, format: Excel) -> None:
        _require_modest_parts(source)
        workbook = _calamine().CalamineWorkbook.from_filelike(PythonFile(source, is_holder=False))
        names = _chosen(workbook.sheet_names, format.sheet)
        errors = _errors_in(source, names)
        self.sheets = [format.sheet_of(workbook, name, errors.get(name, {})) for name in names]
        is_typed = isinstance(format.columns, dict)
        columns = self.sheets[0].columns
        self.schema = pa.schema([(name, pa.string() if is_typed else self._type(name)) for name in columns])
        counts, size = [len(sheet.values) for sheet in self.sheets], source.size_bytes
        self.all_units = tiled([size * at // len(counts) for at in range(len(counts))], counts, size)

    def _type(self, name: str) -> pa.DataType:
        """The type that all values of a column have; text where they have several."""
        sheets = ((sheet, [*sheet.columns].index(name)) for sheet in self.sheets if name in sheet.columns)
        kinds = {_kind(row[at]) for sheet, at in sheets for row in sheet.values if row[at] is not None}
        if kinds == {pa.int64(), pa.float64()}:
            return pa.float64()
        if kinds == {pa.date32(), pa.timestamp("us")}:
            return pa.timestamp("us")
        return kinds.pop() if len(kinds) == 1 else pa.string()

    def units(self, block: BlockMetadata) -> Sequence[RowUnit]:
        """The sheets."""
        return [unit for unit in self.all_units if block.start <= unit.start < block.end]

    def reasons(self, unit: RowUnit) -> dict[int, str]:
        """Why rows with errors are refused."""
        return self.sheets[unit.index].reasons()

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a sheet."""
        sheet = self.sheets[unit.index]
        if [*sheet.columns] != self.schema.names:
            raise ValueError(f"it has the columns {', '.join(sheet.columns)}, unlike the first sheet")
        yield pa.RecordBatch.from_arrays(
            [_array([row[at] for row in sheet.values], column.type) for at, column in enumerate(self.schema)],
            schema=self.schema,
        )


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        values = [None if value is None else text_of(value) for value in values]
    elif pa.types.is_integer(kind):
        values = [None if value is None else int(value) for value in values]
    elif pa.types.is_timestamp(kind):
        values = [_MIDNIGHT(value) if type(value) is datetime.date else value for value in values]
    return pa.array(values, kind)


def _kind(value: Any) -> pa.DataType:
    """The type of a value; a number without a fraction is whole."""
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, float):
        return pa.int64() if value.is_integer() and abs(value) < _WHOLE else pa.float64()
    if isinstance(value, datetime.datetime):
        return pa.timestamp("us")
    known = {datetime.date: pa.date32(), datetime.time: pa.time64("us"), int: pa.int64()}
    return known.get(type(value), pa.string())


def text_of(value: Any) -> str:
    """A value as text, from which values of other types are made."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if _kind(value) == pa.int64() else repr(value)
    if isinstance(value, datetime.datetime):
        return (value.date() if value.time() == datetime.time() else value).isoformat()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        minutes, seconds = divmod(int(value.total_seconds()), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return str(value)


def _chosen(names: Sequence[str], sheet: str | int) -> list[str]:
    if sheet == "*":
        return [*names]
    if isinstance(sheet, int) and sheet <= len(names):
        return [names[sheet - 1]]
    if sheet not in names:
        raise ValueError(f"there is no sheet {sheet!r}; the sheets are {', '.join(names)}")
    return [str(sheet)]


def _letters(column: int) -> str:
    """The letters of a column of a sheet."""
    letters = ""
    while column >= 0:
        column, letter = divmod(column, 26)
        letters, column = chr(ord("A") + letter) + letters, column - 1
    return letters


def _number_of(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _require_modest_parts(source: ByteSource) -> None:
    """Refuse a small archive of large parts, and one that does not tell how large they are.

    Raises:
        ValueError: Its parts are larger than _MOST_BYTES, or other than it tells.
    """
    try:
        archive = zipfile.ZipFile(PythonFile(source, is_holder=False))
    except zipfile.BadZipFile:
        return  # of another kind
    if sum(part.file_size for part in archive.infolist()) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20:,} MiB when it is decompressed; save it as CSV")
    if damaged := archive.testzip():
        raise ValueError(f"its part {damaged} is damaged")


def _require_modest_sheet(name: str, content: bytes) -> None:
    """Refuse a sheet whose cells are far from each other, since all between them are held, too.

    Raises:
        ValueError: Between them are more than _MOST_CELLS.
    """
    if not _FAR.search(content):
        return
    number = functools.cache(_number_of)
    places = np.array([(int(match[2]), number(match[1].decode())) for match in _FILLED.finditer(content)] or [(0, 0)])
    (top, left), (bottom, right) = places.min(axis=0).tolist(), places.max(axis=0).tolist()
    if (cells := (bottom - top + 1) * (right - left + 1)) > _MOST_CELLS:
        area = f"from {_letters(left)}{top} to {_letters(right)}{bottom}"
        raise ValueError(
            f"sheet '{name}' has {cells:,} cells {area}, more than {_MOST_CELLS:,}; clear those that lie far away, "
            "or save it as CSV"
        )


def _errors_in(source: ByteSource, names: Sequence[str]) -> dict[str, dict[tuple[int, int], str]]:
    """The cells of an .xlsx file that calamine gives as empty although they show something, by sheet."""
    try:
        archive = zipfile.ZipFile(PythonFile(source, is_holder=False))
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    except (zipfile.BadZipFile, KeyError, ElementTree.ParseError):
        return {}  # of another kind
    targets = {relation.get("Id"): relation.get("Target", "") for relation in relations}
    found: dict[str, dict[tuple[int, int], str]] = {}
    for sheet in book.iter():
        path = posixpath.join("/xl", targets.get(sheet.get(_RELATION), ""))[1:]
        if sheet.tag.endswith("}sheet") and sheet.get("name") in names and path in archive.namelist():
            content = archive.read(path)
            _require_modest_sheet(sheet.get("name", ""), content)
            errors = _ERROR.finditer(content) if b't="e"' in content else ()
            formulas = _NO_VALUE.finditer(content) if _FORMULA.search(content) else ()
            cells = [(match, f"{match[3].decode()} is an error") for match in errors]
            cells += [(match, "the formula has no value, because it was never computed") for match in formulas]
            places = (((int(match[2]) - 1, _number_of(match[1].decode())), why) for match, why in cells)
            found[sheet.get("name", "")] = dict(places)
    return found


def _calamine() -> Any:
    try:
        # Optional: an extra.
        import python_calamine
    except ImportError as error:
        raise ValueError(
            "it needs the package python-calamine; install it with: pip install 'dagflow[excel]'"
        ) from error
    return python_calamine
