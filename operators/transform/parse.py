"""Make columns of raw records, or of a column of text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Columns
from dagflow.api.records import LINE_FEED, RECORD, Origin, RecordBatch
from dagflow.api.regular_expressions import Pattern, closed
from dagflow.storage.columns import borders_of
from dagflow.suggestions import did_you_mean
from operators.reader.columns.types import ColumnTypes, refuse_optional
from operators.reader.columns.typing import RowRejects, in_records, typed, valid_text
from operators.reader.formats.base import Parsed
from operators.reader.formats.json_lines import JsonLines
from operators.reader.scanning.search import NONE, Positions, contains, escaped_positions, occurrences, positions_of
from operators.transform.column_operator import ColumnOperator


class Split(BaseModel):
    """Fields between delimiters."""

    model_config = ConfigDict(extra="forbid")

    delimiter: Annotated[str, Field(min_length=1, description="separator of fields")]
    names: Annotated[Columns, Field(description="the name of each field, in order")]


class KeyValue(BaseModel):
    """Pairs of key and value, in any order; a value with the separator in it stands in double quotes, as in logfmt."""

    model_config = ConfigDict(extra="forbid")

    keys: Annotated[Columns, Field(description="the keys that become columns")]
    separator: Annotated[str, Field(min_length=1, max_length=1, description="separator of pairs")] = " "
    assignment: Annotated[str, Field(min_length=1, description="separator of key and value")] = "="

    @model_validator(mode="after")
    def _check(self) -> KeyValue:
        if self.separator in self.assignment:
            raise ValueError("separator and assignment must be different")
        return self

    def values(self, texts: pa.StringArray) -> list[pa.StringArray]:
        """The values of each key; null where a text does not have the key outside of quotes, or has a stray quote."""
        marked, refused = with_marks(texts, self.separator, self.assignment)
        columns = [self._values(key, texts, marked) for key in self.keys]
        if not len(refused):
            return columns
        is_refused = np.zeros(len(texts), bool)
        is_refused[refused] = True
        return [pc.if_else(pa.array(is_refused), pa.scalar(None, pa.string()), column) for column in columns]

    def why_not(self, text: str) -> str:
        return why_refused(text, self.separator, self.assignment) or "none of the keys is there"

    def _values(self, key: str, texts: pa.StringArray, marked: pa.BinaryArray | None) -> pa.StringArray:
        width = len(self.separator.encode())
        if marked is None:
            groups = pc.extract_regex(texts, self._pattern(key, re.escape(self.separator)))
        else:
            groups = pc.extract_regex(marked, self._pattern(key, MARK, width))
        quoted, plain = pc.struct_field(groups, "quoted"), pc.struct_field(groups, "plain")
        if marked is not None:
            # Values of keys that contain the assignment themselves hold marks.
            quoted, plain = (
                pc.replace_substring(each, b"\xff" * width, self.separator).cast(pa.string())
                for each in (quoted, plain)
            )
        values = pc.if_else(pc.equal(pc.binary_length(quoted), 0), plain, quoted)
        if not has_escapes(self.separator, self.assignment):
            return values
        escaped = pc.fill_null(pc.match_substring(quoted, ESCAPE), False)
        meant = [unescaped(value) for value in quoted.filter(escaped).to_pylist()]
        return pc.replace_with_mask(values, escaped, pa.array(meant, pa.string())) if meant else values

    def _pattern(self, key: str, mark: str, width: int = 1) -> str:
        """An RE2 expression that finds the value of a key, in texts with marks between pairs."""
        between = mark * width
        behind = between.join(map(re.escape, f"{key}{self.assignment}".split(self.separator)))
        inside = r'(?:[^"\\]|\\.)*' if has_escapes(self.separator, self.assignment) else '[^"]*'
        return f'(?s)(?:^|{between}){behind}(?:"(?P<quoted>{inside})"|(?P<plain>[^{mark}]*))(?:{between}|$)'


class Parse(ColumnOperator[None]):
    """Makes columns of raw records, by one of four ways: regex, split, key_value or json.

    A record that does not match, or whose fields are not of their types, is refused. Empty fields are null if the type
    is not text.

    Guarantee: records keep their order and origin; each one leaves at `output` or at `errors`.
    """

    regex: Annotated[
        Pattern | None,
        Field(description="an RE2 expression that matches a whole record, whose named groups become columns"),
    ] = None
    split: Annotated[Split | None, Field(description="fields between delimiters")] = None
    key_value: Annotated[KeyValue | None, Field(description="pairs of key and value, such as a=1 b=2")] = None
    json: Annotated[bool, Field(description="a JSON object, whose members are those of columns")] = False
    columns: Annotated[
        ColumnTypes,
        Field(
            description="a type for each column that is not text, such as int64 or {type: timestamp, format: "
            "'%d/%b/%Y'}"
        ),
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    column: Annotated[
        str | None, Field(description="for records with columns: the text column to parse; the others stay")
    ] = None
    unmatched: Annotated[
        str, Field(pattern="^(reject|drop)$", description="what happens to records that regex does not match")
    ] = "reject"

    def check_properties(self) -> None:
        ways = {"regex": self.regex, "split": self.split, "key_value": self.key_value, "json": self.json}
        given = [name for name, value in ways.items() if value]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(ways)}; got {', '.join(given) or 'none'}")
        if self.unmatched == "drop" and self.regex is None:
            raise ValueError("unmatched: only regex can leave records unmatched")
        refuse_optional(self.columns)
        if self.json:
            if not self.columns:
                raise ValueError("json needs columns, as columns: {id: int64, name: string}")
            self._names = list(self.columns)
            return
        if self.regex is not None:
            self._names = _groups_of(self.regex)
        else:
            self._names = self.split.names if self.split is not None else self.key_value.keys if self.key_value else []
        twice = [name for name in self._names if self._names.count(name) > 1]
        if twice:
            raise ValueError(f"'{twice[0]}' is there twice")
        for name, kind in self.columns.items():
            if kind.is_nested:
                raise ValueError(f"columns: '{name}' is {kind.name}, which json alone has")
            if name not in self._names:
                raise ValueError(f"columns: there is no '{name}'{did_you_mean(name, self._names)}")

    def compute(self, batch: RecordBatch) -> None:
        rejects = RowRejects()
        parsed = self._parsed(valid_text(self._texts(batch), rejects), rejects)
        self.refuse(batch, dict(sorted(rejects.reasons.items())))
        if parsed.columns is None:
            self.output.emit(batch.take(np.empty(0, np.int64)).with_columns(self._no_rows(batch)))
            return
        kept = batch if len(parsed.raw) == len(batch) else batch.take(parsed.raw.offsets())
        self.output.emit(kept.with_columns(self._beside(kept, parsed.columns)))

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        parsed = [(name, self.columns[name].arrow if name in self.columns else pa.string()) for name in self._names]
        if self.column is None:
            if not arriving.is_raw:
                raise LookupError(_has_columns(arriving.schema))
            return StreamColumns(pa.schema(parsed))
        self.require_not_raw(arriving)
        schema = arriving.with_names([self.column])
        _require_column(schema, self.column)
        kinds = {field.name: field.type for field in schema if field.name != self.column} | dict(parsed)
        return StreamColumns(pa.schema(list(kinds.items())), arriving.others)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The parsed column; other columns are passed on."""
        if port == "output" and column in self._names:
            return [RECORD if self.column is None else self.column]
        return super().columns_used(port, column, arriving)

    def plan(self, schema: pa.Schema) -> None:
        """Nothing: the plan does not depend on the arriving columns."""

    def _texts(self, batch: RecordBatch) -> RecordBatch:
        """The texts to parse, as raw records whose offsets are their positions."""
        if self.column is None:
            if not batch.is_raw:
                raise LookupError(_has_columns(batch.to_arrow().schema))
            record = batch.record
        else:
            columns = self.columns_of(batch)
            _require_column(columns.schema, self.column)
            record = pc.fill_null(pc.cast(columns.column(self.column), pa.binary()), b"")
        origin = Origin((None,), np.arange(len(batch)))
        return RecordBatch(pa.RecordBatch.from_arrays([record], [RECORD]), delimiters=LINE_FEED, origin=origin)

    def _parsed(self, texts: RecordBatch, rejects: RowRejects) -> Parsed:
        if not len(texts):
            return Parsed(texts)
        if self.json:
            return JsonLines(columns=self.columns).parse(texts, rejects)
        values = pc.cast(texts.record, pa.string())
        matches, columns = self._fields(values)
        if self.unmatched == "reject":
            unmatched = texts.take(np.flatnonzero(~matches))
            reasons = [*map(self._why_not, pc.cast(unmatched.record, pa.string()).to_pylist())]
            places = unmatched.offsets().tolist()
            shown = in_records(dict(enumerate(reasons)), unmatched)
            rejects.reasons.update(zip(places, shown.values(), strict=True))
        mask = pa.array(matches)
        kept = texts.filter(mask)
        if not len(kept):
            return Parsed(kept)
        rows = pa.RecordBatch.from_arrays([column.filter(mask) for column in columns], self._names)
        return typed(Parsed(kept, rows), self.columns, ("",), rejects)

    def _why_not(self, text: str) -> str:
        if self.split is not None:
            found = text.count(self.split.delimiter) + 1
            return f"the record has {found} fields; there are {len(self._names)} names"
        return self.key_value.why_not(text) if self.key_value is not None else "the record does not match regex"

    def _fields(self, values: Any) -> tuple[Any, list[Any]]:
        if self.regex is not None:
            groups = pc.extract_regex(values, _whole(self.regex))
            return _bools(pc.is_valid(groups)), [pc.struct_field(groups, name) for name in self._names]
        if self.split is not None:
            lists = pc.split_pattern(values, self.split.delimiter)
            matches = _bools(pc.equal(pc.list_value_length(lists), len(self._names)))
            starts = np.asarray(lists.offsets[:-1])
            positions = [pa.array(starts + index, mask=~matches) for index in range(len(self._names))]
            return matches, [lists.values.take(each) for each in positions]
        found = self.key_value.values(values) if self.key_value is not None else []
        return np.any([_bools(pc.is_valid(column)) for column in found], axis=0), found

    def _beside(self, batch: RecordBatch, columns: pa.RecordBatch) -> pa.RecordBatch:
        """The new columns, after those of the records that they do not replace."""
        if self.column is None:
            return columns
        kept = self.columns_of(batch)
        arrays = {name: kept.column(name) for name in kept.schema.names if name != self.column}
        arrays |= {name: columns.column(name) for name in columns.schema.names}
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _no_rows(self, batch: RecordBatch) -> pa.RecordBatch:
        kinds = [self.columns[name].arrow if name in self.columns else pa.string() for name in self._names]
        columns = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], self._names)
        return self._beside(batch.take(np.empty(0, np.int64)), columns)


def _has_columns(schema: pa.Schema) -> str:
    return f"the records have columns already; name the one to be parsed as column: {', '.join(schema.names)}"


def _require_column(schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise LookupError(f"column: there is no column '{name}'{did_you_mean(name, schema.names)}")


def _bools(mask: Any) -> Any:
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _whole(regex: str) -> str:
    return f"^(?:{closed(regex)})$"


def _groups_of(regex: str) -> list[str]:
    try:
        found = pc.extract_regex(pa.array([""]), _whole(regex))
    except pa.ArrowInvalid as error:
        raise ValueError(f"regex {regex!r} is not a valid RE2 expression with named groups: {error}") from None
    names = [field.name for field in found.type]
    if not names:
        raise ValueError(f"regex {regex!r} has no named group, as (?P<host>[^ ]+)")
    return names


MARK = r"\xff"
"""An expression for the byte that replaces the bytes of separators."""

ESCAPE = "\\"
_QUOTE = ord('"')
_ESCAPED = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


def with_marks(texts: pa.StringArray, separator: str, assignment: str) -> tuple[pa.BinaryArray | None, Positions]:
    r"""Texts in which separators outside of quotes are replaced, byte by byte, by \xff, which is in no text.

    Args:
        texts: Pairs of key and value, without nulls.
        separator: The character between pairs.
        assignment: The text between key and value.

    Returns:
        The texts, or None if no separator is inside of quotes; and the rows with a quote that does not end a pair.
    """
    borders = borders_of(texts).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[borders[0] : borders[-1]]
    borders -= borders[0]
    if not contains(data, _QUOTE):
        return None, NONE
    width = len(separator.encode())
    separators = occurrences(data, _bytes(separator))
    quotes = positions_of(data == _QUOTE)
    if has_escapes(separator, assignment) and contains(data, ord(ESCAPE)):
        quotes = np.setdiff1d(quotes, escaped_positions(data, ord(ESCAPE)), assume_unique=True)
    opened, closed, rows = _quoted_values(data, borders, quotes, separators, width, _bytes(assignment))
    if not len(opened):
        return None, NONE
    ends = borders[rows + 1]
    following = np.append(separators, -1)[np.searchsorted(separators, closed + 1)]
    refused = np.unique(rows[(closed >= ends) | ((closed + 1 != ends) & (closed + 1 != following))])
    closed = np.minimum(closed, ends)
    before = np.searchsorted(opened, separators) - 1
    outside = separators[(before < 0) | (closed[before] <= separators)]
    if len(outside) == len(separators):
        return None, refused
    marked = data.copy()
    for index in range(width):
        marked[outside + index] = 0xFF
    buffers = [None, pa.py_buffer(borders.astype(np.int32)), pa.py_buffer(marked)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(texts), buffers), refused


def _quoted_values(
    data: npt.NDArray[np.uint8],
    borders: Positions,
    quotes: Positions,
    separators: Positions,
    width: int,
    assignment: npt.NDArray[np.uint8],
) -> tuple[Positions, Positions, Positions]:
    """Quoted values: the quotes that open them, the quotes behind these, also in other rows, and their rows."""
    # Most quotes are recognised by the byte before them, which is cheaper than a search.
    numbers = np.flatnonzero(data[quotes - 1] == assignment[-1])
    opening = quotes[numbers]
    rows = np.searchsorted(borders, opening, "right") - 1
    # With an added separator and assignment, so that there is one before and after each quote.
    pairs = np.maximum(np.append(separators, -width)[np.searchsorted(separators, opening) - 1] + width, borders[rows])
    assignments = occurrences(data, assignment)
    first = np.append(assignments, len(data))[np.searchsorted(assignments, pairs)]
    is_value = first + len(assignment) == opening
    numbers, opening, rows = numbers[is_value], opening[is_value], rows[is_value]
    # A quote that closes one value opens no other.
    is_head = (np.diff(numbers, prepend=-2) > 1) | (np.diff(rows, prepend=-1) > 0)
    heads = np.flatnonzero(is_head)
    is_taken = (np.arange(len(numbers)) - heads[np.cumsum(is_head) - 1]) % 2 == 0
    return opening[is_taken], np.append(quotes, len(data))[numbers[is_taken] + 1], rows[is_taken]


def has_escapes(separator: str, assignment: str) -> bool:
    """Whether a backslash makes a quote literal: it does not where it separates something itself."""
    return ESCAPE not in separator + assignment


def unescaped(value: str) -> str:
    """A quoted value with what its escapes stand for; a backslash before any other character stays."""
    return _ESCAPED.sub(_meant, value)


def _meant(escape: re.Match[str]) -> str:
    if not escape[1]:
        return _MEANT.get(escape[2], escape[0])
    units = b"".join(int(unit, 16).to_bytes(2, "little") for unit in escape[1].split("\\u")[1:])
    return units.decode("utf-16-le", "replace")


def why_refused(text: str, separator: str, assignment: str) -> str:
    """Which quote of a text does not end a pair; "" if each one does."""
    quoted = re.compile(r'"(?:[^"\\]|\\.)*"' if has_escapes(separator, assignment) else '"[^"]*"', re.DOTALL)
    position = 0
    while position <= len(text):
        end = text.find(separator, position) if separator in text[position:] else len(text)
        assigned = text.find(assignment, position, end)
        start = assigned + len(assignment)
        if assigned >= 0 and text.startswith('"', start):
            opening = len(text[:start].encode())
            value = quoted.match(text, start)
            if value is None:
                return f"the quote at byte {opening} is never closed"
            end = value.end()
            if not text.startswith(separator, end) and end < len(text):
                closing = len(text[: end - 1].encode())
                opens = f"the value that the quote at byte {opening} opens"
                return f"the quote at byte {closing} closes {opens}, and text follows it"
        position = end + len(separator)
    return ""


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)
