"""Records that are JSON values, and the columns that their members make, whatever lies between them in a file."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from dagflow.errors import MOST_LEVELS
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of
from operators.reader.columns.found_members import FoundMembers
from operators.reader.columns.json_members import (
    JsonMembers,
    are_braced,
    likely_width,
    members_of_type,
    value_of,
    values_of,
    width_of,
)
from operators.reader.columns.types import ColumnTypes, refuse_optional, schema_of
from operators.reader.columns.typing import valid_text, without_refused, without_skipped
from operators.reader.columns.written_values import SAMPLED_BYTES, shapes_of, types_of
from operators.reader.formats.base import ByteAccounting, Inferring, Parsed
from operators.reader.scanning.framing import joined
from operators.reader.scanning.json_structure import JsonPiece
from operators.reader.scanning.search import bits_of, ones_at

MOST_CELLS = 1 << 22
"""Most values of a batch whose columns are the members that its objects have."""

_OPENING, _OTHER = np.uint8(ord("{")), np.uint8(ord("{") ^ ord("["))
_PART_BYTES = 1 << 17

_VALUES = msgspec.json.Decoder(msgspec.Raw)
"""Finds where JSON values end, and refuses text that is none; creates no objects."""


class JsonRecords(Inferring):
    """The common part of the formats whose records are JSON values in UTF-8.

    A record that is no JSON value is refused. With columns records are objects, and are emitted as columns. A member
    that an object lacks is null; members that are not declared are left out.
    """

    columns: Annotated[
        ColumnTypes | Literal["infer", "as_found"] | None,
        Field(
            description="a type for each column, by its name, such as int64 or {type: date32, format: '%d.%m.%Y'}; or "
            "infer: the columns of the first file that has objects, for all files; or as_found: all members, with the "
            "types that most of their values have, for tables whose columns change"
        ),
    ] = None
    max_columns: Annotated[
        Count, Field(ge=1, description="maximum members of an object, with those within others, that make columns")
    ] = 1 << 14
    null_values: Annotated[
        list[str], Field(description="strings that mean null, such as ['NULL', NA]", default_factory=list)
    ]

    def check_properties(self) -> None:
        types = self.columns if isinstance(self.columns, dict) else None
        refuse_optional(types or {})
        self._members = None if types is None else JsonMembers(types, tuple(self.null_values))
        raw = replace(self.traits, columns=StreamColumns.raw())
        self.traits = raw if self.columns is None else self.traits.with_columns(types and schema_of(types))
        self._found = FoundMembers(tuple(self.null_values)) if self.columns == "as_found" else None
        self._proven: tuple[RecordBatch | None, Any] = (None, None)

    def proves(self, batch: RecordBatch) -> bool:
        """Whether all records, which begin with braces, are JSON objects, as far as reading them together shows.

        Then parse() need not look again.
        """
        if len(_shallow(valid_text(batch, ByteAccounting()), ByteAccounting())) < len(batch):
            return False
        table = None if self._members is None else self._members.read_lines(batch)
        is_proven = self._are_objects(batch) if self._members is None else table is not None
        self._proven = (batch, table) if is_proven else (None, None)
        return is_proven

    def narrow(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """A batch, or its halves where it would have too many values: an object lacks what only others have."""
        if self.columns is None or len(batch) < 2 or len(batch) * self._most_members(batch) <= MOST_CELLS:
            yield batch
            return
        middle = len(batch) // 2
        yield from self.narrow(batch.slice(0, middle))
        yield from self.narrow(batch.slice(middle, len(batch) - middle))

    def _most_members(self, batch: RecordBatch) -> int:
        if self._members is not None:
            return sum(members_of_type(kind.arrow) for kind in self._members.types.values())
        # A name with quotes, a colon, a value and a comma are five bytes at least.
        most = batch.content_bytes()[0] // 5
        if len(batch) * most <= MOST_CELLS or len(batch) * (most := likely_width(batch)) <= MOST_CELLS:
            return most
        return width_of(values_of(batch))

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        is_proven, table = batch is self._proven[0], self._proven[1]
        if not is_proven:
            batch, table = _shallow_lines(batch, accounting), None
        if not len(batch):
            return Parsed(batch)
        if self._members is not None:
            table = self._members.read_lines(batch) if table is None else table
            if table is not None:
                return self._members.parse_read(batch, table, accounting)
        batch = self._valid_json(batch, accounting)
        if self.columns is None or not len(batch):
            return Parsed(batch)
        if self._found is not None:
            return self._found.parse(batch, accounting)
        if self._members is None:
            # Outside of an app no pre-scan has decided.
            self.decide(self.decision([batch]))
        return (self._members or JsonMembers({}, (), takes_others=False)).parse(batch, accounting)

    @property
    def needs_decision(self) -> bool:
        return self.columns == "infer"

    def decision(self, batches: Iterable[RecordBatch]) -> dict[str, Any] | None:
        """The columns of the objects at the beginning of a file; None if it has none."""
        objects = list(self._sampled(batches))
        values = list(map(value_of, objects))
        if width_of(values) > self.max_columns:
            # Later objects have members that are no columns, and are refused for that.
            few = bisect_right(range(len(objects)), self.max_columns, key=lambda count: width_of(values[:count])) - 1
            del objects[few:]
        return shapes_of(objects, self.null_values)

    def _sampled(self, batches: Iterable[RecordBatch]) -> Iterator[bytes]:
        end = None
        ignored = ByteAccounting()
        for batch in batches:
            valid = self._valid_json(_shallow_lines(batch, ignored), ignored)
            for offset, record in zip(valid.offsets().tolist(), valid.to_pylist(), strict=True):
                end = offset + SAMPLED_BYTES if end is None else end
                if offset >= end:
                    return
                yield record

    def decide(self, decision: dict[str, Any] | None) -> None:
        if decision is not None and self.needs_decision:
            self._members = JsonMembers(types_of(decision), tuple(self.null_values), takes_others=False)

    def _valid_json(self, batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
        valid = self._valid_values(batch, accounting)
        if not isinstance(self.columns, str) or not len(valid):
            return valid
        reasons: dict[int, str] = {}
        # A name with quotes, a colon, a value and a comma are five bytes at least.
        for row in np.flatnonzero(np.diff(borders_of(valid.framed())) > 5 * self.max_columns).tolist():
            width = width_of(values_of(valid.slice(row, 1)))
            if width > self.max_columns:
                reasons[row] = f"it has {width:,} columns, more than max_columns, {self.max_columns:,}"
        return without_refused(valid, reasons, accounting)

    def _valid_values(self, batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
        if batch is self._proven[0] or self._are_objects(batch):
            return batch
        records = batch.to_pylist()
        try:
            # Each line by itself: a parser of many lines accepts a value over two lines, and two values on one.
            for record in records:
                _VALUES.decode(record)
            if self.columns is None or pc.all(pc.starts_with(batch.framed(), b"{"), min_count=0).as_py():
                return batch
        except msgspec.DecodeError:
            pass
        reasons = {row: why for row, record in enumerate(records) if (why := self._why_no_value(record))}
        return without_refused(batch, reasons, accounting)

    def _are_objects(self, batch: RecordBatch) -> bool:
        try:
            return are_braced(batch) and len(_VALUES.decode_lines(joined(batch))) == len(batch)
        except msgspec.DecodeError:
            return False

    def _why_no_value(self, record: bytes) -> str:
        """Why a line is not a JSON value, or no object if there are columns; "" if it is."""
        try:
            _VALUES.decode(record)
        except msgspec.DecodeError as error:
            return f"not JSON: {_half_character(record) or error}"
        if self.columns is not None and not record.lstrip(b" \t\r\n").startswith(b"{"):
            return "not a JSON object, and columns are asked for"
        return ""


def _shallow_lines(batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
    """The lines that are text, not blank, and not nested more deeply than recursive code can read."""
    return _shallow(_without_blank(valid_text(batch, accounting), accounting), accounting)


def _shallow(batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
    why = f"arrays and objects are nested more than {MOST_LEVELS} levels deep"
    return without_refused(batch, dict.fromkeys(_deep_rows(batch), why), accounting)


def _deep_rows(batch: RecordBatch) -> list[int]:
    """The lines in which arrays and objects are within each other more than MOST_LEVELS times."""
    borders, data = borders_of(batch.framed()), np.frombuffer(batch.framed().buffers()[2] or b"", np.uint8)
    # As many are closed as are opened.
    if int(np.diff(borders).max(initial=0)) <= 2 * MOST_LEVELS:
        return []
    # In parts, for which no fresh memory is needed. An opening bracket and brace differ in one bit.
    parts = (data[place : place + _PART_BYTES] for place in range(0, int(borders[-1]), _PART_BYTES))
    opened = np.concatenate([*(np.packbits(part | _OTHER == _OPENING) for part in parts), np.zeros(8, np.uint8)])
    ones = np.bitwise_count(opened[: len(opened) // 8 * 8].view(np.uint64))
    counts = np.append(0, np.cumsum(ones, dtype=np.int64))
    # Brackets of the lines around a line may be counted for it.
    rows = np.flatnonzero(counts[borders[1:] // 64 + 1] - counts[borders[:-1] // 64] > MOST_LEVELS)
    if not len(rows):
        return []
    batch = batch.take(rows)
    borders, piece = borders_of(batch.framed()), JsonPiece.of(np.frombuffer(joined(batch), np.uint8))
    # A quote that is not closed is one of its own line alone.
    is_odd = np.append(False, ones_at(piece.in_string, borders[1:].astype(np.int64) - 1))[:-1]
    in_string = piece.in_string ^ bits_of(np.repeat(is_odd, np.diff(borders)))
    brackets, levels = piece.levels((piece.opening | piece.closing) & ~in_string, 0)
    lines = np.searchsorted(brackets, borders)
    levels -= np.repeat(np.append(0, levels)[lines[:-1]], np.diff(lines))
    deep = np.flatnonzero(levels > MOST_LEVELS)
    return [int(row) for row in rows[np.unique(np.searchsorted(lines, deep, side="right") - 1)]]


def _without_blank(batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
    """The lines that hold more than white space."""
    framed = batch.framed()
    borders, data = borders_of(framed), np.frombuffer(framed.buffers()[2] or b"", np.uint8)
    is_blank = np.diff(borders) == 0
    if not is_blank.any() and not (data[borders[:-1]] <= ord(" ")).any():
        return batch
    trimmed = pc.ascii_trim(framed.cast(pa.string()), characters=" \t\r\n")
    is_blank = pc.equal(pc.binary_length(trimmed), 0).to_numpy(zero_copy_only=False)
    return without_skipped(batch, is_blank, "blank line", accounting)


def _half_character(text: bytes) -> str:
    """What is wrong with a text that is JSON but for an escape of half a character, of which msgspec says nothing."""
    with suppress(ValueError):
        if b"\\u" not in text:
            return ""
        half = _HALF.search(json.dumps(json.loads(text), ensure_ascii=False))
        return f"\\u{ord(half[0]):04x} is half of a character, and the other half is missing" if half else ""
    return ""


_HALF = re.compile("[\ud800-\udfff]")
