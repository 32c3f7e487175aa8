"""Pairs of key and value in texts, as in logfmt."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagflow.api.properties import Columns
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, bytes_of
from operators.reader.scanning.search import NONE, Positions, contains, escaped_positions, occurrences, positions_of


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

    def why_not(self, texts: pa.StringArray) -> list[str]:
        """Why each of some texts has no values."""
        reasons = (why_refused(text, self.separator, self.assignment) for text in texts.to_pylist())
        return [reason or "none of the keys is there" for reason in reasons]

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


MARK = r"\xff"
"""An expression for the byte that replaces the bytes of separators."""

ESCAPE = "\\"
_QUOTE = ord('"')
_ESCAPED = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


def with_marks(texts: pa.StringArray, separator: str, assignment: str) -> tuple[pa.BinaryArray | None, Positions]:
    r"""Texts in which separators outside of quotes are replaced, byte by byte, by \xff, which is in no text.

    Returns:
        The texts, or None if no separator is inside of quotes; and the rows with a quote that does not end a pair.
    """
    borders = borders_of(texts).astype(np.int64)
    data = bytes_of(texts)
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
        end = text.find(separator, position)
        end = len(text) if end < 0 else end
        assigned = text.find(assignment, position, end)
        start = assigned + len(assignment)
        if assigned >= 0 and text.startswith('"', start):
            value = quoted.match(text, start)
            if value is None:
                return f"the quote at byte {len(text[:start].encode())} is never closed"
            end = value.end()
            if not text.startswith(separator, end) and end < len(text):
                opening, closing = (len(text[:at].encode()) for at in (start, end - 1))
                opens = f"the value that the quote at byte {opening} opens"
                return f"the quote at byte {closing} closes {opens}, and text follows it"
        position = end + len(separator)
    return ""


def _bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)
