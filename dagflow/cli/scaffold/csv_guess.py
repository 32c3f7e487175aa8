"""Recognises rows of fields: their delimiter, header, encoding, and the types of columns."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagflow.cli.number_format import count
from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column

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


NEARLY_ALL = 0.97
"""Part of the lines of a file that are of the format that it has, and of the rows that have as many fields as most."""

_ESCAPE = "\\"
_MOST_TITLES = 10
_LEAST_ROWS_BELOW_TITLES = 3


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a text.

    Attributes:
        rows: Those with as many fields as most.
        titles: How many rows of another form come before them.
    """

    rows: list[list[str]]
    delimiter: str
    titles: int
    options: Mapping[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()


def found_rows(text: str, delimiter: str, *, is_whole: bool) -> FoundRows | None:
    """The rows of a text, where nearly all have the same number of fields, at least two; else None."""

    def rows(**options: Any) -> FoundRows | None:
        return _even(_read(text, delimiter, is_whole=is_whole, **options), delimiter)

    strict = rows(strict=True)
    if '"' not in text:
        single = rows(strict=True, quotechar="'") if "'" in text else None
        if single is None or (strict is not None and single.rows == strict.rows):
            return strict
        return FoundRows(single.rows, delimiter, single.titles, {"quote": "'"}, ("fields are in single quotes",))
    has_escapes = strict is None and f'{_ESCAPE}"' in text
    if has_escapes and (escaped := rows(strict=True, escapechar=_ESCAPE)) is not None:
        evidence = "quotes within quotes have a backslash before them"
        return FoundRows(escaped.rows, delimiter, escaped.titles, {"escape": _ESCAPE}, (evidence,))
    plain = rows(quoting=csv.QUOTE_NONE)
    kept = rows()
    if plain is not None and _is_plain(plain, strict, kept):
        evidence = "quotes are plain text: each line has as many fields without them"
        return FoundRows(plain.rows, delimiter, plain.titles, {"quote": "none"}, (evidence,))
    if strict is not None:
        return strict
    if kept is None:
        return None
    lines = text.splitlines() if is_whole else text.splitlines()[:-1]
    alone = _even([row for line in lines for row in _read(line, delimiter, is_whole=True)], delimiter)
    if alone is not None and alone.rows == kept.rows:
        evidence = "text follows quotes that close fields, and belongs to these fields, as in Excel"
        return FoundRows(kept.rows, delimiter, kept.titles, {"stray_quotes": "keep"}, (evidence,))
    evidence = "text follows quotes that close fields, in rows that are refused for it"
    return FoundRows(kept.rows, delimiter, kept.titles, {}, (evidence,))


def _is_plain(plain: FoundRows, strict: FoundRows | None, kept: FoundRows | None) -> bool:
    """Whether quotes are plain text: lines are rows, mostly without fields in quotes.

    Args:
        plain: The rows without quoting.
        strict: The rows with quoting; None if quotes contradict it.
        kept: The rows with quoting where text may follow quotes; None if they are uneven.
    """
    if _are_quoted(plain.rows) or (kept is not None and plain.titles > kept.titles):
        return False
    # Where quoting fits as well, lines of a text in quotes may have delimiters, but no numbers or tabs in all of them.
    is_sure = strict is None or plain.delimiter == "\t" or _has_numbers(plain.rows)
    return is_sure and (strict is None or len(plain.rows) > len(strict.rows))


def _read(text: str, delimiter: str, *, is_whole: bool, **options: Any) -> list[list[str]]:
    """The rows that are not empty; none where quotes contradict strict quoting."""
    lines = io.StringIO(text, newline="")
    rows = []
    try:
        for row in csv.reader(lines, delimiter=delimiter, **options):
            rows += [row] if row else []
    except csv.Error:
        # An error in a last row that is cut does not count.
        if is_whole or lines.read(1):
            return []
    return rows if is_whole else rows[:-1]


def _even(rows: list[list[str]], delimiter: str) -> FoundRows | None:
    """The rows with as many fields as most of those behind the titles, if these are nearly all."""
    widths = Counter(map(len, rows))
    if not widths:
        return None
    ((width, _),) = widths.most_common(1)
    titles = next(index for index, row in enumerate(rows) if len(row) == width)
    below = rows[titles:]
    even = [row for row in below if len(row) == width]
    if width < 2 or len(even) < 2 or len(even) < NEARLY_ALL * len(below):
        return None
    if titles and (titles > _MOST_TITLES or len(even) < _LEAST_ROWS_BELOW_TITLES or not _has_numbers(even)):
        return None
    return FoundRows(even, delimiter, titles)


def _has_numbers(rows: list[list[str]]) -> bool:
    """Whether a column holds numbers below its name, as sentences with commas do not."""
    return any(all(row[index].strip()[:1].isdigit() for row in rows[1:]) for index in range(len(rows[0])))


def _are_quoted(rows: list[list[str]]) -> bool:
    """Whether most fields that begin with a quote, read as they are written, end with one."""
    quoted: Iterator[str] = (cell for row in rows for cell in row if cell.startswith('"'))
    ends = Counter(len(cell) > 1 and cell.endswith('"') for cell in quoted)
    return ends[True] > ends[False]
