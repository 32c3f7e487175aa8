"""Cuts text into rows of fields at a delimiter, in the way of quoting that fits all of them."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
