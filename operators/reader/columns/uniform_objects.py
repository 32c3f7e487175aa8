"""Reads JSON objects that are written alike: the text between the values is the same in many lines.

Programs write most objects so. The text between the values is compared, a few bytes of all lines at a time, and not
parsed again; the values are cut out and cast. That takes about seven tenths of the time of Arrow's parser, which reads
byte by byte. Lines that are read are certain to be JSON, and have the values that a parser finds; other lines are left
to a parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.reader.columns.decimal_texts import decimals_of
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import Positions, contains

Mask = npt.NDArray[np.bool_]

_LAYOUTS = 8
"""Layouts that are tried for one batch. Objects in which many members are optional have more, each in few lines."""

_QUOTE, _BACKSLASH, _SPACE, _MINUS, _ZERO, _NINE = b'"\\ -09'

_MEMBER = re.compile(rb' *"([^"]*)" *: *(?:"([^"]*)"|([^ "{}\[\],:]+)) *([,}])')
"""A member without arrays, objects and backslashes, and what follows it."""

_POINT_ALONE = re.compile(rb"\.[eE]")
"""Characters that casts accept in numbers, and JSON does not."""


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """The text of an object around its values.

    Attributes:
        gaps: The bytes before, between and behind the values; one more than there are values. Quotes belong to them.
        names: The member of each value.
        in_quotes: Whether each value stands in quotes.
    """

    gaps: tuple[bytes, ...]
    names: tuple[str, ...]
    in_quotes: tuple[bool, ...]

    @classmethod
    def of(cls, line: bytes) -> ObjectLayout | None:
        """The layout of a line in UTF-8 without backslashes and control characters.

        None if the line is no object, has no members or one twice, or has a member that is an array or an object.
        """
        gaps: list[bytes] = []
        names: list[str] = []
        in_quotes: list[bool] = []
        cut, position, follows = 0, int(line.startswith(b"{")), b","
        while position and follows == b"," and (member := _MEMBER.match(line, position)):
            group = 3 if member[2] is None else 2
            gaps.append(line[cut : member.start(group)])
            names.append(member[1].decode())
            in_quotes.append(group == 2)
            cut, position, follows = member.end(group), member.end(), member[4]
        if follows != b"}" or line[position:].strip(b" ") or len(set(names)) < len(names):
            return None
        return cls((*gaps, line[cut:]), tuple(names), tuple(in_quotes))


class _Lines:
    """The lines of a batch, and the positions of their quotes; all positions are relative to the first line's."""

    def __init__(self, batch: RecordBatch) -> None:
        framed = batch.framed()
        borders = borders_of(framed).astype(np.int64)
        self.data = np.frombuffer(framed.buffers()[2], np.uint8)[borders[0] : borders[-1]]
        borders -= borders[0]
        self.starts, self.stops = borders[:-1], borders[1:] - batch.delimiters.lengths()
        self.quotes = np.flatnonzero(self.data == _QUOTE)
        self.first_quotes = np.searchsorted(self.quotes, self.starts)
        self.quote_counts = np.diff(self.first_quotes, append=len(self.quotes))
        self.is_plain = np.ones(len(batch), np.bool_)
        if contains(self.data, _BACKSLASH):
            self._except(np.flatnonzero(self.data == _BACKSLASH))
        is_control = self.data < _SPACE
        if np.count_nonzero(is_control) != (borders[1:] - self.stops).sum():
            self._except(np.flatnonzero(is_control))

    def line(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.stops[index]].tobytes()

    def _except(self, positions: Positions) -> None:
        """Leave the lines at positions, but for those where it is the delimiter that is there."""
        lines = np.searchsorted(self.starts, positions, "right") - 1
        self.is_plain[lines[positions < self.stops[lines]]] = False

    def have(self, expected: bytes, positions: Positions) -> Mask:
        """Whether given bytes are at positions; as many bytes must exist at each position."""
        size = len(expected)
        # An item for each position, which overlap; a take would copy all of them first.
        windows = np.ndarray((len(self.data) - size + 1,), f"S{size}", self.data, strides=(1,))
        found = windows[positions]
        if found.tobytes() == expected * len(positions):
            return np.ones(len(positions), np.bool_)
        differs: Mask = found != expected
        return ~differs

    def with_quotes_of(self, lines: Positions, layout: ObjectLayout) -> Positions:
        """The lines among some that have as many quotes as a layout."""
        has_as_many: Mask = self.quote_counts[lines] == sum(gap.count(b'"') for gap in layout.gaps)
        return lines[has_as_many]

    def select(self, lines: Positions, layout: ObjectLayout) -> tuple[Positions, list[tuple[Positions, Positions]]]:
        """The lines among some that have a layout, and where the values of each member begin and end in them.

        The lines have as many quotes as the layout.
        """
        gaps = self._gaps(lines, layout)
        fits = gaps[-1] + len(layout.gaps[-1]) == self.stops[lines]
        for at, before, gap, is_text in zip(gaps[1:], gaps, layout.gaps, layout.in_quotes, strict=False):
            # A value without quotes has at least one byte.
            fits &= at - before >= len(gap) + (not is_text)
        # Before that it is not certain that bytes of a line are compared.
        lines, gaps = lines[fits], [at[fits] for at in gaps]
        fits = np.ones(len(lines), np.bool_)
        for at, gap in zip(gaps, layout.gaps, strict=True):
            fits &= self.have(gap, at)
        if not fits.all():
            lines, gaps = lines[fits], [at[fits] for at in gaps]
        stops = gaps[1:]
        return lines, [(at + len(gap), stop) for at, gap, stop in zip(gaps, layout.gaps, stops, strict=False)]

    def _gaps(self, lines: Positions, layout: ObjectLayout) -> list[Positions]:
        """Where the bytes around values are if the lines have the layout: each at its first quote."""
        counts = [gap.count(b'"') for gap in layout.gaps]
        # The quotes of each line side by side, copied all at once.
        rows = np.ndarray((len(self.quotes) - sum(counts) + 1,), f"V{8 * sum(counts)}", self.quotes, strides=(8,))
        quotes = rows[self.first_quotes[lines]].view(np.int64).reshape(len(lines), -1)
        gaps = [self.starts[lines]]
        quote = counts[0]
        for gap, count in zip(layout.gaps[1:], counts[1:], strict=True):
            # Only the last gap may have none: it closes an object behind a value without quotes.
            gaps.append(quotes[:, quote] - gap.index(b'"') if count else self.stops[lines] - len(gap))
            quote += count
        return gaps


class _Column:
    """The values of one member: where each line has its own.

    A member that is left out has no kind; its values only must be JSON.
    """

    def __init__(self, lines: _Lines, kind: pa.DataType | None) -> None:
        self._lines = lines
        self._kind = kind
        self._takes_text = kind is None or pa.types.is_string(kind)
        self._takes_words = kind is None or pa.types.is_boolean(kind)
        self._takes_numbers = kind is None or is_number(kind)
        self._starts, self._stops = lines.starts.copy(), lines.starts.copy()
        self._has_value = np.zeros(len(lines.starts), np.bool_)

    def take(self, rows: Positions, starts: Positions, stops: Positions, *, in_quotes: bool) -> Mask:
        """Take in the values of some lines; return which of them are of the type, or null. The others are not read."""
        if in_quotes:
            if self._takes_text and self._kind is not None:
                self._put(rows, starts, stops)
            return np.full(len(rows), self._takes_text)
        first = self._lines.data.take(starts)
        is_right = self._are(b"null", first, starts, stops)
        if self._takes_words:
            are_words = self._are(b"true", first, starts, stops) | self._are(b"false", first, starts, stops)
            is_right |= are_words
            if self._kind is not None:
                self._put(rows[are_words], starts[are_words], stops[are_words])
        if self._takes_numbers:
            are_numbers = self._are_numbers(first, starts, stops)
            is_right |= are_numbers
            self._put(rows[are_numbers], starts[are_numbers], stops[are_numbers])
        return is_right

    def _put(self, rows: Positions, starts: Positions, stops: Positions) -> None:
        self._starts[rows], self._stops[rows], self._has_value[rows] = starts, stops, True

    def array(self) -> pa.Array:
        """The values of all lines; null for those that have none.

        Raises:
            pyarrow.ArrowInvalid: A value is no number, does not fit into the type, or is not whole.
        """
        count = len(self._starts)
        if self._kind is not None and self._takes_words:
            # An empty line at the end of the data has no byte to read.
            first = self._lines.data.take(self._starts, mode="clip")
            return pa.array(first == ord("t"), mask=~self._has_value)
        if not (self._takes_text or self._takes_numbers):
            return pa.nulls(count, self._kind)
        _, ends, data = pieces_of(pa.py_buffer(self._lines.data), self._starts, self._stops).buffers()
        validity = None if self._has_value.all() else pa.array(self._has_value).buffers()[1]
        texts = pa.StringArray.from_buffers(count, ends, data, validity)
        if not self._takes_numbers:
            return texts
        kind = self._kind or pa.float64()
        if not pa.types.is_integer(kind) and _POINT_ALONE.search(data or b""):
            raise pa.ArrowInvalid("No digit follows a point")
        return decimals_of(texts, kind) if pa.types.is_decimal(kind) else texts.cast(kind)

    def _are(self, word: bytes, first: npt.NDArray[np.uint8], starts: Positions, stops: Positions) -> Mask:
        """Which values are a word; the first byte excludes most others."""
        are_word: Mask = first == word[0]
        if are_word.any():
            are_word &= stops - starts == len(word)
            are_word[are_word] = self._lines.have(word, starts[are_word])
        return are_word

    def _are_numbers(self, first: npt.NDArray[np.uint8], starts: Positions, stops: Positions) -> Mask:
        """Which values begin and end as the numbers of JSON do; casts check the rest."""
        data = self._lines.data
        last = data.take(stops - 1)
        is_right: Mask = (last >= _ZERO) & (last <= _NINE)
        is_minus = first == _MINUS
        if is_minus.any():
            starts = starts + is_minus
            first = data.take(np.minimum(starts, stops - 1))
        is_right &= (first >= _ZERO) & (first <= _NINE)
        zeros = np.flatnonzero((first == _ZERO) & (stops - starts > 1))
        if len(zeros):
            is_right[zeros] &= np.isin(data.take(starts[zeros] + 1), np.frombuffer(b".eE", np.uint8))
        return is_right


def read_uniform(batch: RecordBatch, schema: pa.Schema, *, takes_others: bool) -> FlatObjects | None:
    """Read the lines that are written alike, as ReadObjects says."""
    if len(batch) < LEAST_LINES:
        return None
    # Whether objects are written otherwise is found out before anything is looked for in all lines.
    samples = [batch.framed()[at].as_py().rstrip(b"\r\n") for at in (0, len(batch) // 2, len(batch) - 1)]
    if not any(map(ObjectLayout.of, samples)):
        return None
    lines = _Lines(batch)
    columns = {field.name: _Column(lines, field.type) for field in schema}
    is_read = np.zeros(len(batch), np.bool_)
    is_left = lines.is_plain
    for _ in range(_LAYOUTS):
        left = np.flatnonzero(is_left)
        if not len(left):
            break
        is_left[left[0]] = False
        layout = ObjectLayout.of(lines.line(left[0]))
        if layout is None or (not takes_others and set(layout.names) - set(schema.names)):
            continue
        left = lines.with_quotes_of(left, layout)
        if len(left) < LEAST_LINES:
            is_left[left] = False
            continue
        rows, spans = lines.select(left, layout)
        is_right = np.ones(len(rows), np.bool_)
        for name, (starts, stops), in_quotes in zip(layout.names, spans, layout.in_quotes, strict=True):
            if name not in columns:
                columns[name] = _Column(lines, None)
            is_right &= columns[name].take(rows, starts, stops, in_quotes=in_quotes)
        is_left[rows] = False
        is_read[rows[is_right]] = True
    if 2 * np.count_nonzero(is_read) < len(batch):
        return None
    # Also for members that are left out, whose numbers may be invalid.
    arrays = {name: column.array() for name, column in columns.items()}
    return FlatObjects.of(arrays, schema, is_read)


LEAST_LINES = 256
"""Number of lines that a batch, and each layout in uniform_objects, must have: a parser is faster for fewer."""


@dataclass(frozen=True, slots=True)
class FlatObjects:
    """The lines of a batch that were read."""

    table: pa.Table
    rows: Positions  # the lines of the table, ascending
    left: Positions  # the others

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], schema: pa.Schema, is_read: npt.NDArray[np.bool_]) -> Self:
        """Select the lines that were read.

        The columns are those of all lines, also some that are not in the schema.
        """
        table = pa.table([columns[name] for name in schema.names], schema)
        rows, left = np.flatnonzero(is_read), np.flatnonzero(~is_read)
        return cls(table.take(pa.array(rows)) if len(left) else table, rows, left)


class ReadObjects(Protocol):
    """Reads lines of a batch that are flat objects, as far as it can; lines that it reads are certain to be JSON."""

    def __call__(self, batch: RecordBatch, schema: pa.Schema, *, takes_others: bool) -> FlatObjects | None:
        """Read lines.

        Args:
            batch: Lines in valid UTF-8, at least one, with ends of lines as delimiters.
            schema: The columns. Lines in which those of other types than text, booleans and numbers are not null are
                left.
            takes_others: Whether objects may have members that are no columns; they are left out.

        Returns:
            None if there are few lines, or fewer than half were read.

        Raises:
            pyarrow.ArrowInvalid: A value is no number, does not fit into its type, or is not whole.
        """


def is_number(kind: pa.DataType) -> bool:
    """Whether JSON writes values of a type as numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
