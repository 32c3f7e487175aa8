"""Recognises rows of fields: their delimiter, header, encoding, and the types of columns."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SHARE = 0.97
"""Part of the rows that have as many fields as most, where they are rows at all."""

_NAME = re.compile(r"[^\W\d][\w .()/%#°-]{0,60}")
_SEPARATOR = re.compile(rf'"?sep=([{re.escape("".join(DELIMITERS))}])"?', re.IGNORECASE)
"""The line that names the delimiter for Excel; it is no row."""

_ESCAPE = "\\"
_VALUE = re.compile(r"\s*([+-]?[\d.,]+%?|0x[\da-f]+|\d{4}-\d\d-\d\d.*|true|false)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CsvGuess:
    """How rows are written.

    Attributes:
        delimiter: What stands between fields.
        escape: The character that makes a quote within quotes literal; None if quotes are doubled.
        skipped: Lines before the header.
        has_header: Whether the first row names the columns.
        columns: The columns.
        rows: Rows that were looked at.
        evidence: Why the delimiter, the escape and the header are those.
    """

    delimiter: str
    escape: str | None
    skipped: int
    has_header: bool
    columns: tuple[ColumnGuess, ...]
    rows: int
    evidence: tuple[str, ...]


def guess_csv(text: str, *, is_whole: bool) -> CsvGuess | None:
    """How the rows of a text are written; None where it has none.

    Args:
        text: The beginning of a file.
        is_whole: Whether it is all of the file; otherwise the last row may be cut.
    """
    lines = text.splitlines(keepends=True)
    named = _SEPARATOR.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    first = 0 if named is None else 1
    skipped = first + len(list(itertools.takewhile(lambda line: line.startswith("#"), lines[first:])))
    body = "".join(lines[skipped:])
    found = [
        (rows, each, escape)
        for each in (DELIMITERS if named is None else named[1])
        if (rows := _rows(body, each, escape := _escape(body, each, is_whole=is_whole), is_whole=is_whole))
    ]
    if not found:
        return None
    # The one that cuts rows into most fields.
    rows, delimiter, escape = max(found, key=lambda each: len(each[0][0]))
    width = len(rows[0])
    evidence = [f"{width} fields between {DELIMITERS[delimiter]} in {len(rows):,} rows"]
    has_header = _is_header(rows)
    names = rows[0] if has_header else [f"column_{number}" for number in range(1, width + 1)]
    body_rows = rows[1:] if has_header else rows
    columns = [guess_column(name, [row[index] for row in body_rows]) for index, name in enumerate(names)]
    evidence.append("the first row names the columns" if has_header else "the first row is no header")
    if escape is not None:
        evidence.append("quotes within quotes have a backslash before them")
    if named is not None:
        evidence.append("the first line names the delimiter for Excel")
    if skipped > first:
        evidence.append(f"{skipped - first} comment lines come first")
    return CsvGuess(delimiter, escape, skipped, has_header, tuple(columns), len(rows), tuple(evidence))


def _escape(text: str, delimiter: str, *, is_whole: bool) -> str | None:
    """A backslash, where rows are whole only if it makes the quote behind it literal; else None."""
    if f'{_ESCAPE}"' not in text or _rows(text, delimiter, None, is_whole=is_whole, is_strict=True):
        return None
    return _ESCAPE if _rows(text, delimiter, _ESCAPE, is_whole=is_whole, is_strict=True) else None


def _rows(text: str, delimiter: str, escape: str | None, *, is_whole: bool, is_strict: bool = False) -> list[list[str]]:
    """The rows, where nearly all have the same number of fields, at least two; else none.

    Args:
        text: The rows.
        delimiter: What stands between fields.
        escape: The character that makes the next one literal; None for none.
        is_whole: Whether the last row is whole.
        is_strict: Whether text after the quote that ends a field means that the text has no rows.
    """
    lines = io.StringIO(text, newline="")
    rows = []
    try:
        for row in csv.reader(lines, delimiter=delimiter, escapechar=escape, strict=is_strict):
            rows += [row] if row else []
    except csv.Error:
        # An error in a last row that is cut does not count.
        if is_whole or lines.read(1):
            return []
    if not is_whole:
        rows = rows[:-1]
    if len(rows) < 2:
        return []
    ((width, count),) = Counter(map(len, rows)).most_common(1)
    if width < 2 or len(rows[0]) != width or count < _SHARE * len(rows):
        return []
    return [row for row in rows if len(row) == width]


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    first, rest = rows[0], rows[1:]
    if len(set(first)) < len(first) or any(not cell or _VALUE.fullmatch(cell) for cell in first):
        return False
    if any(guess_column("", [row[index] for row in rest]).type != "string" for index in range(len(first))):
        return True
    is_repeated = any(cell == row[index] for row in rest for index, cell in enumerate(first))
    return not is_repeated and all(map(_NAME.fullmatch, first))


def uneven(lines: Sequence[str]) -> tuple[str, ...]:
    """Why the lines are no rows, although all of them hold a delimiter."""
    for delimiter, name in DELIMITERS.items():
        counts = {line.count(delimiter) + 1 for line in lines if line}
        if counts and min(counts) > 2:
            return (f"{min(counts)} to {max(counts)} fields between {name}, and csv wants as many in each row",)
    return ()
