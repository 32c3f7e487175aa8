"""The head of a CSV file: empty lines, comments, and the row that names the columns."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field

from dagflow.frozen import frozen
from operators.reader.byte_source import Bytes, ByteSource, FileView
from operators.reader.columns.types import ColumnType
from operators.reader.scanning.quoting import ADVICE
from operators.reader.scanning.search import CR, LF, find_newlines


def _one_character(text: str) -> str:
    if len(text) == 1 and "\x01" <= text <= "\x7e":
        return text
    raise ValueError(
        "it is one ASCII character, such as ; or |. Where other text stands between fields, read the files with the "
        "format lines, and split the lines with Parse"
    )


def character_or_none(text: str) -> str:
    """The one character of an option, or the word none."""
    return text if text == "none" else _one_character(text)


Character = Annotated[str, AfterValidator(_one_character), Field(json_schema_extra={"pattern": r"^[\x01-\x7e]$"})]


@frozen
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


def problem_of(
    names: list[str], declared: Mapping[str, ColumnType], count: int | None, *, has_quotes: bool = False
) -> str:
    """Why names cannot be those of columns; "" if they can. One name in quotes may hold any character."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    absent = [name for name, kind in declared.items() if not kind.is_optional and name not in names]
    got = ", ".join(names)
    other = next((mark for mark in ",;\t|" if len(names) == 1 and mark in names[0]), "")
    if any("\0" in name for name in names):
        return "it holds NUL bytes"
    if twice:
        return f"column '{twice[0]}' is there twice; got {got}"
    if absent:
        is_other = f", which is one name: is the delimiter {other!r}?" if other else ""
        remedy = "" if other else "; if files may lack it, add optional: true to its type"
        return f"there is no column '{absent[0]}'; got {got}{is_other}{remedy}"
    if other and not declared and count is None and not has_quotes:
        return f"it is one name, {got}: is the delimiter {other!r}?"
    if count is not None and len(names) != count:
        return f"the header has {len(names)} columns, and columns names {count}; got {got}"
    return ""


def behind_newlines(source: ByteSource, position: int, limit: int, step: int) -> int:
    """The first position from the given one on, and up to limit, that is no newline."""
    view = FileView(source)
    while position < min(limit, source.size_bytes):
        data = view.move(position, min(position + step, limit))
        others = np.flatnonzero((data != LF) & (data != CR))
        if len(others):
            return position + int(others[0])
        position += len(data)
    return position


_FIRST_ROW = 1 << 16
"""Bytes of a row that are looked at where no header is expected."""
HEADER_REMEDY = "; or name the columns with columns, and pass over the header with skip_header: 1 and header: false"
COMMENT_OVER_LINES = f"it is a comment, and a quote or an escape in it goes on in the next line; {ADVICE}"


def is_over_lines(row: bytes, encoding: str) -> bool:
    """Whether a row, with its newline or without it, has several lines."""
    return len(row.decode(encoding, "replace").encode().splitlines()) > 1


_OTHERS = {
    rb"(?i)<(!doctype )?html\b": "it begins a page of HTML, as a server sends in place of a file",
    rb"<(\?xml\b|!DOCTYPE\b|[A-Za-z_][^<>]*>$)": "it begins XML; read such files with the format xml",
    rb"\[\s*(\{|$)|\{$": "it begins a document of JSON; read such files with the format json",
}
"""What a first row of such a pattern shows."""


def other_format(row: Bytes) -> str:
    """What the first row of a file shows it to be in place of CSV, and what to do; "" if it may be CSV."""
    text = row.tobytes().strip()
    for pattern, other in _OTHERS.items():
        if re.match(pattern, text):
            return other
    try:
        is_object = text.startswith(b"{") and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return ""
    return "it is an object of JSON; read such files with the format json_lines" if is_object else ""


def format_at(source: ByteSource, start: int) -> str:
    """What the row that begins at a position shows its file to be in place of CSV; "" if it may be CSV."""
    data = FileView(source).move(start, start + _FIRST_ROW)
    stops = find_newlines(data, True).stops
    return other_format(data[: int(stops[0])] if len(stops) else data)
