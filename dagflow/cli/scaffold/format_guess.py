"""Recognises the record format of a file by its first bytes."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from dagflow.cli.output import count
from dagflow.cli.scaffold.column_types import ColumnGuess, guess_column
from dagflow.cli.scaffold.plain_columns import fixed_columns, line_length, log_columns
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.storage.file_kinds import FORMAT_BY_KIND, kind_of_content, wide_encoding

_CLOCK = r"\d{1,2}:\d\d:\d\d"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
_MONTH = r"[A-Z][a-z]{2}"
_STAMPS = (
    rf"\[?{_ISO}",
    rf"\[?[A-Z]+\]?:? +\[?{_ISO}",
    rf"<\d+>1 {_ISO}",
    rf"(<\d+>)?{_MONTH} [ \d]\d {_CLOCK}",
    rf"\[{_MONTH} {_MONTH} [ \d]\d {_CLOCK}",
    rf"\S+ \S+ \S+ \[\d\d/{_MONTH}/\d{{4}}:{_CLOCK}",
    rf"\[?(\d\d)?\d\d/\d\d/\d\d {_CLOCK}",
    rf"\[?\d{{1,2}}[-./](\d{{1,2}}|{_MONTH})[-./]\d{{4}} {_CLOCK}",
    rf"{_MONTH} \d{{1,2}}, \d{{4}} {_CLOCK}",
    rf"\d\d-\d\d {_CLOCK}\.\d{{3}}",
    rf"[A-Z]\d{{4}} {_CLOCK}\.\d",
    rf"\[?{_CLOCK}[.,]\d{{3}}",
)
"""How lines of logs begin: by ISO 8601, with a level before it, and as the programs write that many servers run."""
_BEHIND_STAMP = r"(:\d\d)?([.,]\d+|\d*)( \d{4})?( [AP]M)?( ?(Z|[+-]\d\d:?\d\d))?\]? +\S"
_FIELD = re.compile(r"[A-Za-z][\w-]*:(\s|$)")
_TAG = re.compile(r"""<(/?)([A-Za-z_][\w.:-]*)(?:\s(?:[^<>"']|"[^"]*"|'[^']*')*?)?(/?)>""")
_MOST_LINES = 1000
_WITH_PATH = {"columns": True}
"""Files that are one record each are told apart by their paths."""


@frozen
class FormatGuess:
    """The format that a file seems to have.

    Attributes:
        infers: Whether the reader finds out the columns itself.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    columns: tuple[ColumnGuess, ...] = ()
    infers: bool = False

    @property
    def is_tabular(self) -> bool:
        """Whether files hold rows whose columns have types."""
        return self.name in FORMAT_BY_KIND.values()

    @property
    def has_columns(self) -> bool:
        return bool(self.columns) or self.infers or self.is_tabular or self.options.get("columns") is True

    @property
    def kind(self) -> tuple[str, str, int, tuple[str, ...]]:
        """Equal for files that one reader can read: in csv it finds columns by their names."""
        names = tuple(sorted(column.name for column in self.columns)) if self.name == "csv" else ()
        return self.name, str(self.options.get("delimiter", "")), self.skipped, names

    @property
    def skipped(self) -> int:
        return int(self.options.get("skip_header", 0))

    def with_text(self, column: str, evidence: str) -> FormatGuess:
        columns = tuple(each.as_text(evidence) if each.name == column else each for each in self.columns)
        return replace(self, columns=columns)


def guess_format(head: bytes, *, is_whole: bool) -> FormatGuess:
    """The format of a file.

    Raises:
        DagflowError: The file is of a kind that is not read as records.
    """
    kind = kind_of_content(head)
    if kind in FORMAT_BY_KIND:
        return FormatGuess(FORMAT_BY_KIND[kind], {}, ("its first bytes are those of the format",))
    if kind:
        raise DagflowError(f"it is {kind}, which no record format reads", hint="convert it to CSV or lines of JSON")
    wide, evidence = wide_encoding(head)
    if wide:
        rows = _csv(head.decode(wide, "ignore").removeprefix("\ufeff"), wide, is_whole=is_whole)
        wide_guess = rows or FormatGuess("lines", {"encoding": wide})
        return replace(wide_guess, evidence=(*wide_guess.evidence, f"it is in {wide}, {evidence}"))
    text, encoding = _decoded(head)
    if "\0" in text:
        raise DagflowError(
            f"it is binary: a zero byte at offset {head.index(0):,}",
            hint="formats for binary records are fixed, length_prefixed and whole_file; write the app yourself",
        )
    lines = text.splitlines()
    if not is_whole and len(lines) > 1:
        lines = lines[:-1]
    lines = lines[:_MOST_LINES]
    found = (
        _json(lines)
        or _log(lines)
        or _xml(text)
        or _document(text)
        or _csv(text, encoding, is_whole=is_whole)
        or _paragraphs(text, is_whole=is_whole)
        or _fixed(text, lines, encoding)
    )
    return found or FormatGuess("lines", {}, (f"{len(lines):,} lines without another structure", *uneven(lines)))


def _decoded(head: bytes) -> tuple[str, str]:
    for cut in range(4):
        # The last character may be cut.
        try:
            return head[: len(head) - cut].decode("utf-8-sig"), "utf-8"
        except UnicodeDecodeError:
            continue
    is_windows = any(0x80 <= byte < 0xA0 for byte in head)
    encoding = "cp1252" if is_windows else "latin-1"
    return head.decode(encoding, "replace"), encoding


def _json(lines: list[str]) -> FormatGuess | None:
    objects = []
    filled = [line for line in lines if line.strip()]
    for line in filled:
        with suppress(ValueError, RecursionError):
            objects.append(json.loads(line))
    objects = [value for value in objects if isinstance(value, dict)]
    others = len(filled) - len(objects)
    # One line may be wrong among few.
    if others >= len(objects) or (others > 1 and len(objects) < NEARLY_ALL * len(filled)):
        return None
    if len(filled) == 1 and max((size for _, size in _lists(filled[0], 0, "$")), default=0) >= _MANY:
        return None  # a document
    members = list(dict.fromkeys(name for each in objects for name in each))
    all_are = f"each of {len(objects):,} lines is a JSON object"
    some_are = f"{len(objects):,} of {len(filled):,} lines are JSON objects, and the others are refused"
    evidence = (some_are if others else all_are, f"members: {', '.join(members[:12])}")
    return FormatGuess("json_lines", {}, evidence, infers=True)


def _xml(text: str) -> FormatGuess | None:
    if not text.lstrip().startswith("<"):
        return None
    depth, counts = 0, Counter[str]()
    for found in _TAG.finditer(text):
        is_end, name, is_empty = found.groups()
        depth -= bool(is_end)
        if depth == 1 and not is_end:
            counts[name] += 1
        depth += not (is_end or is_empty)
    ((tag, count),) = counts.most_common(1) or [("", 0)]
    if count < 2:
        return FormatGuess("whole_file", _WITH_PATH, ("an XML document without elements that repeat",))
    return FormatGuess("xml", {"tag": tag}, (f"{count:,} elements <{tag}> below the outermost one",), infers=True)


def _document(text: str) -> FormatGuess | None:
    """The format of a JSON value over several lines; None where the text is none.

    Its records are the members of its one list of objects; otherwise it is one record.
    """
    start = text.lstrip()[:1]
    if not start or start not in "[{" or not re.match(r"[\[{]\s*([\[{\"\]}\d]|true|false|null|-)", text.lstrip()):
        return None
    found = dict(_lists(text, len(text) - len(text.lstrip()), "$"))
    if len(found) != 1:
        lists = f", which has several lists of objects: {', '.join(found)}" if found else ""
        return FormatGuess(
            "whole_file", _WITH_PATH, (f"a JSON document over several lines, which is one record{lists}",)
        )
    ((records, count),) = found.items()
    options = {} if records == "$[*]" else {"records": records}
    return FormatGuess("json", options, (f"{count:,} objects or more in the list {records}",), infers=True)


_JSON = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")
_MOST_LEVELS = 8
_MANY = 10
"""Objects in a list that make the one line of a file a document."""


def _lists(text: str, start: int, path: str) -> Iterator[tuple[str, int]]:
    """The lists of objects in a value, which may be cut, by where they are in its objects; and how many they have."""
    opening = text[start : start + 1]
    if opening == "[":
        items = list(itertools.islice(_items(text, start, is_object=False), _MOST_LINES))
        if items and all(text[place] == "{" for _, place in items):
            yield f"{path}[*]", len(items)
    elif opening == "{" and path.count(".") < _MOST_LEVELS:
        for name, place in itertools.islice(_items(text, start, is_object=True), _MOST_LINES):
            if name and not set(name) & set(".[]"):
                yield from _lists(text, place, f"{path}.{name}")


def _items(text: str, start: int, *, is_object: bool) -> Iterator[tuple[str, int]]:
    """The names of the items of an array or object, as far as it goes, and where their values begin."""
    mark = ","
    with suppress(ValueError, RecursionError, IndexError):
        while mark == ",":
            place, name = _behind_blanks(text, start + 1), ""
            if is_object:
                name, place = _JSON.raw_decode(text, place)
                place = _behind_blanks(text, _behind_blanks(text, place) + 1)
            if text[place] not in "]}":
                yield name, place
            start = _behind_blanks(text, _JSON.raw_decode(text, place)[1])
            mark = text[start]


def _behind_blanks(text: str, start: int) -> int:
    found = _BLANKS.match(text, start)
    return found.end() if found else start


def _log(lines: list[str]) -> FormatGuess | None:
    for pattern in _STAMPS if lines else ():
        stamp = re.compile(pattern + _BEHIND_STAMP)
        stamped = sum(bool(stamp.match(line)) for line in lines) if stamp.match(lines[0]) else 0
        if stamped < 2:
            continue
        starts = [number for number, line in enumerate(lines) if stamp.match(line)]
        records = ["\n".join(lines[start:end]) for start, end in itertools.pairwise([*starts, len(lines)])]
        if (log := log_columns(records)) is not None:
            kind, expression, columns = log
            options = {"pattern": pattern, "regex": expression}
            return FormatGuess("regex", options, (f"{len(records):,} records of {kind}",), columns)
        if stamped == len(lines):
            return FormatGuess("lines", {}, (f"each of {stamped:,} lines begins with a time",))
        evidence = f"{stamped:,} of {len(lines):,} lines begin with a time, and the others continue them"
        return FormatGuess("regex", {"pattern": pattern}, (evidence,))
    return None


def _paragraphs(text: str, *, is_whole: bool) -> FormatGuess | None:
    """Blocks of "Name: value" lines between blank lines, as of mails and package lists, and their fields as columns."""
    lines = text.splitlines()[:_MOST_LINES]
    filled = [line for line in lines if line.strip() and not line[0].isspace()]
    named = sum(bool(_FIELD.match(line)) for line in filled)
    blanks = sum(not line.strip() for line in lines)
    if not filled or not blanks or named < 0.9 * len(filled):
        return None
    evidence = (f"{named:,} lines such as {filled[0][:30]!r}, and {blanks:,} blank ones",)
    paragraphs = re.split(r"\n(?:[^\S\n]*\n)+", text.strip())
    values: dict[str, list[str]] = {}
    # The last one may be cut.
    for paragraph in paragraphs if is_whole else paragraphs[:-1]:
        fields = [line.partition(":") for line in re.split(r"\n(?![ \t])", paragraph)]
        names = [name for name, _, _ in fields]
        if len(set(names)) < len(names) or not all(colon and name.strip() for name, colon, _ in fields):
            return FormatGuess("paragraphs", {}, evidence)
        for name, _, value in fields:
            values.setdefault(name, []).append(value.strip())
    columns = tuple(guess_column(name, given) for name, given in values.items())
    # A word that stands for no value in csv is refused here.
    return FormatGuess("paragraphs", {}, evidence, tuple(_without_words(each) for each in columns))


def _without_words(column: ColumnGuess) -> ColumnGuess:
    return column.as_text(f"{column.null_words[0]!r} is no value of {column.type}") if column.null_words else column


def _fixed(text: str, lines: Sequence[str], encoding: str) -> FormatGuess | None:
    """Records of one length with several fields; None where the text has none."""
    length = line_length(text, encoding)
    columns = fixed_columns(lines) if length and len({*map(len, lines)}) == 1 else []
    if not columns:
        return None
    # The last line may lack its end.
    options: dict[str, Any] = {"length": length, "tail": "keep"}
    options |= {"encoding": encoding} if encoding != "utf-8" else {}
    evidence = f"{len(lines):,} lines of {length} bytes with {len(columns)} fields"
    return FormatGuess("fixed", options, (evidence,), tuple(map(_without_words, columns)))


DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_NAME = re.compile(r"[^\W\d][\w .()/%#°-]{0,60}")
_SEPARATOR = re.compile(rf'"?sep=([{re.escape("".join(DELIMITERS))}])"?', re.IGNORECASE)
"""The line that names the delimiter for Excel; it is no row."""

_VALUE = re.compile(r"\s*([+-]?[\d.,]+%?|0x[\da-f]+|\d{4}-\d\d-\d\d.*|true|false)\s*", re.IGNORECASE)


def _csv(text: str, encoding: str, *, is_whole: bool) -> FormatGuess | None:
    """Rows of fields: their delimiter, quoting, header, and the types of columns; None where the text has no rows."""
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
    columns = tuple(guess_column(name, [row[index] for row in body_rows]) for index, name in enumerate(names))
    evidence.append("the first row names the columns" if has_header else "the first row is no header")
    evidence += best.evidence
    if named is not None:
        evidence.append("the first line names the delimiter for Excel")
    if skipped > first:
        evidence.append(f"{count(skipped - first, 'comment line')} before the header")
    if best.titles:
        evidence.append(f"{count(best.titles, 'line')} of another form before the header")
    skipped += best.titles
    options: dict[str, Any] = {} if delimiter == "," else {"delimiter": delimiter}
    options |= best.options
    if skipped:
        options["skip_header"] = skipped
    if not has_header:
        options["header"] = False
    if encoding != "utf-8":
        options["encoding"] = encoding
        evidence.append("it is not in UTF-8")
    if words := sorted({word for column in columns for word in column.null_words}):
        options["null_values"] = ["", *words]
    return FormatGuess("csv", options, tuple(evidence), columns)


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


@frozen
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
        return replace(single, options={"quote": "'"}, evidence=("fields are in single quotes",))
    has_escapes = strict is None and f'{_ESCAPE}"' in text
    if has_escapes and (escaped := rows(strict=True, escapechar=_ESCAPE)) is not None:
        evidence = "quotes within quotes have a backslash before them"
        return replace(escaped, options={"escape": _ESCAPE}, evidence=(evidence,))
    plain = rows(quoting=csv.QUOTE_NONE)
    kept = rows()
    if plain is not None and _is_plain(plain, strict, kept):
        evidence = "quotes are plain text: each line has as many fields without them"
        return replace(plain, options={"quote": "none"}, evidence=(evidence,))
    if strict is not None:
        return strict
    if kept is None:
        return None
    lines = text.splitlines() if is_whole else text.splitlines()[:-1]
    alone = _even([row for line in lines for row in _read(line, delimiter, is_whole=True)], delimiter)
    if alone is not None and alone.rows == kept.rows:
        evidence = "text follows quotes that close fields, and belongs to these fields, as in Excel"
        return replace(kept, options={"stray_quotes": "keep"}, evidence=(evidence,))
    evidence = "text follows quotes that close fields, in rows that are refused for it"
    return replace(kept, evidence=(evidence,))


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
