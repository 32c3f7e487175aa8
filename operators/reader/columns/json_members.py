"""Makes columns from the members of JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.json as arrow_json

from dagflow.api.columns.column_values import with_leaves
from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of
from operators.reader.columns.literals import WIDE_DIGITS
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import in_records, parse_columns, typed, values_with_refused, without_words
from operators.reader.columns.written_values import (
    Object,
    WhyNot,
    all_members,
    first_twice,
    shown_numbers,
    without_collection,
    written_as,
    written_type,
)
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.framing import joined
from operators.reader.scanning.search import contains, occurrences

_LONGEST, _SHARE = 64, 16
"""How many of the longest objects of a batch, and of how many others one, show the members that all have."""

_ROUGH = msgspec.json.Decoder(float_hook=len)  # numbers of any size are taken


@frozen
class JsonMembers:
    """Makes columns from JSON objects."""

    types: Mapping[str, ColumnType]
    null_values: tuple[str, ...]
    takes_others: bool = True

    def parse(self, batch: RecordBatch, rejects: ByteAccounting) -> Parsed:
        """The objects with their columns.

        Rejects take in objects with a member that is not of its column's type, or is there twice.
        """
        return self._typed(parse_columns(batch, self._read, rejects, self._read_few), rejects)

    def read_lines(self, batch: RecordBatch) -> pa.Table | None:
        """The columns, as they are written, of lines that need not be JSON; None where one may be wrong.

        Arrow's reader refuses what is not JSON, with exceptions that are ruled out here. That saves a second parser.
        """
        try:
            return self._read(batch, are_json=False)
        except pa.ArrowInvalid:
            return None

    def parse_read(self, batch: RecordBatch, table: pa.Table, rejects: ByteAccounting) -> Parsed:
        """The same as parse(), of what read_lines() has read."""
        return self._typed(Parsed(batch, table.combine_chunks().to_batches()[0]), rejects)

    def _typed(self, parsed: Parsed, rejects: ByteAccounting) -> Parsed:
        if self.null_values and parsed.columns is not None:
            columns = [without_words(column, self.null_values) for column in parsed.columns.columns]
            parsed = Parsed(parsed.raw, pa.RecordBatch.from_arrays(columns, parsed.columns.schema.names))
        return typed(parsed, self.types, (), rejects)

    def _read(self, batch: RecordBatch, *, are_json: bool = True) -> pa.Table:
        """Read objects together: first those that are flat, and the others with Arrow.

        Raises:
            pyarrow.ArrowInvalid: A line is wrong, or must be parsed by itself to know.
        """
        written = pa.schema([(name, as_written(kind.arrow)) for name, kind in self.types.items()])
        # A word that stands for no value, or a pattern, says something else of texts.
        are_texts = [bool(self.null_values) or kind.pattern is not None for kind in self.types.values()]
        wanted = [
            field if is_text else field.with_type(kind.arrow)
            for field, kind, is_text in zip(written, self.types.values(), are_texts, strict=True)
        ]
        flat = read_flat_objects(batch, pa.schema(wanted), takes_others=self.takes_others)
        if flat is None:
            table = self._read_any(batch, written, are_json)
        else:
            table, is_read = flat
            if not is_read.all():
                others = self._read_any(batch.take(np.flatnonzero(~is_read)), written, are_json)
                rows = np.where(is_read, np.arange(len(batch)), len(batch) + np.cumsum(~is_read) - 1)
                table = pa.concat_tables([table.cast(written), others]).take(pa.array(rows))
        for column in table.columns:
            if pa.types.is_floating(column.type) and pc.any(pc.is_inf(column)).as_py():
                raise pa.ArrowInvalid("A number is too large")
        return table

    def _read_any(self, batch: RecordBatch, schema: pa.Schema, are_json: bool) -> pa.Table:
        """Read objects with Arrow, which refuses all of them, or some that are right, for one that is wrong.

        Raises:
            pyarrow.ArrowInvalid: Arrow refuses the objects, or it might accept text that is no JSON, or round a
                decimal.
        """
        if not are_json and (not are_braced(batch) or _may_be_no_json(batch)):
            raise pa.ArrowInvalid("A line may be no JSON")
        with_room = pa.schema([(field.name, _with_room(field.type)) for field in schema])
        if with_room != schema and _may_overflow(batch):
            raise pa.ArrowInvalid("A decimal may have too many digits for Arrow to read")
        others: Literal["ignore", "error"] = "ignore" if self.takes_others else "error"
        options = arrow_json.ParseOptions(explicit_schema=with_room, unexpected_field_behavior=others)
        table = arrow_json.read_json(pa.BufferReader(joined(batch)), read_options(batch), options)
        if table.num_rows != len(batch):
            raise pa.ArrowInvalid("Not one JSON object")
        if not self.takes_others and _has_empty(batch):
            raise pa.ArrowInvalid("An object has no members")
        table = table.select(schema.names)
        return table if with_room == schema else table.cast(schema)

    @without_collection()
    def _read_few(self, batch: RecordBatch) -> tuple[pa.Table, dict[int, str]]:
        """Read objects that Arrow may refuse: as a table of those that are right, and why each of the others is not."""
        reasons: dict[int, str] = {}
        empty: dict[int, str] = {}
        objects = [*all_members(batch.to_pylist())]
        named = [*map(dict, objects)]
        for row, (pairs, members) in enumerate(zip(objects, named, strict=True)):
            if len(members) < len(pairs) and (twice := first_twice(self._names(pairs))):
                reasons[row] = f"member '{twice}' is there twice"
            elif self.takes_others:
                continue
            elif others := members.keys() - self.types.keys():
                reasons[row] = f"member '{min(others)}' is in none of the columns that were inferred"
            elif not pairs:
                empty[row] = "the object has no members, and columns are inferred"
        columns = {}
        for name, kind in self.types.items():
            # Text stays text here; typed() parses dates and times.
            values = [members.get(name) for members in named]
            columns[name], refused = self._column_of(values, ColumnType(kind.name, as_written(kind.arrow)))
            for row, why in refused.items():
                reasons.setdefault(row, f"column '{name}' ({kind.name}): {why}")
        reasons = in_records(reasons, batch) | empty
        right = pa.array([row for row in range(len(batch)) if row not in reasons], pa.int64())
        return pa.table(columns).take(right), reasons

    def _names(self, pairs: Object) -> list[str]:
        """The names of members that are columns, or may be none."""
        return [name for name, _ in pairs if name in self.types or not self.takes_others]

    def _column_of(self, values: list[Any], kind: ColumnType) -> tuple[pa.Array, dict[int, str]]:
        """The values of a column, with null for those that are none of its type, and why each of these is not."""
        if self.null_values:
            words = {*self.null_values}
            values = [None if type(value) is str and value in words else value for value in values]
        written = [*map(written_as(kind.arrow, takes_others=self.takes_others), values)]
        reasons: dict[int, str] = {}
        if WhyNot in set(map(type, written)):
            reasons = {row: value for row, value in enumerate(written) if type(value) is WhyNot}
            written = [None if type(value) is WhyNot else value for value in written]
        # Numbers of all records are read together: by themselves, they would take a hundred times as long.
        array, refused = values_with_refused(pa.array(written, written_type(kind.arrow)), kind, shown_numbers)
        return array, reasons | refused


_OPENING, _CLOSING = b"{}"

_NO_NUMBERS = [np.frombuffer(word, np.uint8) for word in (b"NaN", b"Inf")]
"""Words that Arrow takes for numbers, though JSON has none of them."""

_MANY_DIGITS = (
    r"[0-9.]{38}"  # With the digits that a type adds behind the point, there are 76.
    r"|[0-9.]{19}[eE]"
    r"""|[0-9.][eE][+-]?0*(?:[2-9][0-9]|[1-9][0-9]{2,})[",}\]\s]"""
    r"|\\u00(?:2[bBdD]|3[0-9]|[46]5)"
)
"""Matches lines with numbers that may have more than 76 digits, with the zeros that an exponent stands for."""


def are_braced(batch: RecordBatch) -> bool:
    """Whether each line begins with an opening brace and ends with a closing one.

    If a parser finds as many JSON values in such lines as there are lines, then each line is one: no value has an
    opening brace behind a closing one with nothing but white space between them, so that all end on their line.
    """
    framed = batch.framed()
    borders, data = borders_of(framed), np.frombuffer(framed.buffers()[2], np.uint8)
    starts, stops = borders[:-1], borders[1:] - batch.delimiters.lengths()
    if not (stops > starts).all():
        return False
    return bool((data[starts] == _OPENING).all() and (data[stops - 1] == _CLOSING).all())


def _may_be_no_json(batch: RecordBatch) -> bool:
    """Whether lines may hold text that Arrow accepts although it is no JSON."""
    text = np.frombuffer(joined(batch), np.uint8)
    return any(contains(text, word[0]) and len(occurrences(text, word)) for word in _NO_NUMBERS)


def _has_empty(batch: RecordBatch) -> bool:
    return bool(pc.any(pc.match_substring_regex(batch.framed(), r"^\s*\{\s*\}")).as_py())


def _with_room(kind: pa.DataType) -> pa.DataType:
    """The type with room for many digits: Arrow does not check whether a number has too many for its decimals."""
    return with_leaves(kind, lambda leaf: pa.decimal256(WIDE_DIGITS, leaf.scale) if pa.types.is_decimal(leaf) else leaf)


def _may_overflow(batch: RecordBatch) -> bool:
    """Whether a number, or a text, may have more digits than the widest decimals have room for."""
    return bool(pc.any(pc.match_substring_regex(batch.framed(), _MANY_DIGITS)).as_py())


def as_written(kind: pa.DataType) -> pa.DataType:
    return with_leaves(kind, lambda leaf: pa.string() if pa.types.is_temporal(leaf) else leaf)


def read_options(batch: RecordBatch) -> arrow_json.ReadOptions:
    """Options by which Arrow reads all of a batch at once."""
    borders = borders_of(batch.framed())
    return arrow_json.ReadOptions(use_threads=False, block_size=int(borders[-1] - borders[0]) + 1)


def values_of(batch: RecordBatch) -> list[Any]:
    """The values of the lines that are JSON, to look at their members; numbers may be rounded."""
    try:
        return _ROUGH.decode_lines(joined(batch))
    except msgspec.DecodeError:
        return list(map(value_of, batch.to_pylist()))


def value_of(record: bytes) -> Any:
    """The value of a line, as of values_of(); None if it is not JSON."""
    with suppress(msgspec.DecodeError):
        return _ROUGH.decode(record)
    return None


def members_of_type(kind: pa.DataType) -> int:
    """How many columns, nested ones included, a column of a type is."""
    return 1 + sum(members_of_type(kind.field(index).type) for index in range(kind.num_fields))


def likely_width(batch: RecordBatch) -> int:
    """How many members objects have together, to judge by the longest and by others that are chosen by chance."""
    longest = np.argsort(np.diff(borders_of(batch.framed())))[-_LONGEST:]
    chosen = np.random.default_rng().permutation(len(batch))[: len(batch) // _SHARE]
    first, second = (values_of(batch.take(np.sort(rows))) for rows in (np.append(longest, chosen[::2]), chosen[1::2]))
    width = width_of(first + second)
    return width + 2 * _SHARE * (width - width_of(first))


def width_of(values: list[Any]) -> int:
    """How many members objects have together, also within others, each counted once by its name and place."""
    width, pending = 0, [values]
    while pending:
        group = pending.pop()
        objects = [value for value in group if isinstance(value, dict)]
        width += len(set().union(*objects))
        inner: dict[str, list[Any]] = {}
        for name, value in chain.from_iterable(map(dict.items, objects)):
            if isinstance(value, dict | list):
                inner.setdefault(name, []).append(value)
        pending += inner.values()
        if lists := [value for value in group if isinstance(value, list)]:
            pending.append(list(chain.from_iterable(lists)))
    return width


FLAT_READER = MachineCode("operators.reader.columns.compiled_objects.read_compiled")
"""Machine code that reads flat objects; without it, Arrow reads all objects."""


def read_flat_objects(
    batch: RecordBatch, schema: pa.Schema, *, takes_others: bool
) -> tuple[pa.Table, npt.NDArray[np.bool_]] | None:
    """Read flat objects in a process that has read much, if there is machine code; see read_compiled."""
    # Objects with others inside are left to Arrow.
    is_flat = not any(map(pa.types.is_nested, schema.types))
    read = FLAT_READER.after(joined(batch).size if is_flat else 0)
    found: tuple[pa.Table, npt.NDArray[np.bool_]] | None
    found = None if read is None else read(batch, schema, takes_others=takes_others)
    return found
