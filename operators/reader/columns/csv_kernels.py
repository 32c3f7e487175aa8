"""Machine code that finds the fields in rows of CSV; needs numba.

A column with a value that is not plain is given as text. Where a row has another number of fields, or text behind a
quote, none is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import types

from dagflow.late import compute as pc
from operators.reader.byte_source import PADDING
from operators.reader.columns.kernels import (
    BYTES,
    EACH,
    HIGHEST,
    ONE,
    OVERLAPPING,
    Bytes,
    Offsets,
    Places,
    Words,
    compiled,
    lowest,
    part,
    texts_of,
    words_of,
)
from operators.reader.columns.types import ColumnType
from operators.reader.columns.value_kernels import values_at
from operators.reader.scanning.csv_fields import MarkedRows
from operators.reader.scanning.quoting import Dialect
from operators.reader.scanning.search import CR, LF

_MAY_BE_VALUE = re.compile("[0-9]|^(?i:true|false)$")
_IN_VALUES = re.compile(r"[\w.: -]", re.ASCII)

_TEXT = ColumnType("", pa.string())


def read_columns(
    rows: MarkedRows,
    names: Sequence[str],
    made: Collection[str],
    kinds: Mapping[str, ColumnType],
    dialect: Dialect,
    null_values: Collection[str] | None,
) -> pa.RecordBatch | None:
    """Read rows of CSV in UTF-8.

    Args:
        rows: The rows.
        names: The name of each field.
        made: The columns to read.
        kinds: The types of columns that are not text.
        dialect: The bytes with a meaning.
        null_values: Words that mean null; None for the empty one, in columns that are not text.

    Returns:
        The columns, those with values that are not plain as text; None where a row is not plain.
    """
    if not rows.are_regular():
        return None
    data, wanted = rows.padded(PADDING), [name for name in dict.fromkeys(names) if name in made]
    words, starts, stops = words_of(data), *np.empty((2, len(wanted), len(rows.borders) - 1), np.int32)
    columns = np.array([wanted.index(name) if name in made else -1 for name in names])
    if not _find_fields(data, words, rows.marks.delimiters, rows.borders, dialect.quote, columns, starts, stops):
        return None
    null_words = [""] if null_values is None else null_values
    # Machine code does not look where values end.
    are_plain = not (any(map(_MAY_BE_VALUE.search, null_words)) or _IN_VALUES.match(chr(dialect.delimiter)))
    wanted_types = [kinds.get(name, _TEXT) if are_plain else _TEXT for name in wanted]
    is_null = starts == stops if "" in null_words else np.zeros(starts.shape, np.bool_)
    arrays = values_at(data, starts, stops, is_null, wanted_types)
    left = [number for number, column in enumerate(arrays) if column is None]
    for number, column in zip(left, texts_of(words, starts[left], stops[left], quote=dialect.quote), strict=True):
        arrays[number] = column
        if null_values:
            is_quoted = data.take(starts[number] - 1, mode="clip") == dialect.quote
            arrays[number] = _without(column, null_values, is_quoted)
    return pa.RecordBatch.from_arrays(arrays, wanted)


def _without(texts: pa.Array, words: Collection[str], is_quoted: Any) -> pa.Array:
    """Texts, with null for words that are not quoted."""
    is_word = pc.is_in(texts, value_set=pa.array(list(words), pa.string())).to_numpy(False)
    return pc.if_else(is_word & ~is_quoted, pa.scalar(None, pa.string()), texts)


@part
def _place_of(words: Words, repeated: Any, at: int, end: int) -> int:
    """The next place of a byte that is repeated in a word; end if it is not before that."""
    while at < end:
        others = words[np.uintp(at)] ^ repeated
        hits = (others - EACH) & ~others & HIGHEST
        if hits != 0:
            place: int = min(at + (lowest(hits) >> 3), end)
            return place
        at += 8
    return end


@compiled(
    *(types.boolean, BYTES, OVERLAPPING, types.Array(types.uint64, 1, "C", readonly=True)),
    *(types.Array(types.int64, 1, "C", readonly=True), types.int64, types.Array(types.int64, 1, "C", readonly=True)),
    *(types.Array(types.int32, 2, "C"), types.Array(types.int32, 2, "C")),
)
def _find_fields(
    data: Bytes,
    words: Words,
    ends: Words,
    borders: Places,
    quote: int,
    columns: Places,
    starts: Offsets,
    stops: Offsets,
) -> bool:
    """Find the fields of rows that lie side by side; returns whether each row has as many as there are columns.

    The ends of fields within rows are marked by bits. Columns say where the places of each are written, -1 for nowhere.
    Stops of fields with doubled quotes are negative. Bytes are followed by PADDING more.
    """
    last, quotes, place = len(columns) - 1, EACH * np.uint64(quote), borders[0] >> 6
    bits = ends[np.uintp(place)] >> np.uint64(borders[0] & 63) << np.uint64(borders[0] & 63)
    for row in range(len(borders) - 1):
        start, end = borders[row], borders[row + 1]
        for column in range(last + 1):
            while bits == 0 and place + 1 < len(ends):
                place += 1
                bits = ends[np.uintp(place)]
            stop = 64 * place + lowest(bits) if bits != 0 else end
            if (stop < end) != (column < last):
                return False
            following = stop + 1
            if column < last:
                bits &= bits - ONE
            else:
                stop = end - (end > start and data[np.uintp(end - 1)] == LF)
                stop -= stop > start and data[np.uintp(stop - 1)] == CR
            to = columns[column]
            if to >= 0:
                is_quoted = start < stop and data[np.uintp(start)] == quote
                start, stop = start + is_quoted, stop - is_quoted
                is_doubled = is_quoted and _place_of(words, quotes, start, stop) < stop
                starts[to, row], stops[to, row] = start, -stop if is_doubled else stop
            start = following
    return True
