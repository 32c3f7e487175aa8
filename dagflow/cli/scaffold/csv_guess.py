"""Recognises rows of fields: their delimiter, header, encoding, and the types of columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagflow.cli.number_format import count
from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column
from dagflow.cli.scaffold.row_guess import found_rows

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NAME = re.compile(r"[^\W\d][\w .()/%#°-]{0,60}")
_SEPARATOR = re.compile(rf'"?sep=([{re.escape("".join(DELIMITERS))}])"?', re.IGNORECASE)
"""The line that names the delimiter for Excel; it is no row."""

_VALUE = re.compile(r"\s*([+-]?[\d.,]+%?|0x[\da-f]+|\d{4}-\d\d-\d\d.*|true|false)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CsvGuess:
    """How rows are written.

    Attributes:
        quoting: The options that say how fields are quoted; none where quotes are doubled within quotes.
        skipped: Lines before the header.
    """

    delimiter: str
    quoting: Mapping[str, str]
    skipped: int
    has_header: bool
    columns: tuple[ColumnGuess, ...]
    rows: int
    evidence: tuple[str, ...]


def guess_csv(text: str, *, is_whole: bool) -> CsvGuess | None:
    """How the rows of a text are written; None where it has none."""
    lines = text.splitlines(keepends=True)
    named = _SEPARATOR.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    first = 0 if named is None else 1
    skipped = first + len(list(itertools.takewhile(lambda line: line.startswith("#"), lines[first:])))
    body = "".join(lines[skipped:])
    delimiters = DELIMITERS if named is None else named[1]
    tried = (found_rows(body, each, is_whole=is_whole) for each in delimiters)
    found = [each for each in tried if each is not None]
    if not found:
        return None
    # The one that cuts rows into most fields.
    best = max(found, key=lambda each: len(each.rows[0]))
    rows, delimiter = best.rows, best.delimiter
    width = len(rows[0])
    evidence = [f"{width} fields between {DELIMITERS[delimiter]} in {len(rows):,} rows"]
    has_header = _is_header(rows)
    names = rows[0] if has_header else [f"column_{number}" for number in range(1, width + 1)]
    body_rows = rows[1:] if has_header else rows
    columns = [guess_column(name, [row[index] for row in body_rows]) for index, name in enumerate(names)]
    evidence.append("the first row names the columns" if has_header else "the first row is no header")
    evidence += best.evidence
    if named is not None:
        evidence.append("the first line names the delimiter for Excel")
    if skipped > first:
        evidence.append(f"{count(skipped - first, 'comment line')} before the header")
    if best.titles:
        evidence.append(f"{count(best.titles, 'line')} of another form before the header")
    skipped += best.titles
    return CsvGuess(delimiter, best.options, skipped, has_header, tuple(columns), len(rows), tuple(evidence))


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
        if counts and 2 < min(counts) < max(counts):
            return (f"{min(counts)} to {max(counts)} fields between {name}, and csv wants as many in each row",)
    return ()
