"""Reads flat JSON objects with machine code, whatever order their members have; needs numba.

Lines that are read have the values that a parser finds; other lines are left to a parser. That takes less than half of
the time that Arrow's parser takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.found_values import is_number
from operators.reader.columns import json_kernels
from operators.reader.columns.csv_kernels import values_at
from operators.reader.columns.json_kernels import ABSENT, FALSE, NULL, NUMBER, TEXT, TRUE
from operators.reader.columns.kernels import padded, texts_of, words_of
from operators.reader.columns.literals import decimals_of
from operators.reader.columns.types import ColumnType

LEAST_LINES = 256
"""Number of lines that a batch must have: a parser is faster for fewer."""

_SAMPLED_LINES = 64
"""If fewer than half of this many lines, the first ones, can be read, all lines are left to a parser."""

_ESCAPED = re.compile(rb'[\x00-\x1f"\\]')
"""Characters that JSON writes with escapes."""


def read_compiled(
    batch: RecordBatch, schema: pa.Schema, *, takes_others: bool
) -> tuple[pa.Table, npt.NDArray[np.bool_]] | None:
    """Read the lines that are flat objects without tabs and escapes.

    Args:
        batch: Lines in valid UTF-8, with ends of lines as delimiters.
        schema: The columns. Lines in which those of other types than text, booleans, numbers, dates and times are not
            null are left.
        takes_others: Whether objects may have members that are no columns; they are left out.

    Returns:
        The columns of all lines, and which of the lines were read: others have any values. Times of day are text, and
        so are dates and timestamps unless all lines were read, and all values are written in the usual way. None if
        there are few lines, or fewer than half were read.

    Raises:
        pyarrow.ArrowInvalid: A number does not fit into its type.
    """
    if len(batch) < LEAST_LINES or not len(schema):
        return None
    objects = _Objects(batch, schema, takes_others)
    for count in (_SAMPLED_LINES, len(batch)):
        objects.find(count)
        if 2 * np.count_nonzero(objects.is_read) < count:
            return None
    return pa.table(objects.columns(schema.types), schema.names), objects.is_read


class _Objects:
    def __init__(self, batch: RecordBatch, schema: pa.Schema, takes_others: bool) -> None:
        borders = borders_of(batch.framed()).astype(np.int64)
        self._data = padded(batch)
        borders -= borders[0]
        self._line_starts, self._line_stops = borders[:-1], borders[1:] - batch.delimiters.lengths()
        self._words = words_of(self._data)
        self._columns = _columns(schema)
        self._takes_others = takes_others
        shape = len(schema), len(batch)
        self._values = json_kernels.Values(
            np.zeros(shape, np.uint8), np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        )
        self.is_read = np.zeros(len(batch), np.bool_)

    def find(self, count: int) -> None:
        self._values.kinds[:, :count] = ABSENT
        starts, stops = self._line_starts[:count], self._line_stops[:count]
        followers = np.arange(len(self._columns.borders), dtype=np.int32)
        json_kernels.find_values(
            *(self._data, self._words, starts, stops, self._columns, self._takes_others, followers),
            *(self._values, self.is_read),
        )

    def columns(self, types: Sequence[pa.DataType]) -> list[pa.Array]:
        """The values of columns in all lines; lines that are left have any value."""
        kinds, starts, stops = self._values
        # Numbers of a line that is left need not be numbers.
        is_null = (kinds <= NULL) | ~self.is_read
        has_dates = self.is_read.all()
        are_values = [is_number(kind) or (has_dates and pa.types.is_temporal(kind)) for kind in types]
        wanted = [kind if is_value else pa.string() for kind, is_value in zip(types, are_values, strict=True)]
        columns = values_at(self._data, starts, stops, is_null, [ColumnType("", kind) for kind in wanted])
        for number, kind in enumerate(types):
            if is_null[number].all():
                columns[number] = pa.nulls(len(self.is_read), kind)
            elif pa.types.is_boolean(kind):
                columns[number] = pa.array(kinds[number] == TRUE, mask=is_null[number])
        left = [number for number, column in enumerate(columns) if column is None]
        texts = texts_of(self._words, starts[left], stops[left], is_null[left])
        for number, column in zip(left, texts, strict=True):
            columns[number] = _numbers(column, types[number]) if is_number(types[number]) else column
        return columns


def _numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    return decimals_of(texts, kind) if pa.types.is_decimal(kind) else texts.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_temporal(kind))


def _columns(schema: pa.Schema) -> json_kernels.Columns:
    # A name that a file writes with escapes cannot be found: no text in UTF-8 has this byte.
    names = [b"\xff" if _ESCAPED.search(name) else name for name in map(str.encode, schema.names)]
    quoted = [name + b'"' for name in names]
    pieces = b"".join(name + bytes(-len(name) % 8) for name in quoted)
    masks = b"".join(b"\xff" * len(name) + bytes(-len(name) % 8) for name in quoted)
    return json_kernels.Columns(
        np.frombuffer(pieces, np.uint64).copy(),
        np.frombuffer(masks, np.uint64).copy(),
        np.cumsum([0, *((len(name) + 7) // 8 for name in quoted)], dtype=np.int32),
        np.array(list(map(len, names)), np.int32),
        np.array(list(map(_taken, schema.types)), np.uint8),
    )


def _taken(kind: pa.DataType) -> int:
    """The kinds of values that a column of a type takes, a bit for each."""
    if pa.types.is_boolean(kind):
        return 1 << NULL | 1 << TRUE | 1 << FALSE
    if _is_text(kind):
        return 1 << NULL | 1 << TEXT
    return 1 << NULL | 1 << NUMBER if is_number(kind) else 1 << NULL
