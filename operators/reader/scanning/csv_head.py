"""The head of a CSV file: its start and end, the columns that it names, and why it cannot be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.columns.types import ColumnType
from operators.reader.formats.base import ByteAccounting
from operators.reader.scanning.file_view import FileView, read_exactly
from operators.reader.scanning.refused_files import refuse_file
from operators.reader.scanning.search import CR, LF, find_newlines


@dataclass(frozen=True, slots=True)
class CsvHead:
    """The head of a CSV file.

    Attributes:
        start: Where it begins, behind a byte order mark, empty lines, and skipped lines.
        end: Where the first row begins.
        names: The columns; () if it cannot be used.
        problem: Why it cannot be used; "" if it can.
    """

    start: int
    end: int
    names: tuple[str, ...] = ()
    problem: str = ""

    def refuse(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> None:
        """Refuse a file whose head cannot be used, as one reject from its head to its end.

        Raises:
            HeaderError: Rejects are not accepted.
        """
        line = _line_of(source, self.start)
        reason = f"the header in line {line} cannot be used: {self.problem}"
        remedy = "; or name the columns with columns, and pass over the header with skip_header: 1 and header: false"
        refuse_file(source, block, accounting, reason, remedy, self.start)


def problem_of(names: list[str], declared: Mapping[str, ColumnType], count: int | None) -> str:
    """Why names cannot be those of columns; "" if they can.

    Args:
        names: The names in the header.
        declared: The types that the app gives columns.
        count: How many columns the app names; None if it names none.
    """
    twice = [name for name, times in Counter(names).items() if times > 1]
    absent = [name for name, kind in declared.items() if not kind.is_optional and name not in names]
    got = ", ".join(names)
    if any("\0" in name for name in names):
        return "it holds NUL bytes"
    if twice:
        return f"column '{twice[0]}' is there twice; got {got}"
    if absent:
        other = next((each for each in ",;\t|" if len(names) == 1 and each in names[0]), "")
        is_other = f", which is one name: is the delimiter {other!r}?" if other else ""
        remedy = "" if other else "; if files may lack it, add optional: true to its type"
        return f"there is no column '{absent[0]}'; got {got}{is_other}{remedy}"
    if count is not None and len(names) != count:
        return f"the header has {len(names)} columns, and columns names {count}; got {got}"
    return ""


def behind_newlines(source: ByteSource, position: int, limit: int, step: int) -> int:
    """The first position from the given one on, and up to limit, that is no newline.

    Args:
        source: The file.
        position: Where to begin.
        limit: Where to stop.
        step: How many bytes are read at a time.
    """
    view = FileView(source)
    while position < min(limit, source.size_bytes):
        data = view.move(position, min(position + step, limit))
        others = np.flatnonzero((data != LF) & (data != CR))
        if len(others):
            return position + int(others[0])
        position += len(data)
    return position


def behind_rows(
    source: ByteSource, position: int, limit: int, step: int, count: int, next_row: Callable[[int], int]
) -> int:
    """The position behind a number of rows, and the empty lines around them; or limit.

    Args:
        source: The file.
        position: Where the first row, or an empty line before it, begins.
        limit: Where to stop.
        step: How many bytes are read at a time.
        count: How many rows.
        next_row: Gives the start of the row, or empty line, behind the row that begins at a position.
    """
    position = behind_newlines(source, position, limit, step)
    for _ in range(count):
        if position >= limit:
            break
        position = behind_newlines(source, next_row(position), limit, step)
    return position


def _line_of(source: ByteSource, offset: int) -> int:
    """The number of the line that begins at an offset near the beginning of a file, counted from 1."""
    return len(find_newlines(read_exactly(source, 0, offset), True).stops) + 1
